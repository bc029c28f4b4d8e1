//! The decisions that must be taken inside a store's transaction.
//!
//! Owns: what happens to a run that is cancelled, retried, taken from a lost worker, or met by a
//! start with its key; as pure functions, so that every store decides alike. Never reads a store.

mod line;

use std::time::Duration;

pub(crate) use line::*;

use crate::limits::{
    CRASH_BACKOFF_MAX, CRASHES_MAX, LOST_WORKERS_KEPT, MISMATCH_LISTED_MAX, SUSPECT_CRASHES,
};
use crate::model::step_id;
use crate::{
    Code, CodeChange, Failure, Json, Notes, OnConflict, Parent, Record, Run, RunId, RunState,
    Timestamp, Waits, WorkerId,
};

use super::{Conflict, Error, NewParent, NewRun, StartAt, Started, StartedHow, gather};

/// A record's slot among those of its step: one for what ends it, one for each other. A slot is
/// filled once, so a step ends once. A voided record frees the slot of the end.
pub(crate) fn slot(record: &Record) -> u64 {
    let ends = record.entry.kind().is_final() && record.voided_at.is_none();
    if ends { 0 } else { record.seq }
}

/// What a cancel does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelling {
    /// Nothing: it is cancelled, or asked to be.
    Already,
    /// Mark it; its holder settles it.
    Mark,
    /// It ends at once.
    End,
    /// Mark it and queue it; a worker settles it.
    Queue,
}

/// What a cancel does to this run. `recorded`: whether it has any record.
pub(crate) fn cancelling(run: &Run, recorded: bool) -> Result<Cancelling, Error> {
    match run.state {
        RunState::Cancelled => Ok(Cancelling::Already),
        RunState::Completed | RunState::Failed => {
            Err(Error::Conflict(Conflict::Finished { run: run.id }))
        }
        RunState::Running if run.cancel_at.is_some() => Ok(Cancelling::Already),
        RunState::Running => Ok(Cancelling::Mark),
        RunState::Queued | RunState::Waiting if !recorded => Ok(Cancelling::End),
        RunState::Queued if run.cancel_at.is_some() => Ok(Cancelling::Already),
        RunState::Queued | RunState::Waiting => Ok(Cancelling::Queue),
    }
}

/// Whether a retry has something to do: `false` means that an earlier one did it. `undone`: whether
/// the run's undo has begun, after which its work is not taken up again. One that is stuck in its
/// undo goes on with that.
pub(crate) fn retrying(run: &Run, undone: bool) -> Result<bool, Error> {
    let stuck = matches!(run.waits_for, Some(Waits::Stuck { .. }));
    match run.state {
        RunState::Waiting if stuck => Ok(true),
        RunState::Queued | RunState::Running if run.retried_at.is_some() => Ok(false),
        _ if undone => Err(Error::Conflict(Conflict::Undone { run: run.id })),
        RunState::Failed => Ok(true),
        _ => Err(Error::Conflict(Conflict::NotFailed { run: run.id })),
    }
}

/// Refuses to let a run go on with another input that is asked to end: what it has to do on a cancel
/// would be lost with it.
pub(crate) fn check_continues(run: RunId, cancel_asked: bool) -> Result<(), Error> {
    if cancel_asked { Err(Error::Conflict(Conflict::Ending { run })) } else { Ok(()) }
}

/// Whether the end of a run ends its children too: it was cancelled, or asked to end and could not
/// be wholly undone. They were asked when it was; this is for those that it started meanwhile.
pub(crate) fn cascades(state: RunState, cancel_asked: bool) -> bool {
    state == RunState::Cancelled || (state == RunState::Failed && cancel_asked)
}

/// Whether a record says that its run's undo has begun.
pub(crate) fn is_undo_began(record: &Record) -> bool {
    record.step == step_id::UNDO
}

