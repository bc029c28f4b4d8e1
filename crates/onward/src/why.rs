//! "Why is this not running?"
//!
//! Owns: the one answer to that question, for every front. Never looks at a store; it is given
//! the run and what is around it.

use std::fmt;

use serde::Serialize;

use crate::error::open_ended;
use crate::model::step_id;
use crate::store::{KeyHolder, WorkerInfo, rules};
use crate::{QueueUse, Run, RunId, RunState, Timestamp, Waits};

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
    /// The worker that holds it is gone.
    WorkerGone {
        /// Whether a live worker serves it, and so takes it over.
        served: bool,
    },
    /// It has ended.
    Ended {
        /// How.
        state: RunState,
    },
    /// It is queued, and a worker will claim it.
    NextInLine,
    /// It is paused.
    Paused {
        /// Since when.
        since: Timestamp,
        /// Who paused it.
        by: Option<String>,
        /// The run, to resume.
        run: RunId,
    },
    /// It is paused, and what executes in it is let finish first.
    Pausing {
        /// Since when.
        since: Timestamp,
    },
    /// It is queued, and no worker serves it.
    NoWorker {
        /// The workflow that would have to be served.
        workflow: String,
        /// The queue that would have to be served.
        queue: String,
    },
    /// Its queue is paused.
    QueuePaused {
        /// The queue.
        queue: String,
        /// Since when.
        since: Timestamp,
    },
    /// As many runs of its queue are running as may be.
    QueueFull {
        /// The queue.
        queue: String,
        /// How many are running.
        running: u64,
        /// How many may be.
        limit: u64,
    },
    /// Every worker that serves it has as many runs of its queue as it may.
    WorkersFull {
        /// The queue.
        queue: String,
        /// How many runs of the queue a worker may have.
        limit: u64,
    },
    /// Every worker that serves it executes as many runs as it does at once.
    WorkersBusy {
        /// How many they execute.
        running: u64,
        /// How many they execute at once.
        places: u64,
    },
    /// Its workers crashed while they executed it, so it waits for a worker that executes nothing else.
    Suspected {
        /// How many workers in a row died while they executed it.
        crashes: u32,
    },
    /// As many runs of its lane are running as may be.
    LaneFull {
        /// The queue.
        queue: String,
        /// The lane.
        lane: String,
        /// How many are running.
        running: u64,
        /// How many may be.
        limit: u64,
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
    /// It waits for a signal, without a time limit.
    Signal {
        /// The signal's name.
        name: String,
    },
    /// It waits for the end of a run that it started.
    Child {
        /// That run.
        run: RunId,
    },
    /// It is asked to end, and its worker is about to settle it, or is undoing what it did.
    Cancelling,
    /// It is asked to end, and ends when a worker that serves it takes it up.
    CancelAsked {
        /// What keeps workers from it.
        held_by: Option<Box<Why>>,
    },
}

/// What is around a run, as far as it tells why the run is not running.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// The workers that are not lost. One whose lease has expired counts as gone: if it is the last,
    /// nobody is there to mark it.
    pub workers: &'a [WorkerInfo],
    /// What is counted in its queue, and in its lane, if the queue is set up.
    pub used: Option<&'a QueueUse>,
    /// Who has the step key that it waits for, if that is known.
    pub holder: Option<&'a KeyHolder>,
}

/// Why this run is not running.
pub fn why(run: &Run, around: Around<'_>, now: Timestamp) -> Why {
    let Around { workers, used, holder } = around;
    let live: Vec<_> = workers.iter().filter(|worker| worker.lease_until >= now).collect();
    let cancel_asked =
        || Why::CancelAsked { held_by: kept_from(run, &live, used, now).map(Box::new) };
    if let Some(paused) = paused(run) {
        return paused;
    }
    match (run.state, &run.waits_for) {
        (state, _) if state.is_final() => Why::Ended { state },
        (RunState::Running, _) => match live.iter().find(|live| Some(live.id) == run.worker) {
            None if run.cancel_at.is_some() => cancel_asked(),
            None => Why::WorkerGone { served: is_served(run, &live) },
            Some(_) if run.cancel_at.is_some() => Why::Cancelling,
            Some(holder) => match run.paused_at {
                Some(since) => Why::Pausing { since },
                None => Why::Running { place: holder.place.clone() },
            },
        },
        // A run that is being undone waits for its next try, whoever asked it to end.
        (RunState::Waiting, waits @ Some(Waits::Retry { step, .. }))
            if step_id::undoes(step) && run.due_at.is_some_and(|due| due > now) =>
        {
            until(run, waits.as_ref(), holder, now)
        }
        _ if run.cancel_at.is_some() => cancel_asked(),
        (_, Some(Waits::Stuck { code, detail })) => {
            Why::Stuck { code: code.clone(), detail: detail.clone() }
        }
        (_, Some(Waits::Behind { run, .. })) => Why::Behind { run: *run },
        (RunState::Waiting, Some(Waits::Signal { name })) if run.due_at.is_none() => {
            Why::Signal { name: name.clone() }
        }
        (RunState::Waiting, Some(Waits::Child { run: child })) if run.due_at.is_none() => {
            Why::Child { run: *child }
        }
        (RunState::Waiting, waits) if run.due_at.is_some_and(|due| due > now) => {
            until(run, waits.as_ref(), holder, now)
        }
        _ => kept_from(run, &live, used, now).unwrap_or(Why::NextInLine),
    }
}

