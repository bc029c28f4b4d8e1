//! Steering runs: pausing, forking, and the cancel that reaches children.
//!
//! Owns: [`Steer`], the plain data of its verbs, and the decisions that must be taken inside their
//! transactions. Never changes the state of a run that somebody holds.

use std::collections::BTreeMap;

use super::rules::{is_undo_began, retrying};
use super::{Answer, Conflict, Error, Lease, NewKey, Outage, Trace, WholeRun};
use crate::model::step_id;
use crate::{Entry, Json, Notes, Origin, Record, Run, RunId, RunState, Seed, Timestamp};

/// A store whose runs can be paused and forked, and retried by whoever saw them.
///
/// Beside [`Store`](super::Store), because no run needs it to end. None of its writes comes under a
/// lease: a pause of a running run is a mark that its holder heeds, as a cancel is, and a worker that
/// lost its lease has no part in it.
pub trait Steer: Send + Sync {
    /// Sets the mark of a pause, and counts a wake. A running run is given back by its holder; any
    /// other is not claimed until it is resumed. Again: it stays as it is. On a run that has ended:
    /// `Finished`; that is asked to end: `Ending`.
    fn pause(&self, pause: Pause) -> Answer<'_, Run>;

    /// Takes the mark of a pause away, and counts a wake: the run is queued, or waits, as it stands.
    /// On one that is not paused: `Ok`. On a run that has ended: `Finished`.
    fn resume(&self, run: RunId) -> Answer<'_, Run>;

    /// As [`retry`](super::Store::retry), if the run was not woken since it was seen; says whether it
    /// was not. Again: `false`, since a retry wakes it.
    fn retry_seen(&self, seen: Seen) -> Answer<'_, bool>;

    /// Starts a run with the records that another has before a step. Again, with the same id: the
    /// run that is there. `NoSuchStep`, `ChildOpen`, `CallbackOpen`, and `KeyTaken` when the key is in use.
    fn fork(&self, fork: Fork) -> Answer<'_, Run>;

    /// Asks the children of runs that are asked to end, or were cancelled, to end too, at most
    /// `CASCADE_BATCH_MAX` of them; says whether another pass would find more. A sweep does the same.
    fn cascade(&self) -> Answer<'_, bool>;
}

/// A pause.
#[derive(Clone, Debug)]
pub struct Pause {
    /// The run.
    pub run: RunId,
    /// Who pauses it.
    pub caller: String,
}

/// A run, as somebody saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The run.
    pub run: RunId,
    /// How often it had been woken.
    pub wakes: u64,
}

/// A running run that somebody asked to end, or paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The run, in the attempt that holds it.
    pub lease: Lease,
    /// What its holder is asked.
    pub asks: Asks,
}

/// What the holder of a marked run is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// To end it.
    End,
    /// To let what executes finish, begin nothing, and give it back.
    Pause,
}

/// A run to start with the first records of another.
#[derive(Clone, Debug)]
pub struct Fork {
    /// Its name, made by the engine: a repeated fork is known by it.
    pub id: RunId,
    /// The run whose records it begins with.
    pub run: RunId,
    /// The step whose records, and all that come after the first of them, it does without.
    pub step: String,
    /// Its input; `None`: that of the other run.
    pub input: Option<Json>,
    /// Its key.
    pub key: Option<NewKey>,
    /// What takes the place of the payloads of the other run, where those are bound to their run.
    pub rewritten: Option<Rewritten>,
}

/// The payloads of a run, as they are stored for its fork.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The fork's input.
    pub input: Json,
    /// What its records say, by their numbers.
    pub entries: BTreeMap<u64, Entry>,
}

/// Whether a pause has something to do: `false` means that an earlier one did it.
pub(crate) fn pausing(run: &Run) -> Result<bool, Error> {
    check_live(run)?;
    if run.cancel_at.is_some() {
        return Err(Error::Conflict(Conflict::Ending { run: run.id }));
    }
    Ok(run.paused_at.is_none())
}

/// Whether a resume has something to do: `false` means that the run is not paused.
pub(crate) fn resuming(run: &Run) -> Result<bool, Error> {
    check_live(run)?;
    Ok(run.paused_at.is_some())
}

fn check_live(run: &Run) -> Result<(), Error> {
    match run.state.is_final() {
        true => Err(Error::Conflict(Conflict::Finished { run: run.id })),
        false => Ok(()),
    }
}

