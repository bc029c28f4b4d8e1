//! A run's history, by step: what replay finds.
//!
//! Owns: the records that no future has asked for yet. Never delivers; the board does.

use std::collections::{BTreeMap, HashMap};

use crate::limits::MISMATCH_LISTED_MAX;
use crate::model::step_id;
use crate::{Entry, Record, Timestamp};

/// What is recorded of one step.
#[derive(Debug, Default)]
pub(crate) struct PastStep {
    /// The record that ends the step.
    pub(crate) last: Option<Record>,
    /// Tries that failed.
    pub(crate) tries: u32,
    /// When the first try began.
    pub(crate) first_began_at: Option<Timestamp>,
    /// When the next try is due.
    pub(crate) next_at: Option<Timestamp>,
    /// Whether an at-most-once try began and nothing is known of its end.
    pub(crate) open: bool,
    /// The name that it was recorded under last, if that has a key.
    keyed_as: Option<String>,
    /// Whether this build recorded it, and nothing since lets the function go another way.
    pub(crate) same_way: bool,
    /// The attempt that made the latest record, and its place.
    attempt: u32,
    seq: u64,
    foreign: bool,
}

impl PastStep {
    /// The name that the step was recorded under, if it was, where `step` is how it is asked for.
    pub(crate) fn recorded_as<'a>(&'a self, step: &'a str) -> Option<&'a str> {
        let name = self.keyed_as.as_deref().unwrap_or_else(|| step_id::base(step));
        (self.attempt > 0).then_some(name)
    }
}

/// The records that nobody has asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Past {
    steps: HashMap<String, PastStep>,
    /// The builds of earlier attempts.
    builds: BTreeMap<u32, String>,
    /// The place of the first failure that a retry voided: what comes after it may have been the
    /// function's answer to that failure, and need not be asked for again.
    voided_seq: Option<u64>,
    /// Signals, which belong to no step.
    arrived: Vec<Record>,
    /// Whether it is recorded that there is something to execute on a cancel.
    on_cancel: bool,
}

/// Records that nobody asked for, found when an unrecorded step wants to begin.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftover {
    /// Steps recorded under this build: the function went another way than it did before.
    pub(crate) same_build: Vec<String>,
    /// Steps recorded under other builds: changed code may go another way.
    pub(crate) other_builds: Vec<String>,
    /// Steps recorded under this build after a failure that a retry voided: it is to be expected
    /// that the function goes another way.
    pub(crate) retried: Vec<String>,
    /// Whether one of the former followed an await that is not from the run's `Ctx`.
    pub(crate) foreign: bool,
}

impl Past {
    pub(crate) fn new(
        history: Vec<Record>,
        builds: BTreeMap<u32, String>,
        voided_seq: Option<u64>,
    ) -> Self {
        let steps = HashMap::with_capacity(history.len());
        let mut past = Self { steps, builds, voided_seq, arrived: Vec::new(), on_cancel: false };
        for record in history {
            match record.entry {
                Entry::Arrived(_) => past.arrived.push(record),
                // No future asks for it.
                Entry::Began if record.step == step_id::ON_CANCEL => past.on_cancel = true,
                _ => past.add(record),
            }
        }
        past
    }

    fn add(&mut self, record: Record) {
        let name = step_id::base(&record.step);
        let step = match self.steps.get_mut(name) {
            Some(step) => step,
            None => self.steps.entry(name.to_owned()).or_default(),
        };
        step.keyed_as = (name != record.step).then(|| record.step.clone());
        step.attempt = record.attempt;
        step.seq = record.seq;
        step.foreign |= record.foreign;
        step.first_began_at.get_or_insert(record.began_at);
        match &record.entry {
            Entry::Began => step.open = true,
            Entry::TryFailed { next_at, .. } => {
                step.open = false;
                step.tries = record.try_number;
                step.next_at = Some(*next_at);
            }
            Entry::Done(_) | Entry::Failed(_) | Entry::Fired | Entry::Arrived(_) => {
                step.last = Some(record);
            }
        }
    }

    /// Forgets what the function has not asked for, and knows what followed when the run turned back.
    pub(crate) fn turn_back(&mut self, tail: Vec<Record>) {
        self.steps.clear();
        tail.into_iter().for_each(|record| self.add(record));
    }

    /// Hands out the recorded signals, in order, and whether this build recorded each, and nothing since
    /// lets the function go another way.
    pub(crate) fn take_arrived(&mut self) -> Vec<(Record, bool)> {
        let arrived = std::mem::take(&mut self.arrived).into_iter();
        arrived
            .map(|it| (self.is_same_way(it.attempt, it.seq), it))
            .map(|(same, it)| (it, same))
            .collect()
    }

    /// Hands out what is known of a step that a future asks for.
    pub(crate) fn take(&mut self, step: &str) -> Option<PastStep> {
        // As in every run that is not replayed.
        if self.steps.is_empty() {
            return None;
        }
        let mut known = self.steps.remove(step_id::base(step))?;
        known.same_way = self.is_same_way(known.attempt, known.seq);
        Some(known)
    }

    /// Whether this build made a record, and nothing since lets the function go another way.
    fn is_same_way(&self, attempt: u32, seq: u64) -> bool {
        // The latest attempt is the one that executes.
        let here = self.builds.last_key_value().map(|(_, build)| build);
        let retried = self.voided_seq.is_some_and(|voided| seq > voided);
        here.is_some() && self.builds.get(&attempt) == here && !retried
    }

    /// Whether another build than the one that executes made this record.
    pub(crate) fn is_of_another_build(&self, record: &Record) -> bool {
        let here = self.builds.last_key_value().map(|(_, build)| build);
        self.builds.get(&record.attempt) != here
    }

    /// Whether it is recorded that there is something to execute on a cancel.
    pub(crate) fn has_on_cancel(&self) -> bool {
        self.on_cancel
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// What nobody has asked for, if anything.
    pub(crate) fn leftover(&self, build: &str) -> Option<Leftover> {
        if self.steps.is_empty() {
            return None;
        }
        let mut found = Leftover::default();
        for (name, step) in &self.steps {
            let retried = self.voided_seq.is_some_and(|voided| step.seq > voided);
            let made_here = self.builds.get(&step.attempt).is_some_and(|made_by| made_by == build);
            let place = match (made_here, retried) {
                (false, _) => &mut found.other_builds,
                (true, true) => &mut found.retried,
                (true, false) => {
                    found.foreign |= step.foreign;
                    &mut found.same_build
                }
            };
            place.push(name.clone());
        }
        found.same_build.sort();
        found.other_builds.sort();
        Some(found)
    }
}

/// A list of steps for people, cut where it grows long.
pub(crate) fn listed(steps: &[String]) -> String {
    listed_of(steps.iter().map(|step| format!("{step:?}")), steps.len())
}

/// The first of so many things, and how many more there are.
pub(crate) fn listed_of(things: impl Iterator<Item = String>, all: usize) -> String {
    let shown: Vec<_> = things.take(MISMATCH_LISTED_MAX).collect();
    match all.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
