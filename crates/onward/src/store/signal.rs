//! Signals, as a store keeps them: what came in for a run from outside.
//!
//! Owns: plain data, and the one decision about it that must be taken inside a transaction. Never
//! knows who waits for a signal: a run's history tells which were taken.

use serde::{Deserialize, Serialize};

use super::{Conflict, Error};
use crate::json::Fingerprint;
use crate::limits::{INBOX_BYTES_MAX, SIGNALS_BYTES_MAX, SIGNALS_MAX};
use crate::model::step_id;
use crate::{Failure, Json, Run, RunId, RunState, Timestamp, Waits};

/// A signal to send.
#[derive(Clone, Debug)]
pub struct NewSignal {
    /// The run that it is for.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// The step that it is recorded as, but for its number.
    pub step: String,
    /// What a repeat is known by: the sender's key, or a fresh one for each signal.
    pub key: String,
    /// The fingerprint of what it carries.
    pub fingerprint: Fingerprint,
    /// What it carries.
    pub body: Json,
}

impl NewSignal {
    /// Bytes of payload.
    pub(crate) fn bytes(&self) -> u64 {
        (self.name.len() + self.key.len() + self.body.as_str().len()) as u64
    }
}

/// A signal that came in for a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signal {
    /// Its number among the run's signals, from 1.
    pub no: u64,
    /// Its name.
    pub name: String,
    /// The step that it is recorded as, but for its number; nothing for one that an earlier run took.
    pub step: String,
    /// What a repeat is known by.
    pub key: String,
    /// The fingerprint of what it carries.
    #[serde(skip)]
    pub fingerprint: Fingerprint,
    /// What it carries.
    pub body: Json,
    /// When it came.
    pub at: Timestamp,
}

impl Signal {
    /// The signal that `new` becomes, as the run's `no`th.
    pub fn of(new: &NewSignal, no: u64, at: Timestamp) -> Self {
        let NewSignal { name, step, key, fingerprint, body, .. } = new.clone();
        Self { no, name, step, key, fingerprint, body, at }
    }

    /// Itself for the run that goes on for the one which took it: there only to know a repeat by. It
    /// has no step, so that nobody takes it again.
    pub(crate) fn carried(self) -> Self {
        Self { step: String::new(), body: Json::stored("null"), ..self }
    }

    /// Whether it was taken by a run that this one goes on for.
    pub(crate) fn is_carried(&self) -> bool {
        self.step.is_empty()
    }

    /// Whether the engine sent it for something that this very run asked for: the end of a child, or an
    /// answer to a callback. Nobody else may name one so.
    pub(crate) fn is_engines(&self) -> bool {
        self.name.starts_with('$')
    }

    /// Whether the run's function may still take it by its name, unlike the end of a child.
    pub(crate) fn is_for_function(&self) -> bool {
        !self.is_carried() && self.step == step_id::signal(&self.name)
    }

    /// Whether its key is the sender's, and not made up for a signal without one.
    pub(crate) fn has_senders_key(&self) -> bool {
        self.key.starts_with('=')
    }

    /// The step that it is recorded as.
    pub fn recorded_as(&self) -> String {
        format!("{}#{}", self.step, self.no)
    }

    /// Bytes of payload.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.key.len() + self.body.as_str().len()
    }
}

/// What sending a signal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signalled {
    /// The signal's number among the run's.
    pub no: u64,
    /// Whether it was there: a repeat, or another with the same key.
    pub was_there: bool,
    /// When it came first.
    pub at: Timestamp,
}

/// What has come in for a run since its holder last looked, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inbox {
    /// How often something woke the run.
    pub wakes: u64,
    /// Whether somebody asked it to end.
    pub cancel_asked: bool,
    /// Whether somebody paused it.
    pub paused: bool,
    /// The signals, in the order in which they came. The page ends with the signal that goes past
    /// [`INBOX_BYTES_MAX`](crate::limits::INBOX_BYTES_MAX).
    pub signals: Vec<Signal>,
    /// What comes after them.
    pub rest: InboxRest,
}