/// What keeps workers from a run that is due.
fn kept_from(
    run: &Run,
    live: &[&WorkerInfo],
    used: Option<&QueueUse>,
    now: Timestamp,
) -> Option<Why> {
    let queue = run.queue.clone();
    if let Some(since) = used.and_then(|used| used.queue.paused_at) {
        return Some(Why::QueuePaused { queue, since });
    }
    if !is_served(run, live) {
        return Some(Why::NoWorker { workflow: run.workflow.clone(), queue });
    }
    let held_back = used.and_then(|used| held_back(run, live, used, now));
    held_back.or_else(|| suspected(run)).or_else(|| busy(run, live))
}

/// Whether it waits to be alone. A worker makes room for that, however much it executes.
fn suspected(run: &Run) -> Option<Why> {
    let crashes = run.crashes;
    rules::is_suspect(crashes).then_some(Why::Suspected { crashes })
}

/// Whether every worker that serves it has all the runs that it executes at once.
fn busy(run: &Run, live: &[&WorkerInfo]) -> Option<Why> {
    let serving: Vec<_> = live.iter().filter(|worker| serves(worker, run)).collect();
    let places = serving.iter().filter_map(|worker| worker.concurrency).map(u64::from).sum();
    let running = serving.iter().map(|worker| worker.running).sum();
    let full = serving.iter().all(|worker| worker.is_full());
    full.then_some(Why::WorkersBusy { running, places })
}

fn paused(run: &Run) -> Option<Why> {
    let held = run.state == RunState::Running || run.state.is_final() || run.cancel_at.is_some();
    let since = run.paused_at.filter(|_| !held)?;
    Some(Why::Paused { since, by: run.paused_by.clone(), run: run.id })
}

/// What in its queue holds a queued run back.
fn held_back(run: &Run, live: &[&WorkerInfo], used: &QueueUse, now: Timestamp) -> Option<Why> {
    let (queue, limits) = (run.queue.clone(), used.queue.limits);
    if let Some(limit) = limits.concurrency.map(u64::from).filter(|limit| used.running >= *limit) {
        return Some(Why::QueueFull { queue, running: used.running, limit });
    }
    if let (Some(limit), Some(lane)) = (limits.per_lane.map(u64::from), run.lane.clone())
        && used.lane_running >= limit
    {
        return Some(Why::LaneFull { queue, lane, running: used.lane_running, limit });
    }
    if let Some(at) = used.rate_until.filter(|at| *at > now) {
        return Some(Why::until("the rate limit of its queue".to_owned(), at, now));
    }
    let limit = limits.per_worker.map(u64::from)?;
    let held = |worker: &WorkerInfo| {
        used.held.iter().find(|(id, _)| *id == worker.id).map_or(0, |(_, held)| *held)
    };
    let mut serving = live.iter().filter(|worker| serves(worker, run));
    serving.all(|worker| held(worker) >= limit).then_some(Why::WorkersFull { queue, limit })
}

