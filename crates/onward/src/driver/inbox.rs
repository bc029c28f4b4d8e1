//! What comes in for a run while it is held: signals, and marks.
//!
//! Owns: hearing of them while a future waits for one. A hint makes it look at once, a timer now
//! and then, in case a hint was lost. Never delivers; the board does.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::control::Control;
use super::send::pauses;
use super::wake::Here;
use super::{Driver, Setting, Stop, finish, unreadable};
use crate::store::{self, BoxFuture, Claimed, End, Inbox, InboxRest, Signal, Store, Topic, Waiter};
use crate::{Code, RecordKind, RunId, Timestamp};

/// Adds the signals of a claimed run that did not fit into the claim. This must be done before the function begins:
/// without the end of a child, the function would start the child again. If the signals cannot be read, returns how
/// the attempt ends.
pub(super) async fn load_rest(
    setting: &Setting,
    claimed: &mut Claimed,
    control: &Control,
) -> Result<(), End> {
    let (run, wakes) = (claimed.run.id, claimed.run.wakes);
    let mut pauses = pauses();
    while claimed.signals_to < claimed.run.signals {
        let inbox = match setting.store.inbox(run, claimed.signals_to).await {
            Ok(inbox) => inbox,
            Err(store::Error::Unreadable(found)) => {
                return Err(unreadable::end(setting, claimed, found.to_string()));
            }
            Err(error) if control.asked().is_some() => {
                tracing::warn!(%run, %error, "cannot read the run's signals: it is given back");
                return Err(End::Released);
            }
            Err(error) => {
                tracing::warn!(%run, %error, "cannot read the run's signals; again soon");
                tokio::time::sleep(pauses.next().unwrap_or_default()).await;
                continue;
            }
        };
        let taken: HashSet<_> = (claimed.history.iter())
            .filter(|record| record.entry.kind() == RecordKind::Arrived)
            .map(|record| record.step.as_str())
            .collect();
        let is_untaken = |signal: &Signal| {
            !signal.is_carried() && !taken.contains(signal.recorded_as().as_str())
        };
        let last = inbox.signals.last().map(|signal| signal.no);
        claimed.signals.extend(inbox.signals.into_iter().filter(is_untaken));
        claimed.signals_to = match inbox.rest {
            InboxRest::Unreadable(why) => {
                let why = unreadable_signal(&why);
                return Err(finish::stuck(run, Code::CorruptRecord, why, wakes));
            }
            InboxRest::More => last.unwrap_or(claimed.run.signals),
            InboxRest::Nothing => last.unwrap_or_default().max(claimed.run.signals),
        };
        if let Some(detail) = unreadable::found(setting, claimed) {
            return Err(unreadable::end(setting, claimed, detail));
        }
    }
    Ok(())
}

fn unreadable_signal(why: &str) -> String {
    format!("a signal cannot be read: {why}")
}

/// A look at the inbox that is under way, and what leads to the next.
pub(super) struct Hearing {
    hint: Waiter,
    again: Pin<Box<tokio::time::Sleep>>,
    /// The number of the latest look.
    number: u64,
    look: Option<BoxFuture<'static, Result<Inbox, store::Error>>>,
}

impl Hearing {
    /// Registers interest, then looks: what comes in between is not missed.
    fn start(store: &Arc<dyn Store>, run: RunId, after: u64, number: u64) -> Self {
        let hint = store.wait(Topic::Run(run));
        let again = Box::pin(tokio::time::sleep(store.idle_look_every()));
        let store = Arc::clone(store);
        let look: BoxFuture<'static, _> = Box::pin(async move { store.inbox(run, after).await });
        Self { hint, again, number, look: Some(look) }
    }
}

impl Driver {
    /// Begins to hear of signals when a future waits for one, and stops when none does. Looks at once
    /// when the time of a wait is over.
    pub(super) fn watch_inbox(&mut self) {
        if !self.board.heeds_signals() && !self.board.awaits_look() {
            self.hearing = None;
        } else if self.hearing.is_none() || self.board.wants_look() {
            self.look_at_inbox();
        }
    }

    fn look_at_inbox(&mut self) {
        let (store, number) = (&self.setting.store, self.board.begin_look());
        self.hearing = Some(Hearing::start(store, self.lease.run, self.signals_seen, number));
    }

    /// Whether a look at the inbox is under way.
    pub(super) fn is_looking(&self) -> bool {
        self.hearing.as_ref().is_some_and(|hearing| hearing.look.is_some())
    }

    /// Looks whether something came in.
    pub(super) fn poll_inbox(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(hearing) = &mut self.hearing {
            if let Some(look) = &mut hearing.look {
                let Poll::Ready(inbox) = look.as_mut().poll(cx) else { return Poll::Pending };
                hearing.look = None;
                let number = hearing.number;
                self.heed_inbox(inbox, number);
                return Poll::Ready(());
            }
            let hinted = Pin::new(&mut hearing.hint).poll(cx).is_ready();
            if !hinted && hearing.again.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.look_at_inbox();
        }
        Poll::Pending
    }

    fn heed_inbox(&mut self, inbox: Result<Inbox, store::Error>, look: u64) {
        let inbox = match inbox {
            Ok(inbox) => inbox,
            Err(error) => {
                tracing::warn!(run = %self.lease.run, %error, "cannot look for signals; again soon");
                return;
            }
        };
        // Whoever has seen these wakes has seen the marks too, or a cancel could be slept over.
        if inbox.cancel_asked {
            self.control.stop(Stop::Cancel);
        }
        if inbox.paused {
            self.control.stop(Stop::Release);
        }
        if let Some(last) = inbox.signals.last() {
            self.signals_seen = last.no;
        }
        let _here = Here::enter(Here::Function(self.board.wakes.token));
        self.board.arrive(inbox.signals);
        if inbox.rest != InboxRest::More {
            self.wakes_seen = self.wakes_seen.max(inbox.wakes);
        }
        match inbox.rest {
            InboxRest::Nothing => self.board.looked(look),
            InboxRest::More => self.look_at_inbox(),
            // A wait must not time out either: the signal that cannot be read may have come in time.
            InboxRest::Unreadable(why) => self.bad_signal = Some(unreadable_signal(&why)),
        }
    }

    /// Until when a run that waits for a signal is kept in memory, in case it comes soon. With
    /// every place of the worker taken it is not: what it waits for may need its place.
    pub(super) fn linger_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        if !self.board.heeds_signals() || self.setting.tenure.crew.free() == 0 {
            return None;
        }
        let since = *self.resting_since.get_or_insert(now);
        Some(since + self.setting.linger).filter(|until| *until > now)
    }
}