/// Lets a failed or stuck run go on, as if it had not ended and nobody had asked it to. One with a
/// deadline has its whole time again: what it failed for may well be that its time was over.
pub(crate) fn retry(run: &mut Run, now: Timestamp) {
    if run.state.is_final() {
        // Who waited behind it has had its turn, or waits for another run.
        run.successor = None;
    }
    run.notes.ended_behind = None;
    run.failure = None;
    run.finished_at = None;
    if let Some(time_ms) = time_ms(run) {
        run.notes.own_time_ms = None;
        run.deadline_at = deadline(now, Some(time_ms).filter(|ms| *ms > 0));
        run.notes.timed_from = Some(now);
    }
    run.cancel_at = None;
    super::steer::unpause(run);
    run.crashes = 0;
    run.stuck_builds.clear();
    run.retried_at = Some(now);
    queue(run, now);
}

/// Queues a run at once, takes it from its holder, and counts it as a wake-up.
pub(crate) fn queue(run: &mut Run, now: Timestamp) {
    run.worker = None;
    run.state = RunState::Queued;
    run.due_at = Some(now);
    run.waits_for = None;
    run.wakes += 1;
}

/// Gives a run to a worker, in a new attempt.
pub(crate) fn claim(run: &mut Run, worker: WorkerId, build: &str, now: Timestamp) {
    run.state = RunState::Running;
    run.worker = Some(worker);
    run.build = Some(build.to_owned());
    run.attempt += 1;
    run.due_at = None;
    run.waits_for = None;
    run.started_at.get_or_insert(now);
}

/// Adds a build to those under which a run got stuck; one that is unknown is the empty one.
pub(crate) fn add_stuck_build(builds: &mut Vec<String>, build: Option<&str>) {
    let build = build.unwrap_or_default();
    if !builds.iter().any(|stuck| stuck == build) {
        builds.push(build.to_owned());
    }
}

/// What a start does when its key is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyMet {
    /// Give the caller the run that has it.
    Existing,
    /// Retry that run and give it to the caller.
    Retry,
    /// End that run and give its key to the new one.
    Replace,
    /// Let that run begin later, with the input of the new start.
    Later,
    /// Let that run be, and start a new one that takes the key.
    Fresh,
    /// Refuse: another input.
    OtherInput,
    /// Refuse: in use.
    Taken,
}

/// What a start with this policy does when `run` has its key.
///
/// A run that is queued or running because of an earlier retry meets `RetryFailed` as it meets
/// another `retry`: it is told that it goes on, so that a repeat after a lost answer is not
/// counted as a duplicate.
pub(crate) fn key_met(on_conflict: OnConflict, same_input: bool, run: &Run) -> KeyMet {
    match on_conflict {
        OnConflict::Replace => KeyMet::Replace,
        OnConflict::Reject => KeyMet::Taken,
        OnConflict::Existing | OnConflict::RetryFailed if !same_input => KeyMet::OtherInput,
        OnConflict::RetryFailed if run.state == RunState::Failed => KeyMet::Retry,
        OnConflict::RetryFailed if matches!(retrying(run, false), Ok(false)) => KeyMet::Retry,
        OnConflict::Existing | OnConflict::RetryFailed => KeyMet::Existing,
    }
}

impl KeyMet {
    /// What the start of `new` is told when `holder` has its key.
    pub(crate) fn answer(self, holder: &Run, new: RunId, now: Timestamp) -> Result<Started, Error> {
        let run = holder.id;
        let there = |how| Ok(Started { run, how, at: holder.created_at });
        match self {
            KeyMet::Existing | KeyMet::Later => there(StartedHow::Existing),
            KeyMet::Fresh => Ok(Started { run: new, how: StartedHow::New, at: now }),
            KeyMet::Retry => there(StartedHow::Retried),
            KeyMet::Replace => Ok(Started { run: new, how: StartedHow::Replaced(run), at: now }),
            KeyMet::OtherInput => Err(Error::Conflict(Conflict::KeyInput { run })),
            KeyMet::Taken => Err(Error::Conflict(Conflict::KeyTaken { run })),
        }
    }
}

/// Puts a run that nobody holds into a final state, and gives the run that it waited for if its turn
/// had not come.
pub(crate) fn end(run: &mut Run, state: RunState, now: Timestamp) -> Option<RunId> {
    let ahead = behind(run.waits_for.take().as_ref());
    run.state = state;
    run.finished_at = Some(now);
    run.due_at = None;
    run.notes.ended_behind = ahead;
    super::steer::unpause(run);
    ahead
}