fn until(run: &Run, waits: Option<&Waits>, holder: Option<&KeyHolder>, now: Timestamp) -> Why {
    let what = match waits {
        Some(Waits::Start) => "its start time".to_owned(),
        Some(Waits::Debounce) => "further starts with its key (it is debounced)".to_owned(),
        Some(Waits::Timer { step }) => format!("the timer {step:?}"),
        Some(Waits::Retry { step, try_number }) => match step_id::undone_by(step) {
            Some(of) => format!("try {try_number} of undoing step {of:?}"),
            None if step_id::undoes(step) => format!("try {try_number} of undoing, {step:?}"),
            None => format!("try {try_number} of step {step:?}"),
        },
        Some(Waits::Key { step, key }) => {
            let held = holder.map_or("is held elsewhere".to_owned(), |holder| {
                format!("{} holds, on {}", holder.id, holder.caller)
            });
            format!("the key {key:?} of step {step:?}, which {held}")
        }
        Some(Waits::Readable { detail }) => {
            format!("the next look by a worker that can read its payloads ({detail})")
        }
        Some(Waits::Signal { name }) => format!("the signal {name:?}"),
        Some(Waits::Child { run }) => format!("the end of its child {run}"),
        Some(Waits::Backoff { crashes }) => {
            format!("a pause (suspected after {crashes} crashes; waits to be executed alone)")
        }
        _ => "its time".to_owned(),
    };
    Why::until(what, run.due_at.unwrap_or(now), now)
}

fn is_served(run: &Run, live: &[&WorkerInfo]) -> bool {
    live.iter().any(|worker| serves(worker, run))
}

fn serves(worker: &WorkerInfo, run: &Run) -> bool {
    worker.queues.contains(&run.queue)
        && worker.workflows.contains(&run.workflow)
        && (run.cancel_at.is_some() || !run.stuck_builds.contains(&worker.build))
}

