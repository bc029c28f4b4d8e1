//! A step: builder and future in one.
//!
//! Owns: [`StepFuture`]: the body, its tries, and what each of them reports. Never writes to the
//! store: results go to the board, and come back when it is their turn. A transaction goes to the
//! board as a whole, and so does its record.

mod at_most_once;
mod keyed;
mod outcome;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::at_most_once::{Begun, Mode, unreturned};
use self::keyed::Keyed;
pub(crate) use self::outcome::recordable;
use self::outcome::{chance, limited};
use super::body::Step;
use super::undo::UndoSetup;
use crate::driver::board::{Board, Draft, LeafId, LeafKind, Numbered, Then, Told, Transaction};
use crate::driver::past::PastStep;
use crate::driver::wake::{BodyWaker, Here};
use crate::model::step_id;
use crate::retry::Tried;
use crate::store::{BoxFuture, TransactionBody};
use crate::{Code, Entry, Failure, Record, Retry, Timestamp};

/// What a step executes.
pub(super) enum Body<'a, T> {
    /// A future, polled in place.
    Future(Box<dyn Fn(Step) -> BoxFuture<'a, Result<T, Failure>> + Send + 'a>),
    /// A transaction, executed by the store.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "no store executes one")
    )]
    Transaction(Box<dyn Fn(Step) -> TransactionBody + Send + 'a>),
}

/// A step that is being set up or awaited; made by [`Ctx::step`](crate::Ctx::step).
#[must_use = "a step does nothing until it is awaited"]
pub struct StepFuture<'a, T> {
    pub(super) board: Arc<Board>,
    name: Cow<'a, str>,
    /// `None` for one of the engine's own, which is recorded by its name alone.
    number: Option<Numbered>,
    explicit: Option<String>,
    retry: Option<Retry>,
    timeout: Option<Duration>,
    mode: Mode,
    keyed: Option<Box<Keyed>>,
    pub(super) undo: Option<Box<UndoSetup>>,
    body: Body<'a, T>,
    misuse: Option<Failure>,
    asked: Option<Asked>,
    executing: Option<Executing<'a, T>>,
    /// The result of the body, until it is this step's turn.
    kept: Option<Result<T, Failure>>,
    ended: bool,
}

/// What the step knows of itself from its first poll on.
struct Asked {
    leaf: LeafId,
    step: Arc<str>,
    /// The number of the try that is next or under way.
    try_number: u32,
    first_began_at: Option<Timestamp>,
    /// When the try under way began.
    began_at: Timestamp,
    next_at: Option<Timestamp>,
    begun: Begun,
}

struct Executing<'a, T> {
    future: BoxFuture<'a, Result<T, Failure>>,
    wake: Arc<BodyWaker>,
    waker: Waker,
}

// The future never hands out a pin to one of its own fields.
impl<T> Unpin for StepFuture<'_, T> {}

