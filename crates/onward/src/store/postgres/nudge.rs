//! Waking a task, but not for what is looked at anyway.
//!
//! Whoever holds a nudge looks at what may have woken it. A task that were woken for that, most often by
//! itself, would be polled for nothing, and a thread of its runtime be woken beside it, which takes
//! longer than all the rest.
//!
//! Owns: what has woken it since the last look. Never forgets what came during or after that look.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// Wakes a task, or, while it is held, whoever holds it when that ends.
pub(super) struct Nudge {
    task: Waker,
    is_held: AtomicBool,
    is_woken: AtomicBool,
}

impl Nudge {
    pub(super) fn of(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, is_held: AtomicBool::new(false), is_woken: AtomicBool::new(false) })
    }

    /// Wakes the task in any case.
    pub(super) fn wake_task(&self) {
        self.task.wake_by_ref();
    }

    /// Keeps the task asleep until this is dropped. One at a time may hold it.
    pub(super) fn hold(self: &Arc<Self>) -> Held {
        self.is_held.store(true, Ordering::SeqCst);
        Held(Arc::clone(self))
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_held.load(Ordering::SeqCst) {
            self.task.wake_by_ref();
        }
    }
}

/// A nudge whose task sleeps on.
pub(super) struct Held(Arc<Nudge>);

impl Held {
    /// Looks at what may have woken it, and lets that wake it again.
    pub(super) fn look(&self, look: impl FnOnce(&mut Context<'_>)) {
        self.0.is_woken.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.0));
        look(&mut Context::from_waker(&waker));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::SeqCst);
        // A look that panicked may have seen nothing.
        if self.0.is_woken.swap(false, Ordering::SeqCst) || std::thread::panicking() {
            self.0.wake_task();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Task {
        fn woken(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn nudge() -> (Arc<Nudge>, Arc<Task>) {
        let task = Arc::new(Task::default());
        (Nudge::of(Waker::from(Arc::clone(&task))), task)
    }

    #[test]
    fn what_is_looked_at_anyway_wakes_nobody() {
        let (nudge, task) = nudge();
        let held = nudge.hold();
        nudge.wake_by_ref();
        held.look(|_| {});
        drop(held);
        assert_eq!(task.woken(), 0);
    }

    /// An answer may arrive as soon as it was asked for, before whoever asked lets go.
    #[test]
    fn what_comes_after_the_look_wakes_the_task() {
        let (nudge, task) = nudge();
        let held = nudge.hold();
        let mut later = None;
        held.look(|cx| later = Some(cx.waker().clone()));
        later.unwrap().wake();
        assert_eq!(task.woken(), 0);
        drop(held);
        assert_eq!(task.woken(), 1);
    }

    #[test]
    fn what_comes_during_the_look_wakes_the_task() {
        let (nudge, task) = nudge();
        nudge.hold().look(|cx| cx.waker().wake_by_ref());
        assert_eq!(task.woken(), 1);
    }

    #[test]
    fn a_nudge_that_nobody_holds_wakes_the_task_at_once() {
        let (nudge, task) = nudge();
        drop(nudge.hold());
        nudge.wake_by_ref();
        assert_eq!(task.woken(), 1);
    }

    #[test]
    fn a_look_that_panics_wakes_the_task() {
        let (nudge, task) = nudge();
        let looked = catch_unwind(AssertUnwindSafe(|| nudge.hold().look(|_| panic!("a look"))));
        assert!(looked.is_err());
        assert_eq!(task.woken(), 1);
    }
}
