//! The watchdog: a driver that waits for nothing that could wake it.
//!
//! Owns: what is said of such a driver, and that it looks again. Who counts how long it has been still is
//! the worker. Never fires while a body executes, a write is on its way or a timer is set.

use super::{Driver, Stopping};

impl Driver {
    /// Has the run look again if nothing of its own will wake it, and says once what it waits for.
    pub(super) fn look_again(&mut self) {
        if !self.is_still() {
            return;
        }
        self.board.wakes.want_function();
        if std::mem::replace(&mut self.explained, true) {
            return;
        }
        let (asked, waits_for) = (self.board.asked_steps(), self.board.waits_for());
        tracing::error!(
            run = %self.lease.run,
            ?asked,
            ?waits_for,
            stopping = ?self.stopping.as_ref().map(|stopping| stopping.stop),
            "nothing of the run executes, no timer is set and nothing woke it for two leases; it waits \
             for something that does not come from its ctx, or a wake was missed: looking again",
        );
    }

    /// Whether nothing is on its way that ends by itself.
    fn is_still(&self) -> bool {
        let is_writing = self.in_flight.is_some() || self.eager.is_some();
        let is_asking = self.starting.is_some() || self.hearing.is_some() || self.is_noting();
        let works = !self.transactions.is_empty() || !self.key_work.is_empty();
        let in_grace = matches!(self.stopping, Some(Stopping { grace: Some(_), .. }));
        let is_timed = self.alarm.is_some() || in_grace || self.is_patient();
        !(is_writing || is_asking || works || is_timed) && self.board.active() == 0
    }
}
