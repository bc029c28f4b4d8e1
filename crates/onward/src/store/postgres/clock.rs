//! The database's clock, as this process knows it.
//!
//! Owns: how far the machine's clock is from the database's, measured at each renewal. Never
//! judges a lease by it: whatever decides about a lease reads the database's own time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::store::BoxFuture;
use crate::{Clock, SystemClock, Timestamp};

/// The clock of one store.
#[derive(Debug)]
pub(super) enum StoreClock {
    /// The database's.
    Database(DatabaseClock),
    /// One that somebody gave, for tests: it is bound to every statement.
    Given(Arc<dyn Clock>),
}

/// The machine's clock, moved to the database's.
#[derive(Debug, Default)]
pub(super) struct DatabaseClock {
    ahead_ms: AtomicI64,
}

impl StoreClock {
    pub(super) fn new(given: Option<Arc<dyn Clock>>) -> Self {
        match given {
            Some(clock) => StoreClock::Given(clock),
            None => StoreClock::Database(DatabaseClock::default()),
        }
    }

    /// The time to bind; nothing when the database is asked for its own.
    pub(super) fn given(&self) -> Option<i64> {
        match self {
            StoreClock::Given(clock) => Some(clock.now().as_millis()),
            StoreClock::Database(_) => None,
        }
    }

    /// Takes note of what the database said its time was, asked `asked` and answered just now by
    /// the machine's clock.
    pub(super) fn heard(&self, said: Timestamp, asked: Timestamp) {
        if let StoreClock::Database(clock) = self {
            let answered = SystemClock.now();
            let middle = asked.as_millis() + (answered.as_millis() - asked.as_millis()) / 2;
            clock.ahead_ms.store(said.as_millis() - middle, Ordering::Relaxed);
        }
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        match self {
            StoreClock::Given(clock) => clock.now(),
            StoreClock::Database(clock) => {
                let ahead = clock.ahead_ms.load(Ordering::Relaxed);
                Timestamp::from_millis(SystemClock.now().as_millis().saturating_add(ahead))
            }
        }
    }

    fn sleep_until(&self, due: Timestamp) -> BoxFuture<'_, ()> {
        match self {
            StoreClock::Given(clock) => clock.sleep_until(due),
            StoreClock::Database(clock) => {
                let ahead = clock.ahead_ms.load(Ordering::Relaxed);
                let due = Timestamp::from_millis(due.as_millis().saturating_sub(ahead));
                let pause = due.since(SystemClock.now()).min(crate::clock::TIMER_MAX);
                Box::pin(tokio::time::sleep(pause))
            }
        }
    }
}