impl<'a, T> StepFuture<'a, T>
where
    T: Serialize + DeserializeOwned + Send + 'a,
{
    pub(super) fn new<E, F, Fut>(board: Arc<Board>, name: Cow<'a, str>, body: F) -> Self
    where
        E: Into<Failure>,
        F: Fn(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
    {
        let body = Body::Future(Box::new(move |step| {
            let body = crate::trace::in_step(step, &body);
            Box::pin(async move { body.await.map_err(Into::into) })
        }));
        Self::of_body(board, name, body)
    }

    /// A step of the engine's own, whose name is recorded as it is.
    pub(super) fn of_engine<F, Fut>(board: Arc<Board>, name: String, body: F) -> Self
    where
        F: Fn(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Failure>> + Send + 'a,
    {
        let mut step = Self::new(board, Cow::Owned(name), body);
        step.number = None;
        step
    }

    pub(super) fn of_body(board: Arc<Board>, name: Cow<'a, str>, body: Body<'a, T>) -> Self {
        let misuse = board.check_place().err();
        let number = misuse.is_none().then(|| board.take_number(&name));
        Self {
            board,
            name,
            number,
            explicit: None,
            retry: None,
            timeout: None,
            mode: Mode::AtLeastOnce,
            keyed: None,
            undo: None,
            body,
            misuse,
            asked: None,
            executing: None,
            kept: None,
            ended: false,
        }
    }
}

impl<T> StepFuture<'_, T> {
    /// How the step is tried again when it fails; [`Retry::default`] unless set.
    ///
    /// ```
    /// # use {onward::{Ctx, Failure, Retry}, std::time::Duration};
    /// # async fn ocr(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn workflow(ctx: Ctx, file: String) -> Result<String, Failure> {
    /// let patient = Retry::exponential(Duration::from_millis(200)).tries(8);
    /// ctx.step("ocr", |_| ocr(&file)).retry(patient).timeout(Duration::from_secs(30)).await
    /// # }
    /// ```
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How long one try may take, as in [`retry`](Self::retry)'s example. A try that takes longer fails
    /// with the code `timeout`; an [`at_most_once`](Self::at_most_once) step fails with `interrupted`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Gives the step an id of its own among the steps of its name, so that inserting another
    /// step of that name cannot shift results from one to the other.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn save(_: &u64) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, items: Vec<u64>) -> Result<(), Failure> {
    /// for item in &items {
    ///     ctx.step("save", |_| save(item)).id(item).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn id(mut self, id: impl fmt::Display) -> Self {
        self.number.take().iter().for_each(|number| self.board.return_number(number));
        self.explicit = Some(id.to_string());
        self
    }
}

impl<'a, T> Future for StepFuture<'a, T>
where
    T: Serialize + DeserializeOwned + Send + 'a,
{
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.ended, "step {:?} was polled after it had ended", this.name);
        let polled = this.poll_step(cx);
        this.ended = polled.is_ready();
        polled
    }
}

