//! A transaction's place in a run, as its driver gives it, and what a store answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use onward::store::{Place, Transacted};
use onward::{Entry, Failure, Json, Record, Timestamp};

/// A run's places, as its driver gives them.
pub(crate) struct Seat {
    seq: u64,
    step: String,
    wanted: AtomicBool,
    placed: AtomicU32,
}

impl Seat {
    pub(crate) fn new(seq: u64, step: &str) -> Arc<Self> {
        let (wanted, placed) = (AtomicBool::new(true), AtomicU32::new(0));
        Arc::new(Self { seq, step: step.to_owned(), wanted, placed })
    }

    /// Nobody waits for it any more.
    pub(crate) fn leave(&self) {
        self.wanted.store(false, Ordering::SeqCst);
    }

    /// How many bodies came to their end.
    pub(crate) fn placed(&self) -> u32 {
        self.placed.load(Ordering::SeqCst)
    }
}

impl Place for Seat {
    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    fn place(&self, result: Json) -> Option<Record> {
        self.placed.fetch_add(1, Ordering::SeqCst);
        let at = Timestamp::from_millis(1);
        self.is_wanted().then(|| Record::new(self.seq, &*self.step, Entry::Done(result), at))
    }
}

pub(crate) fn recorded(answer: Result<Transacted, onward::store::Error>) -> Record {
    match answer.unwrap() {
        Transacted::Recorded(record) => record,
        other => panic!("not recorded: {other:?}"),
    }
}

pub(crate) fn failed(answer: Result<Transacted, onward::store::Error>) -> Failure {
    match answer.unwrap() {
        Transacted::Failed(failure) => failure,
        other => panic!("not failed: {other:?}"),
    }
}