/// What becomes of a run whose worker was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AfterLoss {
    /// Its new state: queued or waiting.
    pub(crate) state: RunState,
    /// When it may be claimed again.
    pub(crate) due_at: Option<Timestamp>,
    /// What it waits for.
    pub(crate) waits_for: Option<Waits>,
    /// Its new number of crashes in a row.
    pub(crate) crashes: u32,
}

/// What becomes of `run`, whose worker was lost. `progressed`: whether its attempt left a record.
///
/// One or two losses say nothing: a deploy or a power cut hits every run. From the third on the
/// run is a suspect, claimed alone and after a growing pause. A run that is to end, because somebody
/// asked for it or its time is over, pauses too, since its undos may be what kills, but never waits
/// for anybody: whoever claims it for the last time ends it without executing it.
pub(crate) fn after_loss(run: &Run, progressed: bool, now: Timestamp) -> AfterLoss {
    let crashes = if progressed { 0 } else { run.crashes + 1 };
    let queued = AfterLoss { state: RunState::Queued, due_at: Some(now), waits_for: None, crashes };
    if crashes < SUSPECT_CRASHES {
        return queued;
    }
    let waiting = AfterLoss { state: RunState::Waiting, ..queued };
    let late = run.deadline_at.is_some_and(|deadline| deadline <= now);
    if crashes >= CRASHES_MAX && run.cancel_at.is_none() && !late {
        let detail = format!("{crashes} workers in a row died in this run without a record");
        let code = Code::CrashLoop.as_str().to_owned();
        return AfterLoss {
            due_at: None,
            waits_for: Some(Waits::Stuck { code, detail }),
            ..waiting
        };
    }
    let pause = 1 << (crashes - SUSPECT_CRASHES).min(CRASHES_MAX);
    let pause = Duration::from_secs(pause).min(CRASH_BACKOFF_MAX);
    AfterLoss { due_at: Some(now + pause), waits_for: Some(Waits::Backoff { crashes }), ..waiting }
}

/// Takes a run from its lost worker.
pub(crate) fn lose(run: &mut Run, progressed: bool, now: Timestamp) {
    let after = after_loss(run, progressed, now);
    queue(run, now);
    run.state = after.state;
    run.due_at = after.due_at;
    run.crashes = after.crashes;
    if matches!(after.waits_for, Some(Waits::Stuck { .. })) {
        add_stuck_build(&mut run.stuck_builds, run.build.as_deref());
    }
    run.waits_for = after.waits_for;
}

/// What is noted on a run whose code, in `build`, asks for these recorded steps no more.
pub(crate) fn code_change(build: Option<&str>, unasked: &[String], now: Timestamp) -> CodeChange {
    let unasked = unasked.iter().take(MISMATCH_LISTED_MAX).cloned().collect();
    CodeChange { build: build.unwrap_or_default().to_owned(), unasked, at: now }
}

/// What a sweep does about a run whose deadline has passed while nobody held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// Nothing.
    Leave,
    /// It fails at once: nothing of it is to be undone, so it needs no worker.
    End,
    /// Every build may take it up, to undo what it did.
    Open,
}

/// What a sweep does about a run whose deadline has passed while nobody held it; nothing about one
/// for which a sweep has seen that, and about one that is asked to end: it ends as cancelled. What
/// cannot be read is left out. `undoes`: whether it has something to undo, or is on its way back.
pub(crate) fn late(run: &Run, seen: Option<Timestamp>, undoes: bool, now: Timestamp) -> Late {
    let is_corrupt = matches!(
        &run.waits_for,
        Some(Waits::Stuck { code, .. }) if code == Code::CorruptRecord.as_str()
    );
    let is_late = matches!(run.state, RunState::Queued | RunState::Waiting)
        && run.deadline_at.is_some_and(|deadline| deadline <= now && seen != Some(deadline))
        && run.cancel_at.is_none()
        && !is_corrupt;
    match (is_late, undoes) {
        (false, _) => Late::Leave,
        (true, true) => Late::Open,
        (true, false) => Late::End,
    }
}

/// Whether a record means that its run is not ended without its code: a step that can be undone, or
/// the undo itself.
pub(crate) fn undoes(record: &Record) -> bool {
    record.undoable && record.voided_at.is_none() || is_undo_began(record)
}

