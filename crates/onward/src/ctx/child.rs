//! Starting other runs from a workflow, and waiting for their ends.
//!
//! Owns: [`StartChild`], what awaiting it gives, and [`ChildResult`]. Never makes a second child of
//! one start: its id follows from the run's and the step's.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::signal::Wait;
use crate::clock::millis;
use crate::driver::board::{Board, Child as Starting, LeafId, LeafKind, Numbered, Told};
use crate::limits::QUEUE_DEFAULT;
use crate::model::step_id;
use crate::store::signal::Outcome;
use crate::store::{Lease, NewParent, NewRun, StartAt};
use crate::{Code, Failure, Json, RunId, RunState, Waits, WorkerId};

/// A run that a workflow starts; made by [`Ctx::start`](crate::Ctx::start). Await it to have it
/// started, or its [`result`](StartChild::result) to wait for its end as well.
#[must_use = "a child is started when it, or its result, is awaited"]
pub struct StartChild<O> {
    board: Arc<Board>,
    /// The name of the signal that tells of its end.
    name: Arc<str>,
    place: ChildPlace,
    new: Result<NewRun, Failure>,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> StartChild<O> {
    pub(super) fn new<I: Serialize>(board: Arc<Board>, workflow: &str, input: &I) -> Self {
        let misuse = board.check_place().err();
        let name = step_id::child(workflow);
        let number = misuse.is_none().then(|| board.take_number(&name));
        let name = step_id::engine_numbered(&name, number.as_ref().map_or(1, |it| it.number));
        let name: Arc<str> = name.into();
        let input = Json::of(input).map_err(Failure::from);
        let new = misuse.map_or(input, Err).map(|input| NewRun {
            id: RunId::derived(board.run, &name),
            workflow: workflow.to_owned(),
            queue: QUEUE_DEFAULT.to_owned(),
            lane: None,
            priority: 0,
            input,
            key: None,
            start_at: StartAt::Now,
            timeout_ms: None,
            tags: board.inherited_tags(),
            caller: format!("run {}", board.run),
            parent: Some(parent(board.run, &name)),
            claimant: None,
        });
        Self { board, name, place: ChildPlace::Numbered(number), new, output: PhantomData }
    }

    fn with(mut self, change: impl FnOnce(&mut NewRun)) -> Self {
        if let Ok(new) = &mut self.new {
            change(new);
        }
        self
    }

    /// Gives the child its own id among the children of its workflow, as
    /// [`StepFuture::id`](crate::StepFuture::id) does for a step. Use it in a function that starts a
    /// child and that several branches of a `select!` or `join!` call.
    ///
    /// ```
    /// # use onward::{Ctx, Failure, Workflow};
    /// # const SHIP: Workflow<u64, u64> = Workflow::named("ship");
    /// async fn ship(ctx: &Ctx, parcel: u64) -> Result<u64, Failure> {
    ///     ctx.start(SHIP, &parcel).id(parcel).result().await
    /// }
    ///
    /// async fn ship_both(ctx: Ctx, (one, two): (u64, u64)) -> Result<u64, Failure> {
    ///     let (one, two) = tokio::try_join!(ship(&ctx, one), ship(&ctx, two))?;
    ///     Ok(one + two)
    /// }
    /// ```
    pub fn id(mut self, id: impl fmt::Display) -> Self {
        let Ok(new) = &mut self.new else { return self };
        if let ChildPlace::Numbered(Some(number)) = &self.place {
            self.board.return_number(number);
        }
        let name: Arc<str> =
            step_id::engine_explicit(&step_id::child(&new.workflow), &id.to_string()).into();
        new.id = RunId::derived(self.board.run, &name);
        new.parent.iter_mut().for_each(|parent| name.as_ref().clone_into(&mut parent.step));
        Self { name, place: ChildPlace::Explicit, ..self }
    }

    /// The queue it is routed by; `default` unless set.
    pub fn queue(self, queue: impl Into<String>) -> Self {
        self.with(|new| new.queue = queue.into())
    }

    /// The lane of its queue that it is in, where the queue has a limit for each.
    pub fn lane(self, lane: impl Into<String>) -> Self {
        self.with(|new| new.lane = Some(lane.into()))
    }

    /// Higher is claimed first; 0 unless set.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|new| new.priority = priority)
    }

