//! The places that payloads have in a store.
//!
//! Owns: [`PayloadPlace`], and the bytes that bind an encrypted payload to its place. Never holds a
//! payload.

use std::fmt;

use crate::{KeyState, RecordKind, RunId};

/// Where a payload is stored. An encrypted payload is bound to its place: put into another, it cannot
/// be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadPlace<'a> {
    /// What a run was started with.
    Input {
        /// The run.
        run: RunId,
    },
    /// What a debounced run is started with: each further start with its key gives it another input,
    /// before that start knows the run.
    Debounced {
        /// The workflow.
        workflow: &'a str,
        /// The key.
        key: &'a str,
    },
    /// What a run ended with.
    Output {
        /// The run.
        run: RunId,
    },
    /// The message and details of what a run failed with.
    Failure {
        /// The run.
        run: RunId,
    },
    /// What was found when a run got stuck.
    Stuck {
        /// The run.
        run: RunId,
    },
    /// What a record of a run's history holds.
    Record {
        /// The run.
        run: RunId,
        /// The step.
        step: &'a str,
        /// What the record says happened.
        kind: RecordKind,
        /// The try that it tells of.
        try_number: u32,
    },
    /// A line of a run's log.
    Log {
        /// The run.
        run: RunId,
        /// The line's number.
        no: u64,
    },
    /// What a signal carries.
    Signal {
        /// The run that it is for.
        run: RunId,
        /// Its name.
        name: &'a str,
        /// What a repeat of it is known by.
        key: &'a str,
    },
    /// The result or failure that is kept with a step key.
    StepKey {
        /// The key.
        key: &'a str,
        /// Which of the two.
        state: KeyState,
    },
    /// What the runs of a schedule are started with.
    Schedule {
        /// The schedule.
        name: &'a str,
    },
}

impl PayloadPlace<'_> {
    /// The run that the payload belongs to, if it belongs to one.
    pub fn run(&self) -> Option<RunId> {
        match self {
            PayloadPlace::Input { run }
            | PayloadPlace::Output { run }
            | PayloadPlace::Failure { run }
            | PayloadPlace::Stuck { run }
            | PayloadPlace::Record { run, .. }
            | PayloadPlace::Log { run, .. }
            | PayloadPlace::Signal { run, .. } => Some(*run),
            PayloadPlace::Debounced { .. }
            | PayloadPlace::StepKey { .. }
            | PayloadPlace::Schedule { .. } => None,
        }
    }

    /// The place as bytes, different for every two places: what authenticated encryption takes as
    /// its associated data.
    pub fn binding(&self) -> Vec<u8> {
        match self {
            PayloadPlace::Input { run } => joined(&["input", &run.to_string()]),
            PayloadPlace::Debounced { workflow, key } => joined(&["debounced", workflow, key]),
            PayloadPlace::Output { run } => joined(&["output", &run.to_string()]),
            PayloadPlace::Failure { run } => joined(&["failure", &run.to_string()]),
            PayloadPlace::Stuck { run } => joined(&["stuck", &run.to_string()]),
            PayloadPlace::Record { run, step, kind, try_number } => {
                let (run, try_number) = (run.to_string(), try_number.to_string());
                joined(&["record", &run, step, kind.as_str(), &try_number])
            }
            PayloadPlace::Log { run, no } => joined(&["log", &run.to_string(), &no.to_string()]),
            PayloadPlace::Signal { run, name, key } => {
                joined(&["signal", &run.to_string(), name, key])
            }
            PayloadPlace::StepKey { key, state } => joined(&["step key", key, state.as_str()]),
            PayloadPlace::Schedule { name } => joined(&["schedule", name]),
        }
    }
}

/// Parts, each after its length, so that no two lists give the same bytes.
fn joined(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

impl fmt::Display for PayloadPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PayloadPlace::Input { .. } => f.write_str("the input"),
            PayloadPlace::Debounced { key, .. } => write!(f, "the input with the key {key:?}"),
            PayloadPlace::Output { .. } => f.write_str("the output"),
            PayloadPlace::Failure { .. } => f.write_str("the failure"),
            PayloadPlace::Stuck { .. } => f.write_str("why it is stuck"),
            PayloadPlace::Record { step, kind, .. } => {
                write!(f, "the record {kind:?} of step {step:?}")
            }
            PayloadPlace::Log { no, .. } => write!(f, "line {no} of the log"),
            PayloadPlace::Signal { name, .. } => write!(f, "the signal {name:?}"),
            PayloadPlace::StepKey { key, .. } => write!(f, "the step key {key:?}"),
            PayloadPlace::Schedule { name } => write!(f, "the input of schedule {name:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_places_have_the_same_bytes() {
        let (run, other) = (RunId::from_u128(1), RunId::from_u128(2));
        let record = |step, kind, try_number| PayloadPlace::Record { run, step, kind, try_number };
        let signal = |name, key| PayloadPlace::Signal { run, name, key };
        let places = [
            PayloadPlace::Input { run },
            PayloadPlace::Input { run: other },
            PayloadPlace::Output { run },
            PayloadPlace::Failure { run },
            PayloadPlace::Stuck { run },
            record("a", RecordKind::Done, 1),
            record("a", RecordKind::Done, 2),
            record("a", RecordKind::Arrived, 1),
            record("b", RecordKind::Done, 1),
            signal("ab", "c"),
            signal("a", "bc"),
            PayloadPlace::StepKey { key: "a", state: KeyState::Done },
            PayloadPlace::StepKey { key: "a", state: KeyState::Failed },
            PayloadPlace::Schedule { name: "a" },
        ];
        for (at, one) in places.iter().enumerate() {
            for two in &places[at + 1..] {
                assert_ne!(one.binding(), two.binding(), "{one:?} and {two:?}");
            }
        }
    }
}
