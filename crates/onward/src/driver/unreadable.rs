//! Payloads that cannot be read here.
//!
//! Owns: that a run whose payloads are encoded, and whose key or codec this worker lacks, waits and is
//! looked at again. Never fails such a run and never executes any of it: it goes on as soon as a
//! worker can read it. That is so for one that was cancelled, too, if it has done something: there may
//! be something to undo.

use std::time::Duration;

use super::Setting;
use crate::codec::describe;
use crate::limits::{UNREADABLE_LOOK_MAX, UNREADABLE_LOOK_MIN};
use crate::store::{Claimed, End};
use crate::{Entry, Json, Record, RunId, Timestamp, Waits};

/// What of a claimed run cannot be read, if anything.
pub(super) fn found(setting: &Setting, claimed: &Claimed) -> Option<String> {
    if let Some(unreadable) = &claimed.unreadable {
        return Some(unreadable.to_string());
    }
    // Without a codec nobody has looked; what is encoded must not be taken for a value.
    if setting.store.coded().is_some() {
        return None;
    }
    let payloads = claimed.history.iter().filter_map(payload).chain([&claimed.run.input]);
    let mut payloads = payloads.chain(claimed.signals.iter().map(|signal| &signal.body));
    payloads.find_map(describe).map(|how| format!("a payload is {how}, and no codec is set up"))
}

fn payload(record: &Record) -> Option<&Json> {
    match &record.entry {
        Entry::Done(json) | Entry::Arrived(json) => Some(json),
        Entry::Failed(failure) | Entry::TryFailed { failure, .. } => failure.details.as_ref(),
        Entry::Began | Entry::Fired => None,
    }
}

/// How the attempt at a run ends that cannot be read: the longer nobody could, the later the next.
pub(super) fn end(setting: &Setting, claimed: &Claimed, detail: String) -> End {
    let progress = claimed.history.last().map_or(0, |record| record.attempt);
    let doublings = claimed.run.attempt.saturating_sub(progress + 1).min(16);
    let pause = (UNREADABLE_LOOK_MIN * (1 << doublings)).min(UNREADABLE_LOOK_MAX);
    let wait = Wait { run: claimed.run.id, deadline_at: claimed.run.deadline_at, pause };
    wait.end(setting, detail, claimed.run.wakes)
}

/// How an attempt waits for a worker that can read.
pub(super) struct Wait {
    pub(super) run: RunId,
    pub(super) deadline_at: Option<Timestamp>,
    pub(super) pause: Duration,
}

impl Wait {
    pub(super) fn end(self, setting: &Setting, detail: String, wakes_seen: u64) -> End {
        let Self { run, deadline_at, pause } = self;
        tracing::error!(%run, %detail, "the run waits: a payload cannot be read here");
        let now = setting.store.clock().now();
        // One whose time is over waits too: only who can read it can undo what it did.
        let deadline_at = deadline_at.filter(|deadline_at| *deadline_at > now);
        let wake_at = [Some(now + pause), deadline_at].into_iter().flatten().min();
        End::Parked { wake_at, waits_for: Waits::Readable { detail }, wakes_seen }
    }
}