    /// Does not begin before this time has passed.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|new| new.start_at = StartAt::After(millis(delay)))
    }

    /// The child fails with `deadline_exceeded` if it has not ended this long after its start. Unless
    /// it is detached, it never has more time than its parent.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|new| new.timeout_ms = Some(millis(timeout)))
    }

    /// Adds a label to find it by.
    pub fn tag(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|new| drop(new.tags.insert(name.into(), value.into())))
    }

    /// Lets it go on when this run is cancelled. Without it a cancel reaches children too.
    pub fn detached(self) -> Self {
        self.with(|new| new.parent.iter_mut().for_each(|parent| parent.detached = true))
    }

    /// Starts it and waits for its output. While this run only waits it holds no place of its
    /// worker.
    ///
    /// A child that fails gives its [`Failure`], with [`child`](crate::FailureData::child) set.
    pub fn result(self) -> ChildResult<O> {
        let run = self.new.as_ref().map_or(self.board.run, |new| new.id);
        let waits = Waits::Child { run };
        let wait = Wait::new(self.board, LeafKind::Child, self.name, waits);
        ChildResult { wait, place: Some(self.place), new: Some(self.new), run, output: PhantomData }
    }
}

/// What tells a child from the others of its workflow.
enum ChildPlace {
    Numbered(Option<Numbered>),
    Explicit,
}

impl ChildPlace {
    /// Notes the first poll of what starts the child.
    fn check(self, board: &Board, name: &str) {
        match self {
            ChildPlace::Numbered(number) => number.iter().for_each(|it| board.check_number(it)),
            ChildPlace::Explicit => board.claim_explicit(name),
        }
    }
}

/// Whose child it is. The lease is the driver's, which starts it.
fn parent(run: RunId, step: &str) -> NewParent {
    let lease = Lease { run, worker: WorkerId::from_u128(0), attempt: 0 };
    NewParent { lease, step: step.to_owned(), detached: false }
}

impl<O: DeserializeOwned + 'static> IntoFuture for StartChild<O> {
    type Output = Result<Child<O>, Failure>;
    type IntoFuture = ChildStarted<O>;

    fn into_future(self) -> ChildStarted<O> {
        let Self { board, name, place, new, .. } = self;
        let step = format!("{name}{}", step_id::STARTED).into();
        let (place, new) = (Some(place), Some(new));
        ChildStarted { board, name, step, place, new, leaf: None, output: PhantomData }
    }
}

/// A child that is being started; it is a [`Child`] when that is recorded.
#[must_use = "a child is started when it is awaited"]
pub struct ChildStarted<O> {
    board: Arc<Board>,
    name: Arc<str>,
    step: Arc<str>,
    /// Until its first poll.
    place: Option<ChildPlace>,
    new: Option<Result<NewRun, Failure>>,
    leaf: Option<LeafId>,
    output: PhantomData<fn() -> O>,
}

