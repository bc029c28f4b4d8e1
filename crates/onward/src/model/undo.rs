//! A run that turns back: what is recorded of it, and how far it has come.
//!
//! Owns: the content of the record "undo began", and [`Undoing`], which reads a history for people.
//! Never executes anything.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::step_id;
use crate::{Entry, Failure, Record, RunState, Timestamp};

/// The record that fixes how a run ends, before the first undo begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Began {
    /// How the run ends when all is undone.
    pub(crate) outcome: Outcome,
    /// How many calls of `on_cancel` are executed.
    #[serde(default)]
    pub(crate) on_cancel: usize,
    /// The places of the records whose steps are undone, in the order of their undos. Places and
    /// not names, so that a long history fits.
    pub(crate) undos: Vec<u64>,
}

/// How a run ends that turns back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) enum Outcome {
    /// It failed, with this.
    Failed { failure: Failure },
    /// It was cancelled.
    Cancelled,
}

/// An outcome as it is recorded: flat, since serde buffers what is tagged inside, and JSON of a user's, as
/// details are, cannot be read from its buffer.
#[derive(Serialize, Deserialize)]
struct Written {
    state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Failed,
    Cancelled,
}

impl From<Outcome> for Written {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Failed { failure } => Written { state: State::Failed, failure: Some(failure) },
            Outcome::Cancelled => Written { state: State::Cancelled, failure: None },
        }
    }
}

impl TryFrom<Written> for Outcome {
    type Error = &'static str;

    fn try_from(Written { state, failure }: Written) -> Result<Self, Self::Error> {
        match (state, failure) {
            (State::Failed, Some(failure)) => Ok(Outcome::Failed { failure }),
            (State::Failed, None) => Err("a failed run without its failure"),
            (State::Cancelled, _) => Ok(Outcome::Cancelled),
        }
    }
}

impl Outcome {
    pub(crate) fn state(&self) -> RunState {
        match self {
            Outcome::Failed { .. } => RunState::Failed,
            Outcome::Cancelled => RunState::Cancelled,
        }
    }
}

/// One undo of a run.
pub(crate) struct Planned {
    /// What it takes back, for people.
    pub(crate) of: String,
    /// The step that it is recorded as.
    pub(crate) step: String,
}

impl Began {
    /// What is executed, in this order.
    pub(crate) fn planned(&self, history: &[Record]) -> Vec<Planned> {
        let calls = (1..=self.on_cancel).rev().map(|number| {
            let step = step_id::on_cancel(number);
            Planned { of: step.clone(), step }
        });
        let undos = self.undos.iter().map(|seq| {
            let of = match history.binary_search_by_key(seq, |record| record.seq) {
                Ok(place) => step_id::base(&history[place].step).to_owned(),
                Err(_) => format!("record {seq}"),
            };
            Planned { step: step_id::undo(&of), of }
        });
        calls.chain(undos).collect()
    }
}

/// The steps of a history that were asked for with an undo, by their places; and those that are to be
/// undone, where that has begun.
pub(crate) fn undoable(history: &[Record], began: Option<&Began>) -> HashMap<u64, String> {
    let planned: HashSet<u64> = began.iter().flat_map(|began| &began.undos).copied().collect();
    let undoable = history.iter().filter(|record| {
        (record.undoable && record.voided_at.is_none()) || planned.contains(&record.seq)
    });
    undoable.map(|record| (record.seq, step_id::base(&record.step).to_owned())).collect()
}

/// The steps that these records say are done.
pub(crate) fn done(records: &[Record]) -> HashSet<&str> {
    let done = records.iter().filter(|record| matches!(record.entry, Entry::Done(_)));
    done.map(|record| record.step.as_str()).collect()
}

/// What the record "undo began" of a history says, and its place in it.
pub(crate) fn began(history: &[Record]) -> Option<(usize, Began)> {
    let place = history.iter().rposition(|record| record.step == step_id::UNDO)?;
    match &history[place].entry {
        Entry::Done(json) => json.read().ok().map(|began| (place, began)),
        _ => None,
    }
}

