//! Which runs a command is about, by what they are: the flags of `runs list`, shared by the commands
//! that change many.
//!
//! Owns: the flags, and what `stuck` and `paused` mean, which the store does not call states.

use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use onward::{Filter, Run, RunId, RunState, Timestamp};

use crate::args;
use crate::output::{self, PAUSED, STUCK};

/// What the runs must be like; every flag that is given must fit.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FilterArgs {
    /// In this state; may be repeated
    #[arg(long, value_parser = states())]
    state: Vec<State>,
    /// Of this workflow
    #[arg(long)]
    workflow: Option<String>,
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// With this key
    #[arg(long)]
    key: Option<String>,
    /// With this tag, name=value; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::tag)]
    tag: Vec<(String, String)>,
    /// Started by this run
    #[arg(long, value_name = "ID", value_parser = super::id)]
    parent: Option<RunId>,
    /// Started at least this long ago, as 12h or 30d
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    older_than: Option<Duration>,
    /// Started less than this long ago
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    younger_than: Option<Duration>,
    /// Started at this time or later, as 2026-12-31T23:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "younger_than")]
    created_from: Option<SystemTime>,
    /// Started before this time
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "older_than")]
    created_before: Option<SystemTime>,
}

/// A state to look for: one of the library's, or what people call one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Of(RunState),
    /// Waiting for an operator or another build.
    Stuck,
    /// Not ended, and with the mark.
    Paused,
}

impl FilterArgs {
    /// Whether no flag is given.
    pub(crate) fn is_empty(&self) -> bool {
        let one = self.workflow.is_some() || self.queue.is_some() || self.key.is_some();
        let age = self.older_than.is_some() || self.younger_than.is_some();
        let time = self.created_from.is_some() || self.created_before.is_some();
        let many = !self.state.is_empty() || !self.tag.is_empty();
        !one && !age && !time && !many && self.parent.is_none()
    }

    /// What the store is asked for, and which of its answers are meant.
    pub(crate) fn read(self, now: Timestamp) -> (Filter, Wanted) {
        let wanted = Wanted { states: self.state.clone() };
        let mut states: Vec<_> = self.state.into_iter().flat_map(State::stored).collect();
        states.sort_unstable();
        states.dedup();
        let ago = |age: Duration| {
            let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            Timestamp::from_millis(now.as_millis().saturating_sub(millis))
        };
        let filter = Filter {
            workflow: self.workflow,
            states,
            queue: self.queue,
            key: self.key,
            tags: self.tag.into_iter().collect(),
            parent: self.parent,
            created_from: self.younger_than.map(ago).or(self.created_from.map(Timestamp::from)),
            created_before: self.older_than.map(ago).or(self.created_before.map(Timestamp::from)),
        };
        (filter, wanted)
    }
}

impl State {
    /// The states under which the store has it.
    fn stored(self) -> Vec<RunState> {
        match self {
            State::Of(state) => vec![state],
            State::Stuck => vec![RunState::Waiting],
            State::Paused => vec![RunState::Queued, RunState::Running, RunState::Waiting],
        }
    }

    fn name(self) -> &'static str {
        match self {
            State::Of(state) => state.as_str(),
            State::Stuck => STUCK,
            State::Paused => PAUSED,
        }
    }

    fn has(self, run: &Run) -> bool {
        match self {
            State::Of(state) => run.state == state,
            State::Stuck => output::is_stuck(run),
            State::Paused => output::is_paused(run),
        }
    }
}

/// Which of the runs in the store's states are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    states: Vec<State>,
}

impl Wanted {
    /// The names of the states, as a server takes them.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.states.iter().map(|state| state.name()).collect()
    }

    /// Whether this run is wanted.
    pub(crate) fn has(&self, run: &Run) -> bool {
        self.states.is_empty() || self.states.iter().any(|state| state.has(run))
    }
}

/// Takes the name of a state, and lists the names in the help.
fn states() -> impl TypedValueParser<Value = State> {
    let names = RunState::ALL.map(RunState::as_str).into_iter().chain([STUCK, PAUSED]);
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        STUCK => Ok(State::Stuck),
        PAUSED => Ok(State::Paused),
        name => name.parse().map(State::Of),
    })
}