/// What a run fails with whose time is over.
pub(crate) fn deadline_exceeded() -> Failure {
    Failure::engine(Code::DeadlineExceeded, Code::DeadlineExceeded.advice())
}

/// Lets every build take up a late run that has something to undo, paused or stuck as it may be. What
/// waits for a time was told to wake at its deadline, or is held back for a while.
pub(crate) fn open_late(run: &mut Run, now: Timestamp) {
    super::steer::unpause(run);
    run.stuck_builds.clear();
    if run.state == RunState::Waiting && run.due_at.is_none() {
        queue(run, now);
    }
}

/// Whether a run is claimed alone, because it may be what kills its workers.
pub(crate) fn is_suspect(crashes: u32) -> bool {
    crashes >= SUSPECT_CRASHES
}

/// Workers that were lost before this time and hold no run are forgotten.
pub(crate) fn forget_lost_before(now: Timestamp) -> Timestamp {
    let kept_ms = i64::try_from(LOST_WORKERS_KEPT.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(kept_ms))
}

/// When a run that is started `now` may first be claimed.
pub(crate) fn start_time(start_at: StartAt, now: Timestamp) -> Timestamp {
    match start_at {
        StartAt::Now => now,
        StartAt::After(ms) => Timestamp::from_millis(now.as_millis().saturating_add(ms.max(0))),
        StartAt::At(time) => time.max(now),
    }
}

/// The state of a run that may start at `start`: queued, or waiting for that time.
pub(crate) fn state_at_start(start: Timestamp, now: Timestamp) -> (RunState, Option<Waits>) {
    if start <= now { (RunState::Queued, None) } else { (RunState::Waiting, Some(Waits::Start)) }
}

/// When a run that may start at `start` must have ended.
pub(crate) fn deadline(start: Timestamp, timeout_ms: Option<i64>) -> Option<Timestamp> {
    timeout_ms.map(|ms| Timestamp::from_millis(start.as_millis().saturating_add(ms)))
}

/// From when the time of a run with a deadline counts.
fn timed_from(run: &Run) -> Timestamp {
    run.notes.timed_from.or(run.notes.start_at).unwrap_or(run.created_at)
}

/// The time that a run has by itself, from its start or its last retry to its deadline. It is 0 for a
/// child that has only its parent's deadline.
fn time_ms(run: &Run) -> Option<i64> {
    let deadline = run.deadline_at?;
    let until = deadline.as_millis().saturating_sub(timed_from(run).as_millis());
    Some(run.notes.own_time_ms.unwrap_or(until))
}

/// Lets a child end no later than its parent, whose deadline is this, unless it is detached.
pub(crate) fn limit_child(run: &mut Run, deadline_at: Option<Timestamp>) {
    let is_child = run.parent.as_ref().is_some_and(|parent| !parent.detached);
    let Some(limit) = deadline_at.filter(|_| is_child) else { return };
    if run.deadline_at.is_none_or(|own| limit < own) {
        run.notes.own_time_ms = Some(time_ms(run).unwrap_or(0));
        run.deadline_at = Some(limit);
    }
}

/// Lets a child that is retried end no later than its parent, unless that has ended.
pub(crate) fn limit_retried(child: &mut Run, parent: &Run) {
    if !parent.state.is_final() {
        limit_child(child, parent.deadline_at);
    }
}

/// Whether a lease has expired, as a sweep judges it. One that is much further ahead than it lasts was made
/// before the clock was set back, and whoever lives has renewed it since.
pub(crate) fn has_expired(until: Timestamp, lease_ms: i64, now: Timestamp) -> bool {
    until < now || is_before_step(until, lease_ms, now)
}

/// Whether a lease was made before the clock was set back by more than it lasts.
pub(crate) fn is_before_step(until: Timestamp, lease_ms: i64, now: Timestamp) -> bool {
    until.as_millis() > now.as_millis().saturating_add(lease_ms.saturating_mul(2))
}

/// Whether a run failed because its time was over.
pub(crate) fn ran_out_of_time(run: &Run) -> bool {
    let ended_late = |deadline| run.finished_at.is_some_and(|finished_at| deadline <= finished_at);
    run.state == RunState::Failed && run.deadline_at.is_some_and(ended_late)
}