/// Marks a run as paused.
pub(crate) fn pause(run: &mut Run, caller: &str, now: Timestamp) {
    run.paused_at = Some(now);
    run.paused_by = Some(caller.to_owned());
    run.wakes += 1;
}

/// Lets a paused run go on, and counts it as a wake-up.
pub(crate) fn resume(run: &mut Run) {
    unpause(run);
    run.wakes += 1;
}

/// Takes the mark of a pause away.
pub(crate) fn unpause(run: &mut Run) {
    run.paused_at = None;
    run.paused_by = None;
}

/// The run that `fork` makes of `whole`, with its records, its attempts and what else belongs to it;
/// its hold on its key is the store's.
///
/// It begins as if the attempts that made its records had been its own, so that it is known which
/// build made which of them. With another input it may well go another way than they did, so then
/// their builds are forgotten, and records that nobody asks for are taken as a change of code is.
pub(crate) fn forked(whole: WholeRun, fork: &Fork, now: Timestamp) -> Result<WholeRun, Error> {
    let source = whole.run;
    let has_turned_back = whole.records.iter().any(is_undo_began);
    let mut records = records_before(source.id, whole.records, &fork.step)?;
    // What it did was undone, or will be: a fork must not take it for done.
    if has_turned_back && records.iter().any(|record| matches!(record.entry, Entry::Done(_))) {
        return Err(Error::Conflict(Conflict::Undone { run: source.id }));
    }
    if let Some(rewritten) = &fork.rewritten {
        rewrite(&mut records, rewritten)?;
    }
    // It was done by another run, which still has it: that one undoes it if it turns back.
    records.iter_mut().for_each(|record| record.undoable = false);
    let attempt = records.iter().map(|record| record.attempt).max().unwrap_or(0);
    let known = |number: u32| match whole.attempts.get(&number) {
        Some(trace) => Some(trace.build.clone()),
        None if number == source.attempt => source.build.clone(),
        None => None,
    };
    let build_of = |number| match &fork.input {
        Some(_) => String::new(),
        None => known(number).unwrap_or_default(),
    };
    let attempts =
        (1..=attempt).map(|number| (number, Trace { build: build_of(number), settled: None }));
    let attempts = attempts.collect();
    let given = fork.rewritten.as_ref().map(|rewritten| &rewritten.input);
    let input = given.or(fork.input.as_ref()).unwrap_or(&source.input).clone();
    let notes = Notes { origin: origin(&source, &records), ..Notes::default() };
    let run = Run {
        notes,
        queue: source.queue,
        priority: source.priority,
        lane: source.lane,
        key: fork.key.as_ref().map(|key| key.key.clone()),
        tags: source.tags,
        attempt,
        // Signals that come are numbered on from those whose records are copied.
        signals: source.signals,
        forked_from: Some(source.id),
        ..Run::fresh(fork.id, source.workflow, input, now)
    };
    Ok(WholeRun {
        run,
        records,
        attempts,
        failed_step: None,
        hold: None,
        suppressed: Vec::new(),
        signals: Vec::new(),
        log: Vec::new(),
        cascades: false,
    })
}

/// What the function of a run was given besides these first records of its.
fn origin(source: &Run, records: &[Record]) -> Option<Origin> {
    let until = records.last()?.seq;
    let before = source.notes.origin.as_ref();
    let began_at = before.map(|before| before.began_at).or(source.started_at)?;
    let mut seeds = before.map_or_else(Vec::new, |before| before.seeds.clone());
    // The source may be a fork: its first records were made with the chance of others.
    seeds.push(Seed { run: source.id, until: u64::MAX });
    seeds.truncate(1 + seeds.iter().take_while(|seed| seed.until < until).count());
    if let Some(last) = seeds.last_mut() {
        last.until = until;
    }
    Some(Origin { began_at, seeds })
}

/// Lets records say what was rewritten of them.
fn rewrite(records: &mut [Record], rewritten: &Rewritten) -> Result<(), Error> {
    for record in records {
        let Some(entry) = rewritten.entries.get(&record.seq) else {
            let why = "the run went on while its records were rewritten for the fork";
            return Err(Error::Unavailable(Outage::NoAnswer, why.into()));
        };
        record.entry = entry.clone();
    }
    Ok(())
}

/// Whether a record is of the step that a fork is named after.
fn is_of(record: &Record, step: &str) -> bool {
    let name = match record.entry {
        // A signal, or a child's end: without its number.
        Entry::Arrived(_) => record.step.rsplit_once('#').map_or(&*record.step, |(it, _)| it),
        _ => step_id::base(&record.step),
    };
    record.step == step || name == step
}

