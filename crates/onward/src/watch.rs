//! A watch over the tasks of one client: whether any of them has something to do.
//!
//! Owns: the count of those that are awake, from the moment they are woken until they rest again,
//! and of those who wait for a run. Never counts anything outside tests: a client has no watch
//! unless `onward::testing` gives it one.
#![cfg_attr(not(feature = "testing"), allow(dead_code, reason = "nobody makes a watch"))]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::store::BoxFuture;

/// Who is awake.
#[derive(Default)]
pub(crate) struct Watch {
    counts: Mutex<Counts>,
    /// Notified when nobody is awake any more.
    rested: Notify,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    /// Tasks that have something to do, and drivers whose bodies execute.
    awake: usize,
    /// Resting waits for the end of a run.
    waiting: usize,
}

/// What a watched future is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A part of the engine.
    Part,
    /// A wait for the end of a run.
    Wait,
}

impl Watch {
    /// Whether nobody is awake.
    pub(crate) fn is_quiet(&self) -> bool {
        self.lock().awake == 0
    }

    /// Whether somebody waits for a run to end.
    pub(crate) fn is_awaited(&self) -> bool {
        self.lock().waiting > 0
    }

    /// Resolves when, after this call, the last one who was awake came to rest.
    pub(crate) fn rested(&self) -> tokio::sync::futures::Notified<'_> {
        self.rested.notified()
    }

    /// A wait for the end of a run, watched.
    pub(crate) fn wait<F: Future>(self: &Arc<Self>, wait: F) -> Watched<F> {
        Watched::new(self, Role::Wait, wait)
    }

    fn wake(&self, role: Role, rested: bool) {
        let mut counts = self.lock();
        counts.awake += 1;
        if rested && role == Role::Wait {
            counts.waiting -= 1;
        }
    }

    fn rest(&self, role: Role) {
        let mut counts = self.lock();
        counts.awake -= 1;
        if role == Role::Wait {
            counts.waiting += 1;
        }
    }

    fn leave(&self) {
        self.lock().awake -= 1;
        self.tell_rested();
    }

    fn leave_resting(&self, role: Role) {
        if role == Role::Wait {
            self.lock().waiting -= 1;
        }
    }

    /// Tells those who wait for it if nobody is awake.
    pub(crate) fn tell_rested(&self) {
        if self.is_quiet() {
            self.rested.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Spawns a part of the engine, watched if there is a watch.
pub(crate) fn spawn_watched<F>(
    runtime: &Handle,
    watch: Option<&Arc<Watch>>,
    part: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Boxed, so that the task is compiled once per output type.
    let part: BoxFuture<'static, F::Output> = Box::pin(part);
    match watch {
        None => runtime.spawn(part),
        Some(watch) => runtime.spawn(Watched::new(watch, Role::Part, part)),
    }
}

/// Whether a driver has bodies that execute: it is awake then, though its task may rest.
#[derive(Default)]
pub(crate) struct Engaged {
    watch: Option<Arc<Watch>>,
    is_engaged: bool,
}

impl Engaged {
    pub(crate) fn new(watch: Option<Arc<Watch>>) -> Self {
        Self { watch, is_engaged: false }
    }

    /// Whether anybody wants to know.
    pub(crate) fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Says whether bodies execute.
    pub(crate) fn set(&mut self, is_engaged: bool) {
        let Some(watch) = &self.watch else { return };
        match (self.is_engaged, is_engaged) {
            (false, true) => watch.wake(Role::Part, false),
            (true, false) => watch.leave(),
            _ => {}
        }
        self.is_engaged = is_engaged;
    }
}

impl Drop for Engaged {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A future that counts as awake from its making, and from each wake, until a poll leaves it
/// pending with nothing that woke it meanwhile.
pub(crate) struct Watched<F> {
    future: Pin<Box<F>>,
    pulse: Arc<Pulse>,
    waker: Waker,
}

impl<F: Future> Watched<F> {
    fn new(watch: &Arc<Watch>, role: Role, future: F) -> Self {
        watch.wake(role, false);
        let state = Mutex::new(State { phase: Phase::Awake, task: None });
        let pulse = Arc::new(Pulse { watch: Arc::clone(watch), role, state });
        let waker = Waker::from(Arc::clone(&pulse));
        Self { future: Box::pin(future), pulse, waker }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.pulse.begin(cx.waker());
        let this = &mut *self;
        let polled = this.future.as_mut().poll(&mut Context::from_waker(&this.waker));
        match polled {
            Poll::Ready(_) => this.pulse.leave(),
            Poll::Pending => this.pulse.rest(),
        }
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        self.pulse.leave();
    }
}

/// The waker of a watched future.
struct Pulse {
    watch: Arc<Watch>,
    role: Role,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// The task that polls it.
    task: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is polled, or will be.
    Awake,
    /// It was woken since its poll began.
    Woken,
    Resting,
    Over,
}

impl Pulse {
    fn begin(&self, task: &Waker) {
        let mut state = self.lock();
        if state.phase == Phase::Resting {
            self.watch.wake(self.role, true);
        }
        state.phase = Phase::Awake;
        if state.task.as_ref().is_none_or(|known| !known.will_wake(task)) {
            state.task = Some(task.clone());
        }
    }

    fn rest(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Awake {
            state.phase = Phase::Resting;
            self.watch.rest(self.role);
            // Whoever is told of it may wake this one.
            drop(state);
            self.watch.tell_rested();
        }
    }

    fn leave(&self) {
        let phase = std::mem::replace(&mut self.lock().phase, Phase::Over);
        match phase {
            Phase::Awake | Phase::Woken => self.watch.leave(),
            Phase::Resting => self.watch.leave_resting(self.role),
            Phase::Over => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.lock();
        match state.phase {
            Phase::Resting => self.watch.wake(self.role, true),
            Phase::Awake => {}
            Phase::Woken | Phase::Over => return,
        }
        state.phase = Phase::Woken;
        let task = state.task.clone();
        drop(state);
        task.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::oneshot;
    use futures::{poll, task::noop_waker};

    use super::*;

    fn watch() -> Arc<Watch> {
        Arc::default()
    }

    #[tokio::test]
    async fn a_part_is_awake_from_its_making_until_it_rests() {
        let watch = watch();
        let (send, receive) = oneshot::channel::<()>();
        let mut part = Box::pin(Watched::new(&watch, Role::Part, receive));
        assert!(!watch.is_quiet(), "it is to be polled");
        assert!(poll!(&mut part).is_pending());
        assert!(watch.is_quiet() && !watch.is_awaited());
        send.send(()).unwrap();
        assert!(!watch.is_quiet(), "it was woken and not polled yet");
        assert!(poll!(&mut part).is_ready());
        assert!(watch.is_quiet());
        drop(part);
        assert!(watch.is_quiet());
    }

    #[tokio::test]
    async fn a_part_that_wakes_itself_does_not_rest() {
        let watch = watch();
        let mut yields = Box::pin(Watched::new(&watch, Role::Part, async {
            let mut yielded = false;
            std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }));
        assert!(poll!(&mut yields).is_pending());
        assert!(!watch.is_quiet());
        assert!(poll!(&mut yields).is_ready());
        assert!(watch.is_quiet());
    }

    #[tokio::test]
    async fn a_wait_counts_only_while_it_rests() {
        let watch = watch();
        let (send, receive) = oneshot::channel::<()>();
        let mut wait = Box::pin(watch.wait(receive));
        assert!(!watch.is_awaited());
        assert!(poll!(&mut wait).is_pending());
        assert!(watch.is_awaited() && watch.is_quiet());
        send.send(()).unwrap();
        assert!(!watch.is_awaited(), "what it waited for is there");
        drop(wait);
        assert!(watch.is_quiet() && !watch.is_awaited());
    }

    #[tokio::test]
    async fn whatever_is_dropped_leaves_nothing_behind() {
        let watch = watch();
        drop(Watched::new(&watch, Role::Part, std::future::pending::<()>()));
        let mut wait = Box::pin(watch.wait(std::future::pending::<()>()));
        assert!(poll!(&mut wait).is_pending());
        drop(wait);
        let mut engaged = Engaged::new(Some(Arc::clone(&watch)));
        engaged.set(true);
        engaged.set(true);
        assert!(!watch.is_quiet());
        drop(engaged);
        assert!(watch.is_quiet() && !watch.is_awaited());
    }

    #[tokio::test]
    async fn a_wake_from_another_thread_is_counted_at_once() {
        let watch = watch();
        for _ in 0..1_000 {
            let (send, receive) = oneshot::channel::<()>();
            let mut part = Box::pin(watch.wait(receive));
            let waker = noop_waker();
            let sending = std::thread::spawn(move || send.send(()).unwrap());
            let first = part.as_mut().poll(&mut Context::from_waker(&waker));
            sending.join().unwrap();
            assert!(first.is_ready() || !watch.is_quiet(), "it was woken");
            drop(part);
            assert!(watch.is_quiet() && !watch.is_awaited());
        }
    }
}