/// What an inbox has after the signals of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InboxRest {
    /// Nothing.
    #[default]
    Nothing,
    /// More signals. To read them, look again after the number of the last signal of this page.
    More,
    /// A signal that cannot be read, for this reason. It holds up those behind it.
    Unreadable(String),
}

/// Signals up to a page of them.
#[derive(Debug, Default)]
pub(crate) struct SignalPage {
    pub(crate) signals: Vec<Signal>,
    bytes: usize,
}

impl SignalPage {
    /// Whether the page takes a further signal.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes <= INBOX_BYTES_MAX
    }

    pub(crate) fn add(&mut self, signal: Signal) {
        self.bytes += signal.bytes();
        self.signals.push(signal);
    }
}

/// What a signal does to a run besides being kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalling {
    /// It counts as a wake-up; the run's holder looks, or whoever holds it next.
    Count,
    /// The run waits for signals, and is queued.
    Queue,
    /// The run failed: it is there for a retry, and wakes nobody.
    Keep,
}

/// What a new signal does to this run.
pub(crate) fn signalling(run: &Run) -> Result<Signalling, Error> {
    if run.state.is_final() {
        return Err(Error::Conflict(Conflict::Finished { run: run.id }));
    }
    let heeds = matches!(run.waits_for, Some(Waits::Signal { .. } | Waits::Child { .. }));
    let waits = run.state == RunState::Waiting && heeds;
    Ok(if waits { Signalling::Queue } else { Signalling::Count })
}

/// What the end of a child does to its parent, or nothing where nobody will ask for it. A parent that
/// failed may be retried, and waits for its children again then.
pub(crate) fn end_signalling(parent: &Run) -> Option<Signalling> {
    match parent.state {
        RunState::Failed => Some(Signalling::Keep),
        _ => signalling(parent).ok(),
    }
}

/// Refuses a sender when the run was sent as many signals as it may be, or as many bytes of them. The end of
/// a child is always kept: there are no more of them than the run has started.
pub(crate) fn check_room(run: &Run, bytes: u64, new: &NewSignal) -> Result<(), Error> {
    if run.signals < SIGNALS_MAX && bytes + new.bytes() <= SIGNALS_BYTES_MAX as u64 {
        return Ok(());
    }
    Err(Error::Conflict(Conflict::SignalsFull { run: run.id }))
}

/// What a sender is told whose key is there: the signal that has it, or that it carried something
/// else.
pub(crate) fn met(there: &Signal, new: &NewSignal) -> Result<Signalled, Error> {
    if there.fingerprint != new.fingerprint {
        return Err(Error::Conflict(Conflict::KeyInput { run: new.run }));
    }
    Ok(Signalled { no: there.no, was_there: true, at: there.at })
}

/// How a child ended, as its parent is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) state: RunState,
    /// What it ended with, when it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Json>,
    /// What it failed with, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<Failure>,
}

/// The signal that tells the parent of a run that has just ended.
pub(crate) fn of_end(run: &Run) -> Option<NewSignal> {
    let parent = run.parent.as_ref()?;
    // Whoever goes on for it tells the parent instead.
    if run.continued_as.is_some() {
        return None;
    }
    if !run.state.is_final() {
        return None;
    }
    let completed = run.state == RunState::Completed;
    let output = run.output.clone().unwrap_or_else(|| Json::stored("null"));
    let outcome = Outcome {
        state: run.state,
        output: completed.then_some(output),
        failure: run.failure.clone(),
    };
    let body = Json::stored(serde_json::to_string(&outcome).ok()?);
    Some(NewSignal {
        run: parent.run,
        name: parent.step.clone(),
        step: parent.step.clone(),
        key: run.id.to_string(),
        fingerprint: Fingerprint::of(run.id.to_string().as_bytes()),
        body,
    })
}