/// Whether a record is one from which on a fork does without: the first of its step that counts.
pub(crate) fn forks_at(record: &Record, step: &str) -> bool {
    record.voided_at.is_none() && is_of(record, step)
}

/// Whether a run with this history, made at this time, was forked at a step from the run `source`: it
/// begins with the very records that come before the step there.
pub(crate) fn is_forked_at(
    history: &[Record],
    made_at: Timestamp,
    source: (RunId, Vec<Record>),
    step: &str,
) -> bool {
    let place = |record: &Record| (record.seq, record.step.clone(), record.attempt, record.at);
    let Ok(before) = records_before(source.0, source.1, step) else { return false };
    let Some((copied, own)) = history.split_at_checked(before.len()) else { return false };
    // Its own attempts come after those whose records it took along, and after it was made.
    let latest = before.iter().map(|record| record.attempt).max().unwrap_or(0);
    let is_own = |record: &Record| record.attempt > latest && record.at >= made_at;
    copied.iter().map(place).eq(before.iter().map(place)) && own.iter().all(is_own)
}

/// The records that come before the first of a step, without that step's own.
fn records_before(run: RunId, mut records: Vec<Record>, step: &str) -> Result<Vec<Record>, Error> {
    let Some(first) = records.iter().find(|it| forks_at(it, step)).map(|record| record.seq) else {
        return Err(Error::Conflict(Conflict::NoSuchStep { run }));
    };
    records.retain(|record| record.seq < first && !is_of(record, step));
    check_outside(run, &records)?;
    Ok(records)
}

/// Refuses records of something outside the run that is still to come: it comes to the run that asked
/// for it, and a fork would wait for it for ever.
fn check_outside(run: RunId, records: &[Record]) -> Result<(), Error> {
    let counted = || records.iter().filter(|it| it.voided_at.is_none());
    let arrived = |step: &str| {
        let mut arrived = counted().filter(|it| matches!(it.entry, Entry::Arrived(_)));
        arrived.any(|it| it.step.rsplit_once('#').is_some_and(|(name, _)| name == step))
    };
    let mut started = counted().filter_map(|it| it.step.strip_suffix(step_id::STARTED));
    if started.any(|child| step_id::is_child(child) && !arrived(child)) {
        return Err(Error::Conflict(Conflict::ChildOpen { run }));
    }
    let issued = counted().filter_map(|it| Some((it.seq, step_id::callback_number(&it.step)?)));
    for (seq, number) in issued {
        let name = step_id::callback_signal(number);
        let is_answered = arrived(&step_id::signal(&name));
        let is_over = counted().any(|it| it.step == step_id::timeout(&name));
        // The step that handed the token on is not taken along, where nothing is that came later.
        let may_be_known = counted().any(|it| it.seq > seq);
        if may_be_known && !is_answered && !is_over {
            return Err(Error::Conflict(Conflict::CallbackOpen { run, number }));
        }
    }
    Ok(())
}

/// Whether a record that counts is of this child: that it was started, or how it ended.
pub(crate) fn is_child_record(record: &Record, child: &str) -> bool {
    let step = match record.entry {
        Entry::Arrived(_) => record.step.rsplit_once('#').map(|(name, _)| name),
        _ => record.step.strip_suffix(step_id::STARTED),
    };
    record.voided_at.is_none() && step_id::is_child(child) && step == Some(child)
}

/// What a retry of a run does about the child whose end failed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildAgain {
    /// The child failed: it is retried too, and its new end is told.
    Retry,
    /// The child has ended well since, and tells so again.
    Tell,
    /// The child has not ended: it will tell.
    Await,
    /// Nothing: a child that is cancelled, or refuses a retry, stays so, and its parent is told the
    /// same.
    Leave,
}

/// What a retry of a run does about the child whose end failed it. `undone`: whether the child's undo
/// has begun.
pub(crate) fn child_again(child: &Run, undone: bool) -> ChildAgain {
    match child.state {
        RunState::Failed if retrying(child, undone).is_ok() => ChildAgain::Retry,
        RunState::Completed => ChildAgain::Tell,
        RunState::Failed | RunState::Cancelled => ChildAgain::Leave,
        RunState::Queued | RunState::Running | RunState::Waiting => ChildAgain::Await,
    }
}
