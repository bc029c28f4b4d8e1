//! "Why is this not running?"
//!
//! Owns: the one answer to that question, for every front. Never looks at a store; it is given
//! the run and the workers.

use std::fmt;

use serde::Serialize;

use crate::store::WorkerInfo;
use crate::{Run, RunState, Timestamp, Waits};

/// Why a run is not running, or that it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// It is running.
    Running {
        /// Where.
        place: String,
    },
    /// It has ended.
    Ended {
        /// How.
        state: RunState,
    },
    /// It is queued, and a worker will claim it.
    NextInLine,
    /// It is paused.
    Paused,
    /// It is queued, and no worker serves it.
    NoWorker {
        /// The workflow that would have to be served.
        workflow: String,
        /// The queue that would have to be served.
        queue: String,
    },
    /// It waits for a time.
    Until {
        /// What comes then.
        what: String,
        /// When.
        at: Timestamp,
        /// How long that is from now, in milliseconds.
        in_ms: u64,
    },
    /// It waits for another run to end.
    Behind {
        /// That run.
        run: crate::RunId,
    },
    /// It waits for an operator's retry, or a worker of another build.
    Stuck {
        /// The code, to look up.
        code: String,
        /// What was found.
        detail: String,
    },
    /// It is asked to end, and its worker is about to settle it.
    Cancelling,
}

/// Why this run is not running. `workers`: those that are not lost.
pub fn why(run: &Run, workers: &[WorkerInfo], now: Timestamp) -> Why {
    match (run.state, &run.waits_for) {
        (state, _) if state.is_final() => Why::Ended { state },
        (RunState::Running, _) if run.cancel_at.is_some() => Why::Cancelling,
        (RunState::Running, _) => {
            let holder = workers.iter().find(|worker| Some(worker.id) == run.worker);
            let place = holder.map_or("a worker that is gone", |worker| &worker.place);
            Why::Running { place: place.to_owned() }
        }
        _ if run.paused_at.is_some() => Why::Paused,
        (_, Some(Waits::Stuck { code, detail })) => {
            Why::Stuck { code: code.clone(), detail: detail.clone() }
        }
        (_, Some(Waits::Behind { run, .. })) => Why::Behind { run: *run },
        (RunState::Waiting, waits) => until(run, waits.as_ref(), now),
        _ => queued(run, workers),
    }
}

fn until(run: &Run, waits: Option<&Waits>, now: Timestamp) -> Why {
    let what = match waits {
        Some(Waits::Start) => "its start time".to_owned(),
        Some(Waits::Timer { step }) => format!("the timer {step:?}"),
        Some(Waits::Retry { step, try_number }) => format!("try {try_number} of step {step:?}"),
        Some(Waits::Backoff { crashes }) => {
            format!("the pause after {crashes} workers died in it")
        }
        _ => "its time".to_owned(),
    };
    let at = run.due_at.unwrap_or(now);
    let in_ms = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX);
    Why::Until { what, at, in_ms }
}

fn queued(run: &Run, workers: &[WorkerInfo]) -> Why {
    let served = workers.iter().any(|worker| {
        worker.queues.contains(&run.queue)
            && worker.workflows.contains(&run.workflow)
            && (run.cancel_at.is_some() || !run.stuck_builds.contains(&worker.build))
    });
    if served {
        Why::NextInLine
    } else {
        Why::NoWorker { workflow: run.workflow.clone(), queue: run.queue.clone() }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Running { place } => write!(f, "It is running, on {place}."),
            Why::Ended { state } => write!(f, "It has ended: {state}."),
            Why::NextInLine => f.write_str("It is queued; a worker that serves it is up."),
            Why::Paused => f.write_str("It is paused."),
            Why::NoWorker { workflow, queue } => {
                write!(f, "No live worker serves workflow {workflow:?} on queue {queue:?}.")
            }
            Why::Until { what, at, in_ms } => {
                let rest = std::time::Duration::from_secs(in_ms.div_ceil(1000));
                let rest = humantime::format_duration(rest);
                write!(f, "It waits for {what}, until {at} (in {rest}).")
            }
            Why::Behind { run } => write!(f, "It waits until run {run} has ended."),
            Why::Stuck { code, detail } => write!(
                f,
                "It is stuck ({code}): {detail}. It waits for a retry, or a worker of another \
                 build."
            ),
            Why::Cancelling => f.write_str("It is asked to end and is about to."),
        }
    }
}