impl<O> Future for ChildStarted<O> {
    type Output = Result<Child<O>, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let new = match &this.new {
            Some(Ok(new)) => new,
            Some(Err(failure)) => return Poll::Ready(Err(failure.clone())),
            None => return Poll::Pending,
        };
        if let Err(misuse) = this.board.check_place() {
            return Poll::Ready(Err(misuse));
        }
        let Some(leaf) = this.leaf else {
            if let Some(place) = this.place.take() {
                place.check(&this.board, &this.name);
            }
            this.leaf = Some(this.board.ask(&this.step, LeafKind::Start, cx.waker()).0);
            return Poll::Pending;
        };
        match this.board.tell(leaf, cx.waker()) {
            Told::Begin => this.board.start_child(Starting { leaf, run: new.clone() }),
            Told::Take(record) => {
                this.leaf = None;
                // A fork may have the record of another run, whose child it is.
                let run =
                    record.map_or(new.id, |record| this.board.child_of(record.seq, &this.name));
                let (board, name) = (Arc::clone(&this.board), Arc::clone(&this.name));
                return Poll::Ready(Ok(Child { board, name, run, output: PhantomData }));
            }
            Told::Full => {
                this.leaf = None;
                let advice = Code::HistoryFull.advice();
                return Poll::Ready(Err(Failure::engine(Code::HistoryFull, advice)));
            }
            Told::Wait | Told::Proceed | Told::Failed(_) | Told::Key(_) => {}
        }
        Poll::Pending
    }
}

impl<O> Drop for ChildStarted<O> {
    fn drop(&mut self) {
        if let Some(leaf) = self.leaf {
            self.board.forget(leaf);
        }
    }
}

/// A run that this run has started.
pub struct Child<O> {
    board: Arc<Board>,
    name: Arc<str>,
    run: RunId,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Child<O> {
    /// The child's id.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Waits for its output.
    pub fn result(self) -> ChildResult<O> {
        let waits = Waits::Child { run: self.run };
        let wait = Wait::new(self.board, LeafKind::Signal, self.name, waits);
        ChildResult { wait, place: None, new: None, run: self.run, output: PhantomData }
    }
}

/// The output of a child; made by [`StartChild::result`] and [`Child::result`].
///
/// It does nothing unless you await it. The compiler warns if you do not:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # const CHILD: onward::Workflow<u32, ()> = onward::Workflow::named("child");
/// # async fn workflow(ctx: onward::Ctx) {
/// ctx.start(CHILD, &1).result();
/// # }
/// ```
#[must_use = "a child is waited for when its result is awaited"]
pub struct ChildResult<O> {
    wait: Wait,
    /// Until its first poll, if the child is started here.
    place: Option<ChildPlace>,
    /// The child, if it is started here.
    new: Option<Result<NewRun, Failure>>,
    run: RunId,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Future for ChildResult<O> {
    type Output = Result<O, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(Err(failure)) = &this.new {
            return Poll::Ready(Err(failure.clone()));
        }
        if let Some(place) = this.place.take() {
            place.check(&this.wait.board, &this.wait.step);
        }
        match this.wait.poll(cx, this.new.as_ref().and_then(|new| new.as_ref().ok())) {
            Poll::Ready(Ok(body)) => Poll::Ready(this.read(&body)),
            Poll::Ready(Err(failure)) => Poll::Ready(Err(failure)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<O: DeserializeOwned> ChildResult<O> {
    fn read(&self, body: &Json) -> Result<O, Failure> {
        let outcome = self.wait.read::<Outcome>(body)?;
        let child = || self.wait.board.child_of(self.wait.taken, &self.wait.step);
        let cancelled = (outcome.state == RunState::Cancelled).then(|| {
            let message = format!("the child {} was cancelled", child());
            Failure::engine(Code::RunCancelled, message)
        });
        // A retry of this run asks the child again, if its failure is what ended the run.
        let failure = outcome.failure.or(cancelled);
        self.wait.board.failed(failure.as_ref().map(|_| &self.wait.step));
        if let Some(failure) = failure {
            return Err(failure.of_child(child()).at_step(&self.wait.step));
        }
        // An output of nothing is left out by some who write JSON.
        self.wait.read(&outcome.output.unwrap_or_else(|| Json::stored("null")))
    }
}

impl<O> fmt::Debug for StartChild<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartChild").field("step", &self.name).finish()
    }
}

impl<O> fmt::Debug for ChildStarted<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildStarted").field("step", &self.name).finish()
    }
}

impl<O> fmt::Debug for Child<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("run", &self.run).finish()
    }
}

impl<O> fmt::Debug for ChildResult<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildResult").field("run", &self.run).finish()
    }
}
