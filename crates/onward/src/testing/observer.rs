//! What the engine tells a trace that is kept on its thread.
//!
//! Owns: the trace of the play that this thread gives, and which body the thread is polling. Never
//! does anything on a thread without a trace.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::trace::Trace;
use crate::RunId;
use crate::driver::board::LeafId;

/// A body, by the token of its run's execution and its leaf.
pub(crate) type BodyId = (u64, LeafId);

thread_local! {
    static TRACE: RefCell<Option<Arc<Trace>>> = const { RefCell::new(None) };
    static BODY: Cell<Option<BodyId>> = const { Cell::new(None) };
}

/// Tells this thread's trace everything, until the guard is dropped.
pub(super) fn install(trace: Arc<Trace>) -> Installed {
    TRACE.set(Some(trace));
    Installed
}

/// Takes the trace off the thread when it is dropped.
pub(super) struct Installed;

impl Drop for Installed {
    fn drop(&mut self) {
        TRACE.set(None);
    }
}

/// Whether this thread gives a play.
pub(crate) fn is_installed() -> bool {
    TRACE.with_borrow(Option::is_some)
}

/// A function begins to execute, or to replay.
pub(crate) fn executes(token: u64, run: RunId) {
    TRACE.with_borrow(|trace| {
        if let Some(trace) = trace {
            trace.executes(token, run);
        }
    });
}

/// A body begins; it is the one that this thread polls until the guard is dropped.
pub(crate) fn begin(token: u64, leaf: LeafId, step: &str) -> Polling {
    TRACE.with_borrow(|trace| {
        if let Some(trace) = trace {
            trace.begins((token, leaf), step);
        }
    });
    enter(token, leaf)
}

/// A body is polled, until the guard is dropped.
pub(crate) fn enter(token: u64, leaf: LeafId) -> Polling {
    Polling { before: BODY.replace(Some((token, leaf))) }
}

/// Puts back what the thread was polling before.
pub(crate) struct Polling {
    before: Option<BodyId>,
}

impl Drop for Polling {
    fn drop(&mut self) {
        BODY.set(self.before);
    }
}

/// The body that this thread is polling.
pub(super) fn body() -> Option<BodyId> {
    BODY.get()
}
