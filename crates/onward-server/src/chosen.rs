//! Which runs a change of many is about.
//!
//! Owns: the filter of such a change, and what `stuck` and `paused` mean, which the store does not call
//! states. Never asks the store.

use std::collections::BTreeMap;

use onward::{Filter, Run, RunId, RunState, Timestamp, Waits};
use serde::{Deserialize, Serialize};

use crate::operation::OPERATION;

const STUCK: &str = "stuck";
const PAUSED: &str = "paused";

/// Which runs are meant. Every condition that is set must hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Chosen {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) state: Vec<ChosenState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created_before: Option<Timestamp>,
}

/// A state of the store's, or what people call one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum ChosenState {
    Of(RunState),
    /// Waiting for an operator or another build.
    Stuck,
    /// Not ended, and with the mark.
    Paused,
}

impl Chosen {
    /// What the store is asked for; `has` says which of its answers are meant.
    pub(crate) fn filter(&self) -> Filter {
        let it = self.clone();
        let mut states: Vec<_> =
            it.state.iter().flat_map(|state| state.stored()).copied().collect();
        states.sort_unstable();
        states.dedup();
        Filter {
            workflow: it.workflow,
            states,
            queue: it.queue,
            key: it.key,
            tags: it.tags,
            parent: it.parent,
            created_from: it.created_from,
            created_before: it.created_before,
        }
    }

    /// Whether this run, which the filter fits, is meant. A change of many never is.
    pub(crate) fn has(&self, run: &Run) -> bool {
        let in_state = self.state.is_empty() || self.state.iter().any(|state| state.has(run));
        in_state && run.workflow != OPERATION.name()
    }
}

impl ChosenState {
    /// The states under which the store has it.
    fn stored(&self) -> &[RunState] {
        match self {
            ChosenState::Of(state) => std::slice::from_ref(state),
            ChosenState::Stuck => &[RunState::Waiting],
            ChosenState::Paused => &[RunState::Queued, RunState::Running, RunState::Waiting],
        }
    }

    fn has(self, run: &Run) -> bool {
        match self {
            ChosenState::Of(state) => run.state == state,
            ChosenState::Stuck => {
                run.state == RunState::Waiting && matches!(run.waits_for, Some(Waits::Stuck { .. }))
            }
            ChosenState::Paused => run.paused_at.is_some() && !run.state.is_final(),
        }
    }
}

impl TryFrom<String> for ChosenState {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            STUCK => Ok(ChosenState::Stuck),
            PAUSED => Ok(ChosenState::Paused),
            name => match name.parse() {
                Ok(state) => Ok(ChosenState::Of(state)),
                Err(_) => Err(format!("{name:?} is not a state of a run")),
            },
        }
    }
}

impl From<ChosenState> for String {
    fn from(state: ChosenState) -> Self {
        let name = match state {
            ChosenState::Of(state) => state.as_str(),
            ChosenState::Stuck => STUCK,
            ChosenState::Paused => PAUSED,
        };
        name.to_owned()
    }
}