impl<'a, T> StepFuture<'a, T>
where
    T: Serialize + DeserializeOwned + Send + 'a,
{
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        if let Some(misuse) = self.misuse.take().or_else(|| self.board.check_place().err()) {
            return Poll::Ready(Err(misuse));
        }
        let Some(asked) = &self.asked else {
            return match self.ask(cx.waker()) {
                Ok(()) => Poll::Pending,
                Err(failure) => Poll::Ready(Err(failure)),
            };
        };
        match self.board.tell(asked.leaf, cx.waker()) {
            Told::Wait => Poll::Pending,
            Told::Take(record) => self.take(record),
            Told::Full => Poll::Ready(Err(self.refuse_full())),
            Told::Begin => {
                self.begin();
                self.proceed();
                Poll::Pending
            }
            Told::Proceed => {
                self.proceed();
                Poll::Pending
            }
            Told::Key(told) => {
                self.heed_key(told);
                self.proceed();
                Poll::Pending
            }
            Told::Failed(failure) => {
                let began_at = asked.began_at;
                self.fail(failure, began_at);
                Poll::Pending
            }
        }
    }

    fn ask(&mut self, waker: &Waker) -> Result<(), Failure> {
        let step = self.recorded_name()?;
        if self.explicit.is_some() && !self.board.take_explicit(step_id::base(&step)) {
            let message = format!("{step:?}: {}", Code::StepIdTaken.advice());
            return Err(Failure::engine(Code::StepIdTaken, message));
        }
        self.number.iter().for_each(|number| self.board.check_number(number));
        self.keep_undo(&step)?;
        let (leaf, known) = self.board.ask(&step, LeafKind::Step, waker);
        self.check_key(&step, &known);
        self.asked = Some(Asked::new(leaf, step, known));
        Ok(())
    }

    /// Makes the body, unless something has to come before it: the rest of a pause, the key, the
    /// record of an at-most-once begin, or the verdict on one that was interrupted.
    fn begin(&mut self) {
        let Some(asked) = &mut self.asked else { return };
        let now = self.board.store.clock().now();
        if let Some(next_at) = asked.next_at.take().filter(|next_at| *next_at > now) {
            return self.board.pause(asked.leaf, next_at);
        }
        if self.takes_key() {
            return;
        }
        let Some(asked) = &mut self.asked else { return };
        let first = *asked.first_began_at.get_or_insert(now);
        if self.mode == Mode::AtMostOnce {
            match asked.begun {
                Begun::Here => {
                    if let Some(keyed) = &mut self.keyed {
                        keyed.begin_once();
                    }
                }
                Begun::No => {
                    asked.begun = Begun::Here;
                    return self.board.report(asked.draft(Entry::Began, now), Then::Record);
                }
                Begun::Before => {
                    let advice = Code::Interrupted.advice();
                    return self.fail(Failure::engine(Code::Interrupted, advice), first);
                }
            }
        }
        self.execute(now);
    }

    fn execute(&mut self, now: Timestamp) {
        let Some(asked) = &mut self.asked else { return };
        asked.began_at = now;
        let step = Step {
            board: Arc::clone(&self.board),
            name: Arc::clone(&asked.step),
            id: self.keyed.as_ref().map(|keyed| keyed.outside_id().into()).unwrap_or_default(),
            fence: self.keyed.as_ref().and_then(|keyed| keyed.token()),
            run: self.board.run,
            try_number: asked.try_number,
        };
        let body = match &self.body {
            Body::Future(body) => body,
            Body::Transaction(body) => {
                return self.board.transact(asked.transaction(body(step)));
            }
        };
        #[cfg(feature = "testing")]
        let _body = crate::testing::observer::begin(self.board.wakes.token, asked.leaf, step.id());
        let _here = Here::enter(Here::Body(self.board.wakes.token));
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| body(step)));
        let future = match (made, self.timeout) {
            (Ok(future), None) => future,
            (Ok(future), Some(limit)) => Box::pin(limited(limit, future, self.mode)),
            (Err(panic), _) => {
                let failure = unreturned(Failure::of_panic(panic), self.mode);
                Box::pin(std::future::ready(Err(failure)))
            }
        };
        let wake = BodyWaker::new(Arc::clone(&self.board.wakes), asked.leaf);
        let waker = Waker::from(Arc::clone(&wake));
        self.executing = Some(Executing { future, wake, waker });
    }

    /// Polls the body, if it asked for it.
    fn proceed(&mut self) {
        let Some(executing) = &mut self.executing else { return };
        if !executing.wake.take() {
            return;
        }
        let polled = {
            #[cfg(feature = "testing")]
            let _body = (self.asked.as_ref())
                .map(|asked| crate::testing::observer::enter(self.board.wakes.token, asked.leaf));
            let _here = Here::enter(Here::Body(self.board.wakes.token));
            let mut cx = Context::from_waker(&executing.waker);
            let future = executing.future.as_mut();
            let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.poll(&mut cx)));
            let panicked = |panic| unreturned(Failure::of_panic(panic), self.mode);
            polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
        };
        if let (Poll::Ready(result), Some(asked)) = (polled, &self.asked) {
            let began_at = asked.began_at;
            self.executing = None;
            match result {
                Ok(value) => self.succeed(&value, began_at),
                Err(failure) => self.fail(failure, began_at),
            }
        }
    }

    /// Reports a success. The value that the workflow gets is read back from what is recorded, so
    /// that it is the same one that a replay gets.
    fn succeed(&mut self, value: &T, began_at: Timestamp) {
        match (recordable(value), &self.asked) {
            (Ok((value, json)), Some(asked)) => {
                self.kept = Some(Ok(value));
                self.report(asked.draft(Entry::Done(json), began_at), Then::Record);
            }
            (Err(failure), _) => {
                self.keep_what_took_effect();
                self.fail(failure, began_at);
            }
            (Ok(_), None) => {}
        }
    }

    /// Reports a failure: of this try, or of the step where there is no further one.
    fn fail(&mut self, failure: Failure, began_at: Timestamp) {
        let Some(asked) = &mut self.asked else { return };
        let now = self.board.store.clock().now();
        let default = || match self.mode {
            Mode::AtLeastOnce => Retry::default(),
            Mode::AtMostOnce => Retry::never(),
        };
        let tried = Tried {
            number: asked.try_number,
            elapsed: now.since(asked.first_began_at.unwrap_or(began_at)),
            chance: chance(),
        };
        let pause = self.retry.get_or_insert_with(default).next(tried, &failure);
        if let Some(pause) = pause {
            let next_at = now + pause;
            let draft = asked.draft(Entry::TryFailed { failure, next_at }, began_at);
            asked.try_number += 1;
            asked.begun = Begun::No;
            self.report(draft, Then::Pause(next_at));
        } else {
            let failure = failure.at_step(&asked.step);
            self.kept = Some(Err(failure.clone()));
            let draft = asked.draft(Entry::Failed(failure), began_at);
            self.report(draft, Then::Record);
        }
    }

    fn take(&mut self, record: Option<Record>) -> Poll<Result<T, Failure>> {
        let Some(asked) = self.asked.take() else { return Poll::Pending };
        let recorded_as = record.as_ref().map(|record| record.step.clone());
        match record.map(|record| record.entry) {
            None => {
                let failed = matches!(self.kept, Some(Err(_)));
                self.board.failed(failed.then_some(&asked.step));
                self.kept.take().map_or(Poll::Pending, Poll::Ready)
            }
            Some(Entry::Done(json)) => match json.read::<T>() {
                Ok(value) => {
                    self.board.failed(None);
                    Poll::Ready(Ok(value))
                }
                Err(error) => {
                    let error = error.detail();
                    let detail = format!("the recorded result of step {:?}, {error}", asked.step);
                    self.board.trouble(Code::TypeMismatch, detail);
                    Poll::Pending
                }
            },
            Some(Entry::Failed(failure)) => {
                let step = recorded_as.map_or(asked.step, Arc::from);
                self.board.failed(Some(&step));
                Poll::Ready(Err(failure.at_step(&step)))
            }
            Some(other) => {
                let found = other.kind();
                let detail = format!("step {:?} was recorded as {found}", asked.step);
                self.board.trouble(Code::HistoryMismatch, detail);
                Poll::Pending
            }
        }
    }

    fn refuse_full(&mut self) -> Failure {
        self.asked = None;
        Failure::engine(Code::HistoryFull, Code::HistoryFull.advice())
    }
}

impl Asked {
    fn new(leaf: LeafId, step: Arc<str>, known: PastStep) -> Self {
        Self {
            leaf,
            step,
            try_number: known.tries + 1,
            first_began_at: known.first_began_at,
            began_at: Timestamp::from_millis(0),
            next_at: known.next_at,
            begun: if known.open { Begun::Before } else { Begun::No },
        }
    }

    fn transaction(&self, body: TransactionBody) -> Transaction {
        let (leaf, step) = (self.leaf, Arc::clone(&self.step));
        let Asked { try_number, began_at, .. } = *self;
        Transaction { leaf, step, body, try_number, began_at }
    }

    fn draft(&self, entry: Entry, began_at: Timestamp) -> Draft {
        let step = Arc::clone(&self.step);
        Draft { leaf: self.leaf, step, entry, try_number: self.try_number, began_at }
    }
}

impl<T> Drop for StepFuture<'_, T> {
    fn drop(&mut self) {
        // The body goes first: its drop may still look at the run.
        self.executing = None;
        self.keyed = None;
        if let Some(asked) = &self.asked {
            self.board.forget(asked.leaf);
        }
    }
}

impl<T> fmt::Debug for StepFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepFuture").field("name", &self.name).finish()
    }
}
