//! The driver: one task per active run, which polls the workflow function.
//!
//! Owns: the run's lease, the order of delivery, what is recorded and how the attempt ends.
//! Never executes two things of a run at once, and never lets a step begin before the results
//! that led to it are durable.
//!
//! Read on in `control` (what the worker says), `round` (polling and delivering, once around), `send`
//! (records on their way to the store), `transact` (transactions on their way), `child` (children on
//! their way), `keyed` (keys of steps), `inbox` (signals that come in), `note` (what the run notes on
//! itself), `undo` (turning back), `unreadable` (payloads that cannot be read), `watchdog` (wakes that
//! were missed) and `finish` (how an attempt ends).

pub(crate) mod board;
mod child;
mod control;
mod finish;
mod inbox;
mod keyed;
mod note;
pub(crate) mod past;
mod round;
mod send;
mod transact;
mod undo;
mod unreadable;
pub(crate) mod wake;
mod watchdog;

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use self::board::{Board, Chance, Child, Known, Notepad};
use self::child::Starting;
pub(crate) use self::control::{Control, Stop};
pub(crate) use self::finish::output;
use self::inbox::Hearing;
use self::keyed::KeyWork;
use self::note::Noting;
use self::past::Past;
use self::round::Round;
use self::send::InFlight;
pub(crate) use self::send::pauses;
use self::transact::Transactions;
use self::undo::Course;
use self::wake::{FunctionWaker, Here};
use crate::ctx::Ctx;
use crate::ending::Ending;
use crate::keyed::KeyPlace;
use crate::limits::ENDING_CRASHES_MAX;
use crate::store::{self, BoxFuture, Claimed, Lease, RecordRef, Settle, Store};
use crate::watch::{Engaged, Watch};
use crate::worker::tenure::Tenure;
use crate::{Code, Failure, Json, Record, Timestamp};

/// A workflow function, with its types erased.
pub(crate) type Handler = Arc<dyn Fn(Ctx, Json) -> Result<Function, crate::Error> + Send + Sync>;

/// The future of a workflow function.
pub(crate) type Function = Pin<Box<dyn Future<Output = Result<Json, Failure>> + Send>>;

/// What a driver needs besides its run.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keys: KeyPlace,
    pub(crate) tenure: Arc<Tenure>,
    pub(crate) build: Arc<str>,
    pub(crate) linger: Duration,
    pub(crate) cancel_grace: Duration,
    /// Whether the run may be what kills its workers; a record clears it.
    pub(crate) suspected: bool,
    /// Who of the client is awake, in a test.
    pub(crate) watch: Option<Arc<Watch>>,
}

/// How a driver went.
pub(crate) enum Drove {
    /// The attempt is settled; here is how the run ended, if it did.
    Settled(Option<Ending>),
    /// The run was dropped on the worker's word.
    Dropped,
    /// The store said that the lease is lost.
    LeaseLost,
}

/// Why polling stopped.
enum Verdict {
    Returned(Result<Json, Failure>),
    Parked(Option<Timestamp>, crate::Waits),
    Stuck(Code, String),
    Unreadable(String),
    Stopped(Stop),
    /// The function is replayed as far as its records lead, and its undos are there.
    Rebuilt,
    LeaseLost,
    /// The store has gone back to an earlier state: what it has is replayed.
    HistoryLost,
}

impl Verdict {
    /// What a write means for the attempt that the store refuses.
    fn of_refused(error: store::Error) -> Self {
        match error {
            store::Error::LeaseLost => Verdict::LeaseLost,
            store::Error::HistoryLost => Verdict::HistoryLost,
            store::Error::Unreadable(unreadable) => Verdict::Unreadable(unreadable.to_string()),
            error => {
                let detail = error.to_string();
                Verdict::Stuck(crate::Error::from(error).code(), detail)
            }
        }
    }
}

