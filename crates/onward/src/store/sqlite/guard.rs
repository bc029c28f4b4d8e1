//! What keeps a user's body inside its transaction and within its time.
//!
//! Owns: the hooks of the connection that writes. While a body executes, nothing is committed on
//! that connection, neither by a `commit` of its own nor by a statement after the transaction was
//! rolled back; and its statements are interrupted when its time is over. Never undoes anything
//! itself; who executes the body does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// Instructions of SQLite's machine between two looks at the time: some ten microseconds.
const LOOK_EVERY: i32 = 1_000;

/// What the hooks of one connection share with whoever executes a body on it.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// Whether a body executes.
    inside: AtomicBool,
    /// Whether the transaction was rolled back while it did.
    ended: AtomicBool,
    /// Until when it may.
    until: Mutex<Option<Instant>>,
}

/// How a body left its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Whether the transaction is over.
    pub(super) ended: bool,
    /// Whether the time was.
    pub(super) late: bool,
}

impl Guard {
    /// Hangs the hooks on a connection that this process opened. Only on one that it did not
    /// could that fail, and older versions of the binding do not say.
    pub(super) fn of(conn: &mut Connection) -> Arc<Self> {
        let guard = Arc::new(Self::default());
        let at_commit = Arc::clone(&guard);
        // A commit that is refused becomes a rollback.
        let _ = conn.commit_hook(Some(move || at_commit.is_inside()));
        let at_rollback = Arc::clone(&guard);
        let _ = conn.rollback_hook(Some(move || at_rollback.rolled_back()));
        let at_look = Arc::clone(&guard);
        let look = move || at_look.is_inside() && at_look.is_late();
        let _ = conn.progress_handler(LOOK_EVERY, Some(look));
        guard
    }

    /// Watches over a body until what is returned is asked how it left, or is dropped.
    pub(super) fn watch(&self, time_max: Duration) -> Watch<'_> {
        *self.until() = Instant::now().checked_add(time_max);
        self.ended.store(false, Ordering::SeqCst);
        self.inside.store(true, Ordering::SeqCst);
        Watch(self)
    }

    fn is_inside(&self) -> bool {
        self.inside.load(Ordering::SeqCst)
    }

    fn rolled_back(&self) {
        if self.is_inside() {
            self.ended.store(true, Ordering::SeqCst);
        }
    }

    fn is_late(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() > until)
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body is being watched over.
pub(super) struct Watch<'g>(&'g Guard);

impl Watch<'_> {
    /// Ends the watch.
    pub(super) fn left(self, conn: &Connection) -> Left {
        let ended = self.0.ended.load(Ordering::SeqCst) || conn.is_autocommit();
        Left { ended, late: self.0.is_late() }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::SeqCst);
    }
}
