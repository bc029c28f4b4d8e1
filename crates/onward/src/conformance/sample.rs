//! Samples: runs, records and ends with nothing special about them, for cases to vary.

use std::collections::BTreeMap;

use super::stage::{QUEUE, WORKFLOW};
use crate::store::{End, NewKey, NewRun, StartAt};
use crate::{
    Clock, Code, Entry, Failure, Json, OnConflict, Record, RunId, TestClock, Timestamp, Waits,
};

/// A run to start, with nothing special about it.
pub fn new_run() -> NewRun {
    NewRun {
        id: RunId::new(),
        workflow: WORKFLOW.to_owned(),
        queue: QUEUE.to_owned(),
        lane: None,
        priority: 0,
        input: json(0),
        key: None,
        start_at: StartAt::Now,
        timeout_ms: None,
        tags: BTreeMap::new(),
        caller: "stage".to_owned(),
        parent: None,
        claimant: None,
    }
}

/// A run to start with this key and input.
pub fn keyed(key: &str, input: i64, on_conflict: OnConflict) -> NewRun {
    let input = json(input);
    let fingerprint = input.fingerprint();
    let key = NewKey { key: key.to_owned(), fingerprint, ttl_ms: None, on_conflict, gather: None };
    NewRun { input, key: Some(key), ..new_run() }
}

/// A payload.
pub fn json(value: i64) -> Json {
    Json::of(&value).unwrap()
}

/// The record of a step that succeeded.
pub fn done(seq: u64, step: &str, value: i64) -> Record {
    entry(seq, step, Entry::Done(json(value)))
}

/// The record of a step that failed for good.
pub fn failed(seq: u64, step: &str) -> Record {
    entry(seq, step, Entry::Failed(Failure::fatal("declined").code("card_declined")))
}

/// The record of a try that failed, with this message.
pub fn tried(seq: u64, step: &str, message: &str) -> Record {
    let (failure, next_at) = (Failure::new(message), TestClock::new().now());
    entry(seq, step, Entry::TryFailed { failure, next_at })
}

/// A record of this entry, at the time at which every test clock begins.
pub fn entry(seq: u64, step: &str, entry: Entry) -> Record {
    Record::new(seq, step, entry, TestClock::new().now())
}

/// The end of a run that failed at this step.
pub fn failed_at(step: &str) -> End {
    End::Failed { failure: Failure::fatal("declined"), step: Some(step.to_owned()) }
}

/// The end of an attempt that waits for nothing but a wake-up.
pub fn parked(wakes_seen: u64) -> End {
    parked_until(None, wakes_seen)
}

/// The end of an attempt that waits for a time.
pub fn parked_until(wake_at: Option<Timestamp>, wakes_seen: u64) -> End {
    End::Parked { wake_at, waits_for: Waits::Timer { step: "$sleep".to_owned() }, wakes_seen }
}

/// The end of an attempt whose code no longer fits its history.
pub fn stuck(wakes_seen: u64) -> End {
    End::Stuck { code: Code::HistoryMismatch, detail: "unasked: pay".to_owned(), wakes_seen }
}