/// One execution of a run.
pub(crate) struct Driver {
    setting: Setting,
    lease: Lease,
    control: Arc<Control>,
    board: Arc<Board>,
    function: Option<Function>,
    waker: Waker,
    deadline_at: Option<Timestamp>,
    wakes_seen: u64,
    /// A result that the function has seen and that is not sent yet.
    eager: Option<Record>,
    in_flight: Option<InFlight>,
    transactions: Transactions,
    key_work: KeyWork,
    /// Children that are to be started, and those whose start is on its way.
    to_start: Vec<Child>,
    starting: Option<Starting>,
    /// The number of the last signal that is known of, and how the next is heard of.
    signals_seen: u64,
    hearing: Option<Hearing>,
    /// Why the next signal cannot be read.
    bad_signal: Option<String>,
    noting: Noting,
    /// Since when the run has only waited, and until when it is kept in memory all the same.
    resting_since: Option<Timestamp>,
    lingers_until: Option<Timestamp>,
    /// Steps recorded under other builds that the function did not ask for.
    unasked: Vec<String>,
    /// When to look again by the store's clock, and the timer for it.
    alarm: Option<(Timestamp, BoxFuture<'static, ()>)>,
    stopping: Option<Stopping>,
    /// Whether steps that want to begin are held back because the lease may not hold.
    held_back: bool,
    course: Course,
    /// Whether the log says what the run waits for, since its last record.
    explained: bool,
    /// Whether bodies execute or writes are on their way, for whoever watches.
    engaged: Engaged,
}

/// An execution that was told to stop.
struct Stopping {
    stop: Stop,
    grace: Option<Pin<Box<tokio::time::Sleep>>>,
}

/// Why a run that was asked to end is not undone: its workers die of it.
const KILLS: (Code, &str) = (Code::CrashLoop, "workers in a row died in this run without a record");

/// Why a run that was asked to end is not undone: its function cannot be called.
const MISFIT: (Code, &str) = (Code::TypeMismatch, "the run's input does not fit its type");

/// Executes a claimed run until it is settled, dropped or lost.
pub(crate) async fn drive(
    setting: Setting,
    mut claimed: Box<Claimed>,
    handler: Handler,
    control: Arc<Control>,
) -> Drove {
    let wakes_seen = claimed.run.wakes;
    let lease = claimed.lease;
    let settle = |end| Settle::new(Vec::new(), end);
    // One that did nothing has nothing to undo.
    if claimed.history.is_empty()
        && let Some(stop) = undo::marked(&setting, &claimed)
    {
        let end = finish::end_of_stop(stop);
        return finish::settle(&setting, lease, settle(end), wakes_seen).await;
    }
    if let Some(detail) = unreadable::found(&setting, &claimed) {
        let end = unreadable::end(&setting, &claimed, detail);
        return finish::settle(&setting, lease, settle(end), wakes_seen).await;
    }
    if undo::is_unreadable(&claimed.history) {
        let detail = "what is recorded of its turning back cannot be read by this build".to_owned();
        let end = finish::stuck(lease.run, Code::TypeMismatch, detail, wakes_seen);
        return finish::settle(&setting, lease, settle(end), wakes_seen).await;
    }
    let course = Course::of(&setting, &claimed);
    if claimed.run.crashes >= ENDING_CRASHES_MAX
        && let Some(end) = course.end_unexecuted(&claimed.history, KILLS)
    {
        return finish::settle(&setting, lease, settle(end), wakes_seen).await;
    }
    if let Err(end) = inbox::load_rest(&setting, &mut claimed, &control).await {
        return finish::settle(&setting, lease, settle(end), wakes_seen).await;
    }
    let unread = course.end_unexecuted(&claimed.history, MISFIT);
    match Driver::new(setting.clone(), *claimed, &handler, control, course) {
        Ok(driver) => driver.go().await,
        Err(error) => {
            let (code, detail) = (error.code(), format!("its input, {}", error.detail()));
            let end = unread.unwrap_or_else(|| finish::stuck(lease.run, code, detail, wakes_seen));
            finish::settle(&setting, lease, settle(end), wakes_seen).await
        }
    }
}

impl Driver {
    fn new(
        setting: Setting,
        mut claimed: Claimed,
        handler: &Handler,
        control: Arc<Control>,
        mut course: Course,
    ) -> Result<Box<Self>, crate::Error> {
        let run = claimed.run;
        let began_at = run.notes.origin.as_ref().map(|origin| origin.began_at).or(run.started_at);
        let now = began_at.unwrap_or_else(|| setting.store.clock().now());
        let last_at = claimed.history.last().map_or(now, |record| record.at.max(now));
        let latest = claimed.history.last().map(RecordRef::of);
        let used = (claimed.history.len(), claimed.history.iter().map(Record::bytes).sum());
        let mut builds = claimed.builds;
        builds.entry(claimed.lease.attempt).or_insert_with(|| setting.build.to_string());
        course.split(&mut claimed.history);
        let undoable = course.undoable(&claimed.history);
        let past = Past::new(claimed.history, builds, claimed.voided_seq);
        let (last, signals) = ((claimed.last_seq, last_at), claimed.signals);
        let (notepad, chance) = (Notepad::of(&run), Chance::of(&run));
        let scheduled_at = crate::model::schedule::time_of(&run);
        let workflow = run.workflow;
        let known =
            Known { workflow, past, used, now, last, latest, signals, notepad, chance, undoable };
        let board = Board::new(claimed.lease, Arc::clone(&setting.store), known);
        let ctx = Ctx::new(Arc::clone(&board), scheduled_at);
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| handler(ctx, run.input)));
        #[cfg(feature = "testing")]
        crate::testing::observer::executes(board.wakes.token, board.run);
        let function = match made {
            Ok(function) => function?,
            Err(panic) => Box::pin(std::future::ready(Err(Failure::of_panic(panic)))),
        };
        control.drive(&board.wakes);
        // Boxed, for the futures that it goes through would each have room for it.
        Ok(Box::new(Self {
            lease: claimed.lease,
            waker: Waker::from(Arc::new(FunctionWaker(Arc::clone(&board.wakes)))),
            function: Some(Box::pin(tokio::task::coop::unconstrained(function))),
            deadline_at: run.deadline_at.filter(|_| course.is_forward()),
            wakes_seen: run.wakes,
            eager: None,
            in_flight: None,
            transactions: Transactions::new(),
            key_work: KeyWork::new(),
            to_start: Vec::new(),
            starting: None,
            signals_seen: claimed.signals_to,
            bad_signal: None,
            hearing: None,
            noting: Noting::default(),
            resting_since: None,
            lingers_until: None,
            unasked: Vec::new(),
            alarm: None,
            stopping: None,
            held_back: false,
            explained: false,
            course,
            engaged: Engaged::new(setting.watch.clone()),
            setting,
            control,
            board,
        }))
    }

    /// Polls and delivers until the attempt has an end.
    async fn advance(&mut self) -> Verdict {
        loop {
            self.heed_worker();
            let round = self.round();
            match round {
                Round::Rest | Round::Yield => {}
                Round::Over(verdict) => return verdict,
            }
            self.send();
            self.transact();
            self.work_on_keys();
            self.start_children();
            self.watch_inbox();
            self.watch_notes();
            if let Some(verdict) = self.is_over(&round) {
                return verdict;
            }
            self.set_alarm();
            if matches!(round, Round::Yield) {
                tokio::task::yield_now().await;
            }
            if let Err(verdict) = self.wait().await {
                return verdict;
            }
        }
    }

    /// Takes notice that something of the run is recorded, and tells the crew if it was suspected to
    /// kill its workers.
    fn made_progress(&mut self) {
        self.explained = false;
        if self.setting.suspected {
            self.setting.suspected = false;
            self.setting.tenure.crew.clear(self.lease);
        }
    }

    /// Takes notice of what the worker said.
    fn heed_worker(&mut self) {
        let now = self.setting.store.clock().now();
        if self.deadline_at.is_some_and(|deadline| deadline <= now) {
            self.deadline_at = None;
            self.control.stop(Stop::Deadline);
        }
        let Some(stop) = self.asked_to_stop() else { return };
        if self.stopping.as_ref().is_some_and(|stopping| stopping.stop >= stop) {
            return;
        }
        let grace = match stop {
            Stop::Cancel | Stop::Deadline => {
                self.board.cancel();
                Some(Box::pin(tokio::time::sleep(self.setting.cancel_grace)))
            }
            Stop::Release | Stop::Drop => None,
        };
        self.stopping = Some(Stopping { stop, grace });
        self.board.set_stopping(Some(stop));
    }

    /// Whether nothing is left to do in this attempt: it was told to stop and no body is
    /// executing, or all it waits for are times that lie ahead.
    fn is_over(&mut self, round: &Round) -> Option<Verdict> {
        self.lingers_until = None;
        let working = !self.transactions.is_empty() || !self.key_work.is_empty();
        if self.in_flight.is_some() || working {
            return None;
        }
        if let Some(stopping) = &self.stopping {
            let over = match stopping.stop {
                Stop::Release => !self.board.delays_release(),
                Stop::Deadline | Stop::Cancel | Stop::Drop => !self.board.delays_end(),
            };
            return over.then_some(Verdict::Stopped(stopping.stop));
        }
        if matches!(self.course, Course::Back(_)) {
            return None;
        }
        if self.bad_signal.is_some() && !self.board.delays_release() {
            return self.bad_signal.take().map(|why| Verdict::Stuck(Code::CorruptRecord, why));
        }
        if matches!(round, Round::Yield) || self.board.is_awake() || self.is_looking() {
            self.resting_since = None;
            return None;
        }
        let waits = self.board.waits_for()?;
        let due = self.board.next_alarm().map(|(due, _)| due);
        let now = self.setting.store.clock().now();
        let soon = due.is_some_and(|due| due.since(now) <= self.setting.linger);
        self.lingers_until = if soon { None } else { self.linger_until(now) };
        let stays = soon || self.lingers_until.is_some();
        (!stays).then_some(Verdict::Parked(due, waits))
    }

    /// Sets the timer to the next time that matters.
    fn set_alarm(&mut self) {
        let next = self.board.next_alarm().map(|(due, _)| due);
        let again = || self.setting.store.clock().now() + Duration::from_millis(20);
        let retry = self.held_back.then(again);
        let due = [next, self.deadline_at, retry, self.lingers_until].into_iter().flatten().min();
        // A run that is stopping waits for its bodies and its grace time, not for the clock. One that
        // is paused may wait for them for long, and its deadline holds all the same.
        let due = match self.stopping.as_ref().map(|stopping| stopping.stop) {
            None => due,
            Some(Stop::Release) => self.deadline_at,
            Some(_) => None,
        };
        if self.alarm.as_ref().map(|(at, _)| *at) == due {
            return;
        }
        self.alarm = due.map(|due| {
            let store = Arc::clone(&self.setting.store);
            let timer: BoxFuture<'static, ()> =
                Box::pin(async move { store.clock().sleep_until(due).await });
            (due, timer)
        });
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) -> Result<(), Verdict> {
        std::future::poll_fn(|cx| self.poll_wait(cx)).await
    }

    fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Verdict>> {
        self.board.wakes.listen(cx.waker());
        if self.board.wakes.take_doubt() {
            self.look_again();
        }
        // Ends and answers come before wakes, so that user code which never rests cannot keep
        // them off.
        if self.control.asked() == Some(Stop::Drop) {
            return Poll::Ready(Err(Verdict::Stopped(Stop::Drop)));
        }
        if let Poll::Ready(answer) = self.poll_answer(cx) {
            return Poll::Ready(answer);
        }
        if let Poll::Ready(answer) = self.poll_transactions(cx) {
            return Poll::Ready(answer);
        }
        if let Poll::Ready(answer) = self.poll_keys(cx) {
            return Poll::Ready(answer);
        }
        if let Poll::Ready(answer) = self.poll_starting(cx) {
            return Poll::Ready(answer);
        }
        if self.poll_inbox(cx).is_ready() || self.poll_notes(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if let Some(Stopping { stop, grace: Some(grace) }) = &mut self.stopping
            && grace.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(Verdict::Stopped(*stop)));
        }
        if let Poll::Ready(verdict) = self.poll_patience(cx) {
            return Poll::Ready(Err(verdict));
        }
        if let Some((_, timer)) = &mut self.alarm
            && timer.as_mut().poll(cx).is_ready()
        {
            self.alarm = None;
            let _here = Here::enter(Here::Function(self.board.wakes.token));
            self.board.ring(self.setting.store.clock().now());
            return Poll::Ready(Ok(()));
        }
        if self.board.wakes.any() {
            return Poll::Ready(Ok(()));
        }
        if self.engaged.is_watched() {
            let writes = self.in_flight.is_some() || !self.transactions.is_empty();
            self.engaged.set(writes || self.board.is_busy());
        }
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Bodies and the function go before the run is called ended, so that they may look at it.
        drop_user_code(&mut self.function);
        let board = &self.board;
        if std::panic::catch_unwind(AssertUnwindSafe(|| board.drop_undos())).is_err() {
            tracing::error!("a destructor of an undo panicked");
        }
        self.board.end();
    }
}

/// Drops user code. A panic in a destructor must not take the worker's task with it.
fn drop_user_code(function: &mut Option<Function>) {
    let function = function.take();
    if std::panic::catch_unwind(AssertUnwindSafe(|| drop(function))).is_err() {
        tracing::error!("a destructor of a workflow function panicked");
    }
}