/// How far a run has come with its undos.
///
/// ```
/// # use onward::{Ctx, Failure, Onward, Undoing, Workflow};
/// # const BOOK: Workflow<(), ()> = Workflow::named("book");
/// # async fn book(ctx: Ctx, _: ()) -> Result<(), Failure> {
/// #     let seat = ctx.step("reserve", async |_| Ok::<_, Failure>(7)).undo(async |_, _| Ok::<_, Failure>(()));
/// #     seat.await?;
/// #     Err(Failure::fatal("no money"))
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// # let worker = onward.worker().serve(BOOK, book).start().await?;
/// # let run = onward.start(BOOK, &()).await?;
/// # run.ended().await?;
/// let undoing = Undoing::of(&run.history().await?).expect("it turned back");
/// assert_eq!(undoing.undone, ["reserve"]);
/// assert!(undoing.left.is_empty());
/// # worker.shutdown().await }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Undoing {
    /// When it turned back.
    pub began_at: Timestamp,
    /// How it ends when all is undone: failed or cancelled. `None` where that cannot be read.
    pub outcome: Option<RunState>,
    /// What it failed with before it turned back, if it did.
    pub failure: Option<Failure>,
    /// What is undone, in the order in which it was.
    pub undone: Vec<String>,
    /// What is not undone, or not yet, in the order in which it is to be. A call of `on_cancel` is
    /// told by its step. Not known, and empty, where `unreadable`.
    pub left: Vec<String>,
    /// Whether the record that says how it turned back cannot be read, as without the key that it was
    /// encrypted with: then `outcome`, `failure` and `left` are not known.
    pub unreadable: bool,
}

impl Undoing {
    /// What a run's history says of it; `None` where the run has not turned back.
    pub fn of(history: &[Record]) -> Option<Self> {
        let place = history.iter().rposition(|record| record.step == step_id::UNDO)?;
        let Some((_, began)) = began(history) else {
            return Some(Self::unreadable(history, place));
        };
        let done = done(&history[place..]);
        let (mut undone, mut left) = (Vec::new(), Vec::new());
        for Planned { of, step } in began.planned(history) {
            if done.contains(&*step) { undone.push(of) } else { left.push(of) }
        }
        let failure = match &began.outcome {
            Outcome::Failed { failure } => Some(failure.clone()),
            Outcome::Cancelled => None,
        };
        let (began_at, outcome) = (history[place].at, Some(began.outcome.state()));
        Some(Self { began_at, outcome, failure, undone, left, unreadable: false })
    }

    /// What can be told without the record at this place: the steps that undid something say so by
    /// their names.
    fn unreadable(history: &[Record], place: usize) -> Self {
        let done = history[place..].iter().filter(|record| matches!(record.entry, Entry::Done(_)));
        let steps = done.map(|record| record.step.as_str()).filter(|step| step_id::undoes(step));
        let undone = steps.map(|step| step_id::undone_by(step).unwrap_or(step).to_owned());
        Self {
            began_at: history[place].at,
            outcome: None,
            failure: None,
            undone: undone.collect(),
            left: Vec::new(),
            unreadable: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;

    #[test]
    fn an_outcome_is_recorded_flat_and_read_back_with_its_details() {
        let details = Json::parse(r#"{"declined":[1,2.50]}"#).unwrap();
        let failure = Failure::fatal("no").code("card_declined").details(&details);
        for outcome in [Outcome::Failed { failure }, Outcome::Cancelled] {
            let began = Began { outcome, on_cancel: 1, undos: vec![7, 3] };
            let json = Json::of(&began).unwrap();
            let state = began.outcome.state();
            assert!(
                json.as_str().starts_with(&format!(r#"{{"outcome":{{"state":"{state}""#)),
                "{json}"
            );
            assert_eq!(json.read::<Began>().unwrap(), began);
        }
    }
}