/// The run that a start makes. `place`: where it waits in a line, if it does.
pub(crate) fn fresh(new: &NewRun, place: Option<InLine>, now: Timestamp) -> Run {
    let start = start_time(new.start_at, now);
    let (state, waits_for) = state_at_start(start, now);
    let mut run = Run {
        state,
        waits_for: waits_for.map(|waits| gather::waits_at_start(new, waits)),
        due_at: Some(start),
        deadline_at: deadline(start, new.timeout_ms),
        key: new.key.as_ref().map(|key| key.key.clone()),
        tags: new.tags.clone(),
        queue: new.queue.clone(),
        priority: new.priority,
        parent: new.parent.as_ref().map(parent),
        lane: new.lane.clone().filter(|lane| !lane.is_empty()),
        notes: Notes { start_at: (start > now).then_some(start), ..Notes::default() },
        ..Run::fresh(new.id, new.workflow.clone(), new.input.clone(), now)
    };
    if let Some(place) = place {
        wait_in_line(&mut run, place, start);
    }
    run
}

fn parent(new: &NewParent) -> Parent {
    Parent { run: new.lease.run, step: new.step.clone(), detached: new.detached }
}

/// The run that goes on for `old`: it takes over its key, its deadline and its successor.
pub(crate) fn continuation(old: Run, next: RunId, input: Json, now: Timestamp) -> Run {
    let timed_from = old.deadline_at.map(|_| timed_from(&old));
    Run {
        notes: Notes { timed_from, own_time_ms: old.notes.own_time_ms, ..Notes::default() },
        queue: old.queue,
        priority: old.priority,
        key: old.key,
        tags: old.tags,
        deadline_at: old.deadline_at,
        paused_at: old.paused_at,
        paused_by: old.paused_by,
        continued_from: Some(old.id),
        successor: old.successor,
        parent: old.parent,
        lane: old.lane,
        ..Run::fresh(next, old.workflow, input, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn run() -> Run {
        Run::fresh(RunId::new(), "index".to_owned(), Json::stored("1"), NOW)
    }

    #[test]
    fn a_claim_keeps_when_the_run_first_started() {
        let (mut run, later) = (run(), Timestamp::from_millis(2_000));
        claim(&mut run, WorkerId::new(), "b1", NOW);
        queue(&mut run, later);
        claim(&mut run, WorkerId::new(), "b2", later);
        assert_eq!((run.attempt, run.started_at, run.due_at), (2, Some(NOW), None));
        assert_eq!(run.build.as_deref(), Some("b2"));
    }

    #[test]
    fn a_build_is_stuck_once() {
        let mut builds = Vec::new();
        for build in [Some("b1"), None, Some("b1"), None] {
            add_stuck_build(&mut builds, build);
        }
        assert_eq!(builds, ["b1", ""]);
    }

    #[test]
    fn a_run_that_ends_before_its_turn_keeps_whom_it_waited_for() {
        let (mut late, first, next) = (run(), RunId::new(), RunId::new());
        assert_eq!(ahead(&late), None);
        late.waits_for = Some(Waits::Behind { run: first, start_at: NOW });
        assert_eq!(ahead(&late), Some(first));
        assert_eq!(end(&mut late, RunState::Failed, NOW), Some(first));
        assert_eq!((ahead(&late), late.waits_for.as_ref()), (Some(first), None));
        assert!(move_behind(&mut late, next));
        assert_eq!(ahead(&late), Some(next));
        retry(&mut late, NOW);
        assert_eq!(ahead(&late), None);
    }

    #[test]
    fn a_continuation_inherits_the_deadline_and_the_successor() {
        let old =
            Run { deadline_at: Some(NOW), successor: Some(RunId::new()), attempt: 3, ..run() };
        let next = continuation(old.clone(), RunId::new(), Json::stored("2"), NOW);
        assert_eq!((next.deadline_at, next.successor), (old.deadline_at, old.successor));
        assert_eq!((next.continued_from, next.attempt), (Some(old.id), 0));
    }

    #[test]
    fn a_deadline_past_the_end_of_time_is_the_end_of_time() {
        assert_eq!(deadline(NOW, Some(i64::MAX)), Some(Timestamp::from_millis(i64::MAX)));
        assert_eq!(deadline(NOW, None), None);
    }
}