impl Why {
    /// Its stable name, as `no_worker`.
    ///
    /// ```
    /// assert_eq!(onward::Why::NextInLine.code(), "next_in_line");
    /// ```
    pub const fn code(&self) -> &'static str {
        match self {
            Why::Running { .. } => "running",
            Why::WorkerGone { .. } => "worker_gone",
            Why::Ended { .. } => "ended",
            Why::NextInLine => "next_in_line",
            Why::Paused { .. } => "paused",
            Why::Pausing { .. } => "pausing",
            Why::NoWorker { .. } => "no_worker",
            Why::QueuePaused { .. } => "queue_paused",
            Why::QueueFull { .. } => "queue_full",
            Why::WorkersFull { .. } => "workers_full",
            Why::WorkersBusy { .. } => "workers_busy",
            Why::Suspected { .. } => "suspected",
            Why::LaneFull { .. } => "lane_full",
            Why::Until { .. } => "until",
            Why::Behind { .. } => "behind",
            Why::Stuck { .. } => "stuck",
            Why::Signal { .. } => "signal",
            Why::Child { .. } => "child",
            Why::Cancelling => "cancelling",
            Why::CancelAsked { .. } => "cancel_asked",
        }
    }

    /// Whether no worker is up that serves the run, so that it does not go on by itself.
    pub const fn is_unserved(&self) -> bool {
        matches!(self, Why::NoWorker { .. } | Why::WorkerGone { served: false })
    }

    fn until(what: String, at: Timestamp, now: Timestamp) -> Self {
        let in_ms = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX);
        Why::Until { what, at, in_ms }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Running { place } => write!(f, "It is running, on {place}."),
            Why::WorkerGone { served: true } => {
                f.write_str("The worker that held it is gone; another takes it over.")
            }
            Why::WorkerGone { served: false } => {
                f.write_str("The worker that held it is gone, and no live worker serves it.")
            }
            Why::Ended { state } => write!(f, "It has ended: {state}."),
            Why::NextInLine => f.write_str("It is due; a worker that serves it is up."),
            Why::Paused { since, by, run } => {
                let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
                write!(f, "It is paused since {since}{by}; resume with: onward runs resume {run}")
            }
            Why::Pausing { since } => write!(
                f,
                "It is paused since {since}; what executes in it is let finish and recorded first."
            ),
            Why::NoWorker { workflow, queue } => {
                write!(f, "No live worker serves workflow {workflow:?} on queue {queue:?}.")
            }
            Why::QueuePaused { queue, since } => {
                write!(f, "Its queue {queue:?} is paused, since {since}.")
            }
            Why::QueueFull { queue, running, limit } => {
                write!(f, "Its queue {queue:?} is full: {running} of {limit} runs are running.")
            }
            Why::WorkersFull { queue, limit } => write!(
                f,
                "Every worker that serves it has {limit} runs of queue {queue:?}, as many as it may."
            ),
            Why::WorkersBusy { running, places } => write!(
                f,
                "Every worker that serves it is full: they execute {running} runs, and {places} at once."
            ),
            Why::Suspected { crashes } => {
                write!(f, "It is suspected after {crashes} crashes; waits to be executed alone.")
            }
            Why::LaneFull { queue, lane, running, limit } => write!(
                f,
                "Its lane {lane:?} of queue {queue:?} is full: {running} of {limit} runs are running."
            ),
            Why::Until { what, at, in_ms } => {
                let rest = std::time::Duration::from_secs(in_ms.div_ceil(1000));
                let rest = humantime::format_duration(rest);
                write!(f, "It waits for {what}, until {at} (in {rest}).")
            }
            Why::Signal { name } => write!(f, "It waits for the signal {name:?}."),
            Why::Child { run } => write!(f, "It waits until its child {run} has ended."),
            Why::Behind { run } => write!(f, "It waits until run {run} has ended."),
            Why::Stuck { code, detail } => write!(
                f,
                "It is stuck ({code}): {}. It waits for a retry, or a worker of another build.",
                open_ended(detail)
            ),
            Why::Cancelling => {
                f.write_str("It is asked to end, and is about to, or is undoing what it did.")
            }
            Why::CancelAsked { held_by: None } => f.write_str(
                "It is asked to end, and ends when a worker takes it up and has undone what it did.",
            ),
            Why::CancelAsked { held_by: Some(why) } => {
                write!(f, "It is asked to end, and ends when a worker takes it up. {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, Queue, QueueLimits, RunId, WorkerId};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn worker(lease_until: i64) -> WorkerInfo {
        WorkerInfo {
            id: WorkerId::from_u128(7),
            build: "v1".to_owned(),
            place: "host:1".to_owned(),
            queues: vec!["default".to_owned()],
            workflows: vec!["work".to_owned()],
            lease_until: Timestamp::from_millis(lease_until),
            running: 0,
            concurrency: Some(2),
        }
    }

    fn run(state: RunState) -> Run {
        let id = RunId::from_u128(1);
        let fresh = Run::fresh(id, "work".to_owned(), Json::stored("null"), NOW);
        let worker = (state == RunState::Running).then_some(WorkerId::from_u128(7));
        Run { state, worker, ..fresh }
    }

    fn said(run: &Run, workers: &[WorkerInfo]) -> String {
        why(run, Around { workers, ..Around::default() }, NOW).to_string()
    }

    #[test]
    fn a_code_is_the_reason_as_it_is_written() {
        for why in [
            Why::WorkerGone { served: false },
            Why::NextInLine,
            Why::NoWorker { workflow: String::new(), queue: String::new() },
            Why::WorkersBusy { running: 1, places: 1 },
            Why::Cancelling,
            Why::CancelAsked { held_by: None },
        ] {
            let written = serde_json::to_value(&why).unwrap();
            assert_eq!(written["reason"], why.code());
        }
        assert!(Why::WorkerGone { served: false }.is_unserved());
        assert!(!Why::WorkerGone { served: true }.is_unserved());
    }

    #[test]
    fn a_worker_with_an_expired_lease_counts_as_gone() {
        let (live, expired) = ([worker(1_000_001)], [worker(999_999)]);
        assert_eq!(said(&run(RunState::Running), &live), "It is running, on host:1.");
        let gone = "The worker that held it is gone, and no live worker serves it.";
        assert_eq!(said(&run(RunState::Running), &expired), gone);
        let queued = run(RunState::Queued);
        assert_eq!(said(&queued, &live), "It is due; a worker that serves it is up.");
        let suspect = Run { crashes: 3, ..run(RunState::Queued) };
        let alone = "It is suspected after 3 crashes; waits to be executed alone.";
        assert_eq!(said(&suspect, &live), alone);
        let nobody = "No live worker serves workflow \"work\" on queue \"default\".";
        assert_eq!(said(&queued, &expired), nobody);
        assert_eq!(said(&suspect, &expired), nobody);
        let mut other = worker(1_000_001);
        other.id = WorkerId::from_u128(8);
        let taken = "The worker that held it is gone; another takes it over.";
        assert_eq!(said(&run(RunState::Running), &[other]), taken);
    }

    #[test]
    fn every_wait_is_told_with_its_time() {
        let waits = |waits_for: Waits, due: Option<i64>| {
            let due_at = due.map(Timestamp::from_millis);
            let waiting = Run { waits_for: Some(waits_for), due_at, ..run(RunState::Waiting) };
            said(&waiting, &[])
        };
        let at = "until 1970-01-01T00:16:45.000Z (in 5s).";
        let later = Some(1_005_000);
        let (step, name) = ("\"ocr\"", "ocr".to_owned());
        assert_eq!(waits(Waits::Start, later), format!("It waits for its start time, {at}"));
        let timer = waits(Waits::Timer { step: name.clone() }, later);
        assert_eq!(timer, format!("It waits for the timer {step}, {at}"));
        let retry = waits(Waits::Retry { step: name, try_number: 3 }, later);
        assert_eq!(retry, format!("It waits for try 3 of step {step}, {at}"));
        let key = waits(Waits::Key { step: "ocr".to_owned(), key: "k".to_owned() }, later);
        let held =
            format!("It waits for the key \"k\" of step {step}, which is held elsewhere, {at}");
        assert_eq!(key, held);
        let backoff = waits(Waits::Backoff { crashes: 4 }, later);
        let suspected = "(suspected after 4 crashes; waits to be executed alone)";
        assert_eq!(backoff, format!("It waits for a pause {suspected}, {at}"));
        let signal = Waits::Signal { name: "approved".to_owned() };
        assert_eq!(
            waits(signal.clone(), later),
            format!("It waits for the signal \"approved\", {at}")
        );
        assert_eq!(waits(signal, None), "It waits for the signal \"approved\".");
        let child = Waits::Child { run: RunId::from_u128(2) };
        assert!(waits(child, None).starts_with("It waits until its child 00000000-"));
        let behind = Waits::Behind { run: RunId::from_u128(2), start_at: NOW };
        assert!(waits(behind, None).starts_with("It waits until run 00000000-"));
        let stuck = Waits::Stuck { code: "crash_loop".to_owned(), detail: "why".to_owned() };
        assert!(waits(stuck, None).starts_with("It is stuck (crash_loop): why."));
        let due = waits(Waits::Start, Some(999_000));
        assert!(due.starts_with("No live worker serves"), "a time that has come is no reason");
    }

    #[test]
    fn every_limit_of_a_queue_is_told() {
        let waits = |used: &QueueUse| {
            let laned = Run { lane: Some("acme".to_owned()), ..run(RunState::Queued) };
            let workers = &[worker(1_000_001)];
            why(&laned, Around { workers, used: Some(used), holder: None }, NOW).to_string()
        };
        let queue = |limits| QueueUse {
            queue: Queue { limits, ..Queue::named("default") },
            running: 2,
            lane_running: 1,
            held: vec![(WorkerId::from_u128(7), 2)],
            rate_until: Some(Timestamp::from_millis(1_005_000)),
        };
        let limits = QueueLimits { concurrency: Some(2), ..QueueLimits::default() };
        let full = "Its queue \"default\" is full: 2 of 2 runs are running.";
        assert_eq!(waits(&queue(limits)), full);
        let limits = QueueLimits { per_lane: Some(1), ..QueueLimits::default() };
        let full = "Its lane \"acme\" of queue \"default\" is full: 1 of 1 runs are running.";
        assert_eq!(waits(&queue(limits)), full);
        let rate =
            "It waits for the rate limit of its queue, until 1970-01-01T00:16:45.000Z (in 5s).";
        assert_eq!(waits(&queue(QueueLimits::default())), rate);
        let limits = QueueLimits { per_worker: Some(2), ..QueueLimits::default() };
        let full =
            "Every worker that serves it has 2 runs of queue \"default\", as many as it may.";
        let calm = QueueUse { rate_until: None, ..queue(limits) };
        assert_eq!(waits(&calm), full);
        let mut paused = calm.clone();
        paused.queue.paused_at = Some(NOW);
        let since = "Its queue \"default\" is paused, since 1970-01-01T00:16:40.000Z.";
        assert_eq!(waits(&paused), since);
        let room = QueueUse { held: Vec::new(), ..calm };
        assert_eq!(waits(&room), "It is due; a worker that serves it is up.");
    }

    #[test]
    fn a_cancelled_run_of_a_paused_queue_is_told_both() {
        let paused = Queue { paused_at: Some(NOW), ..Queue::named("default") };
        let used = QueueUse { queue: paused, ..QueueUse::default() };
        let cancelled = Run { cancel_at: Some(NOW), ..run(RunState::Queued) };
        let workers = &[worker(1_000_001)];
        let why = why(&cancelled, Around { workers, used: Some(&used), holder: None }, NOW);
        let both = "It is asked to end, and ends when a worker takes it up. Its queue \"default\" is \
                    paused, since 1970-01-01T00:16:40.000Z.";
        assert_eq!(why.to_string(), both);
    }

    #[test]
    fn workers_that_execute_all_they_can_are_told() {
        let full = WorkerInfo { running: 2, ..worker(1_000_001) };
        let queued = run(RunState::Queued);
        let busy = "Every worker that serves it is full: they execute 2 runs, and 2 at once.";
        assert_eq!(said(&queued, std::slice::from_ref(&full)), busy);
        let room = "It is due; a worker that serves it is up.";
        let other = WorkerInfo { id: WorkerId::from_u128(8), running: 1, ..full.clone() };
        assert_eq!(said(&queued, &[full.clone(), other]), room, "another one has room");
        let unknown = WorkerInfo { concurrency: None, ..full.clone() };
        assert_eq!(said(&queued, &[unknown]), room, "nobody knows how many it executes");
        let elsewhere = WorkerInfo { workflows: Vec::new(), running: 0, ..full.clone() };
        assert_eq!(said(&queued, &[full, elsewhere]), busy, "who serves it not does not count");
    }

    #[test]
    fn the_holder_of_a_key_is_named() {
        let waits_for = Some(Waits::Key { step: "ocr".to_owned(), key: "k".to_owned() });
        let due_at = Some(Timestamp::from_millis(1_005_000));
        let waiting = Run { waits_for, due_at, ..run(RunState::Waiting) };
        let holder = KeyHolder { id: "r7/ocr".to_owned(), attempt: 1, caller: "host:9".to_owned() };
        let around = Around { holder: Some(&holder), ..Around::default() };
        let said = why(&waiting, around, NOW).to_string();
        let holds =
            "It waits for the key \"k\" of step \"ocr\", which r7/ocr holds, on host:9, until";
        assert!(said.starts_with(holds), "{said}");
    }

    #[test]
    fn a_run_that_turned_back_is_told_even_if_it_is_cancelled() {
        let waits = |step: &str| {
            let waits_for = Some(Waits::Retry { step: step.to_owned(), try_number: 2 });
            let due_at = Some(Timestamp::from_millis(1_005_000));
            let waiting = run(RunState::Waiting);
            said(&Run { waits_for, due_at, cancel_at: Some(NOW), ..waiting }, &[])
        };
        assert!(
            waits("$undo/pay").starts_with("It waits for try 2 of undoing step \"pay\", until")
        );
        assert!(
            waits("$on_cancel/1").starts_with("It waits for try 2 of undoing, \"$on_cancel/1\"")
        );
        assert!(waits("pay").starts_with("It is asked to end"));
    }

    #[test]
    fn marks_and_ends_are_told() {
        let marked = Run { cancel_at: Some(NOW), ..run(RunState::Running) };
        assert_eq!(
            said(&marked, &[worker(1_000_001)]),
            "It is asked to end, and is about to, or is undoing what it did."
        );
        let parked = Run { cancel_at: Some(NOW), ..run(RunState::Queued) };
        let asked = "It is asked to end, and ends when a worker takes it up";
        let nobody = "No live worker serves workflow \"work\" on queue \"default\".";
        assert_eq!(said(&parked, &[]), format!("{asked}. {nobody}"));
        let live = [worker(1_000_001)];
        assert_eq!(said(&parked, &live), format!("{asked} and has undone what it did."));
        let paused = Run { paused_at: Some(NOW), ..run(RunState::Queued) };
        let resume = "resume with: onward runs resume 00000000-0000-0000-0000-000000000001";
        let since = "It is paused since 1970-01-01T00:16:40.000Z";
        assert_eq!(said(&paused, &[]), format!("{since}; {resume}"));
        let by = Run { paused_by: Some("ops".to_owned()), ..paused };
        assert_eq!(said(&by, &[]), format!("{since} by ops; {resume}"));
        let pausing = Run { paused_at: Some(NOW), ..run(RunState::Running) };
        assert!(said(&pausing, &[worker(1_000_001)]).contains("is let finish"));
        assert_eq!(said(&run(RunState::Failed), &[]), "It has ended: failed.");
    }
}
