//! Who woke whom: the wakers that a run's future and its step bodies are polled with.
//!
//! Owns: telling apart a wake by a step body, by the driver itself, and by something foreign to
//! the run. Never polls anything.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use super::board::LeafId;

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here::Outside) };
}

/// Which code this thread is executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Here {
    /// Nothing of a run.
    Outside,
    /// The workflow function of this run, or its driver.
    Function(u64),
    /// A step body of this run.
    Body(u64),
}

impl Here {
    pub(crate) fn now() -> Self {
        HERE.get()
    }

    /// Marks the thread until the guard is dropped.
    pub(crate) fn enter(here: Here) -> HereGuard {
        HereGuard { before: HERE.replace(here) }
    }
}

/// Puts back what the thread was executing before.
pub(crate) struct HereGuard {
    before: Here,
}

impl Drop for HereGuard {
    fn drop(&mut self) {
        HERE.set(self.before);
    }
}

/// What woke a run since its driver last looked.
pub(crate) struct Wakes {
    /// Names this execution of the run, so that a step polled in another one is noticed.
    pub(crate) token: u64,
    /// The driver's task.
    task: Mutex<Option<Waker>>,
    /// Whether the workflow function's future wants to be polled.
    function: AtomicBool,
    /// Whether something outside the run woke the function since the last record.
    foreign: AtomicBool,
    /// The leaves whose bodies want to be polled.
    bodies: Mutex<Vec<LeafId>>,
    /// Whether the worker has something to say.
    nudged: AtomicBool,
    /// How often the driver looked for something to do.
    looks: AtomicU64,
    /// Whether the worker doubts that the driver was told all that it has to do.
    doubted: AtomicBool,
}

impl Wakes {
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            token: NEXT.fetch_add(1, Ordering::Relaxed),
            task: Mutex::default(),
            function: AtomicBool::new(true),
            foreign: AtomicBool::new(false),
            bodies: Mutex::default(),
            nudged: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
        })
    }

    /// Keeps the driver's waker. Call before looking, so that no wake falls between.
    pub(crate) fn listen(&self, waker: &Waker) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    /// Whether anything woke the run.
    pub(crate) fn any(&self) -> bool {
        self.function.load(Ordering::Acquire)
            || self.nudged.swap(false, Ordering::AcqRel)
            || self.has_bodies()
    }

    pub(crate) fn take_function(&self) -> bool {
        self.function.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn want_function(&self) {
        self.function.store(true, Ordering::Release);
    }

    pub(crate) fn has_bodies(&self) -> bool {
        !self.bodies.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn take_bodies(&self) -> Vec<LeafId> {
        std::mem::take(&mut self.bodies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn take_foreign(&self) -> bool {
        self.foreign.swap(false, Ordering::AcqRel)
    }

    /// Wakes the driver so that it looks at what the worker told it.
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.wake_task();
    }

    /// How often the driver looked for something to do.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Wakes the driver so that it looks whether it missed a wake.
    pub(crate) fn doubt(&self) {
        self.doubted.store(true, Ordering::Release);
        self.nudge();
    }

    pub(crate) fn take_doubt(&self) -> bool {
        self.doubted.load(Ordering::Acquire) && self.doubted.swap(false, Ordering::AcqRel)
    }

    fn wake_task(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The waker that the workflow function's future is polled with.
pub(crate) struct FunctionWaker(pub(crate) Arc<Wakes>);

impl Wake for FunctionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.want_function();
        // Inside its own poll the function wakes itself; anything else is not of the run.
        if Here::now() != Here::Function(self.0.token) {
            self.0.foreign.store(true, Ordering::Release);
            self.0.wake_task();
        }
    }
}

/// The waker that one step's body is polled with.
pub(crate) struct BodyWaker {
    wakes: Arc<Wakes>,
    leaf: LeafId,
    woken: AtomicBool,
}

impl BodyWaker {
    /// A waker that counts as woken, so that the body is polled a first time.
    pub(crate) fn new(wakes: Arc<Wakes>, leaf: LeafId) -> Arc<Self> {
        Arc::new(Self { wakes, leaf, woken: AtomicBool::new(true) })
    }

    /// Whether the body wants to be polled; it no longer does afterwards.
    pub(crate) fn take(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for BodyWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            let mut bodies = self.wakes.bodies.lock().unwrap_or_else(PoisonError::into_inner);
            bodies.push(self.leaf);
            drop(bodies);
            self.wakes.wake_task();
        }
    }
}
