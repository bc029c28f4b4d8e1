//! Every payload of what goes into a store or comes out of it.
//!
//! Owns: the one list of them. Each type is taken apart whole, so that a new field does not compile
//! until somebody has said whether it is a payload. Never encodes or decodes; a [`Visit`] does.

use crate::codec::PayloadPlace;
use crate::store::{
    Claimed, End, Fork, Gather, Inbox, KeyAnswer, KeyEnd, NewKey, NewRun, NewSignal, Note,
    PutSchedule, Settle, SettleKey, Signal, StepKey, TakeKey, WholeRun,
};
use crate::{
    Entry, Failure, Fingerprint, Json, KeyState, LogLine, Record, Run, RunId, Schedule, Waits,
};

/// What is done to each payload.
pub(super) trait Visit {
    /// A payload.
    fn json(&mut self, place: PayloadPlace<'_>, json: &mut Json);

    /// The input of a run; `debounced`: where it is bound to if it was debounced.
    fn input(
        &mut self,
        place: PayloadPlace<'_>,
        debounced: Option<PayloadPlace<'_>>,
        input: &mut Json,
    );

    /// The message and details of a failure. Its code stays readable.
    fn failure(&mut self, place: PayloadPlace<'_>, failure: &mut Failure);

    /// A text for people that may quote a payload.
    fn text(&mut self, place: PayloadPlace<'_>, text: &mut String);

    /// The fingerprint of a payload, as its maker gives it.
    fn fingerprint(&mut self, fingerprint: &mut Fingerprint);

    /// What a signal carries; `child`: the run whose end it tells of.
    fn signal(&mut self, place: PayloadPlace<'_>, child: Option<RunId>, body: &mut Json);
}

pub(super) fn new_run(new: &mut NewRun, visit: &mut dyn Visit) {
    let NewRun {
        id,
        input,
        key,
        workflow,
        queue: _,
        lane: _,
        priority: _,
        start_at: _,
        timeout_ms: _,
        tags: _,
        caller: _,
        parent: _,
        claimant: _,
    } = new;
    let mut place = PayloadPlace::Input { run: *id };
    if let Some(NewKey { fingerprint, key, gather, ttl_ms: _, on_conflict: _ }) = key {
        visit.fingerprint(fingerprint);
        if let Some(Gather::Debounce { ms: _, max_ms: _ }) = gather {
            place = PayloadPlace::Debounced { workflow, key };
        }
    }
    visit.json(place, input);
}

pub(super) fn run(run: &mut Run, visit: &mut dyn Visit) {
    let Run {
        id,
        input,
        output,
        failure,
        waits_for,
        workflow,
        key,
        state: _,
        queue: _,
        lane: _,
        priority: _,
        attempt: _,
        worker: _,
        build: _,
        created_at: _,
        due_at: _,
        started_at: _,
        finished_at: _,
        deadline_at: _,
        cancel_at: _,
        paused_at: _,
        paused_by: _,
        wakes: _,
        crashes: _,
        stuck_builds: _,
        duplicates: _,
        retried_at: _,
        tags: _,
        continued_from: _,
        continued_as: _,
        successor: _,
        code_change: _,
        signals: _,
        parent: _,
        forked_from: _,
        notes: _,
    } = run;
    let key = key.as_deref();
    let debounced = key.map(|key| PayloadPlace::Debounced { workflow, key });
    visit.input(PayloadPlace::Input { run: *id }, debounced, input);
    if let Some(output) = output {
        visit.json(PayloadPlace::Output { run: *id }, output);
    }
    if let Some(failure) = failure {
        visit.failure(PayloadPlace::Failure { run: *id }, failure);
    }
    if let Some(waits) = waits_for {
        self::waits(*id, waits, visit);
    }
}

/// The input of a run, alone.
pub(super) fn input_of(run: Run, visit: &mut dyn Visit) -> Json {
    let Run { id, mut input, workflow, key, .. } = run;
    let debounced = key.as_deref().map(|key| PayloadPlace::Debounced { workflow: &workflow, key });
    visit.input(PayloadPlace::Input { run: id }, debounced, &mut input);
    input
}

/// A fork, and the input that it is stored with.
pub(super) fn fork(fork: &mut Fork, input: &mut Json, visit: &mut dyn Visit) {
    let Fork { id, key, run: _, step: _, input: _, rewritten: _ } = fork;
    visit.json(PayloadPlace::Input { run: *id }, input);
    if let Some(NewKey { fingerprint, key: _, ttl_ms: _, on_conflict: _, gather: _ }) = key {
        visit.fingerprint(fingerprint);
    }
}

fn waits(run: RunId, waits: &mut Waits, visit: &mut dyn Visit) {
    match waits {
        Waits::Stuck { detail, code: _ } => visit.text(PayloadPlace::Stuck { run }, detail),
        Waits::Start
        | Waits::Debounce
        | Waits::Timer { step: _ }
        | Waits::Retry { step: _, try_number: _ }
        | Waits::Key { step: _, key: _ }
        | Waits::Backoff { crashes: _ }
        | Waits::Behind { run: _, start_at: _ }
        | Waits::Signal { name: _ }
        | Waits::Child { run: _ }
        | Waits::Readable { detail: _ } => {}
    }
}

pub(super) fn record(run: RunId, record: &mut Record, visit: &mut dyn Visit) {
    let kind = record.entry.kind();
    let Record {
        step,
        entry,
        try_number,
        seq: _,
        attempt: _,
        began_at: _,
        at: _,
        foreign: _,
        undoable: _,
        voided_at: _,
    } = record;
    let place = PayloadPlace::Record { run, step, kind, try_number: *try_number };
    match entry {
        Entry::Done(json) | Entry::Arrived(json) => visit.json(place, json),
        Entry::Failed(failure) | Entry::TryFailed { failure, next_at: _ } => {
            visit.failure(place, failure);
        }
        Entry::Began | Entry::Fired => {}
    }
}

pub(super) fn note(run: RunId, note: &mut Note, visit: &mut dyn Visit) {
    let Note { lines, progress: _, tags: _, noted: _ } = note;
    lines.iter_mut().for_each(|line| log_line(run, line, visit));
}

pub(super) fn log_line(run: RunId, line: &mut LogLine, visit: &mut dyn Visit) {
    let LogLine { no, text, at: _, step: _, try_number: _ } = line;
    visit.text(PayloadPlace::Log { run, no: *no }, text);
}

pub(super) fn settle(run: RunId, settle: &mut Settle, visit: &mut dyn Visit) {
    let Settle { follows: _, records, end, unasked: _ } = settle;
    records.iter_mut().for_each(|new| record(run, new, visit));
    match end {
        End::Completed(output) => visit.json(PayloadPlace::Output { run }, output),
        End::Failed { failure, step: _ } => visit.failure(PayloadPlace::Failure { run }, failure),
        End::Continued { run, input, undelivered: _ } => {
            visit.json(PayloadPlace::Input { run: *run }, input)
        }
        End::Stuck { detail, code: _, wakes_seen: _ } => {
            visit.text(PayloadPlace::Stuck { run }, detail);
        }
        End::Parked { waits_for, wake_at: _, wakes_seen: _ } => waits(run, waits_for, visit),
        End::Cancelled | End::Released => {}
    }
}

pub(super) fn new_signal(new: &mut NewSignal, visit: &mut dyn Visit) {
    let NewSignal { run, name, key, fingerprint, body, step: _ } = new;
    visit.fingerprint(fingerprint);
    visit.json(PayloadPlace::Signal { run: *run, name, key }, body);
}

pub(super) fn signal(run: RunId, signal: &mut Signal, visit: &mut dyn Visit) {
    // It carries nothing any more.
    if signal.is_carried() {
        return;
    }
    let Signal { name, step, key, body, no: _, fingerprint: _, at: _ } = signal;
    // A sender's own signal is recorded as another step than its name.
    let child = if name == step { key.parse().ok() } else { None };
    visit.signal(PayloadPlace::Signal { run, name, key }, child, body);
}

pub(super) fn inbox(run: RunId, inbox: &mut Inbox, visit: &mut dyn Visit) {
    let Inbox { signals, wakes: _, cancel_asked: _, paused: _, rest: _ } = inbox;
    signals.iter_mut().for_each(|one| signal(run, one, visit));
}

pub(super) fn claimed(claimed: &mut Claimed, visit: &mut dyn Visit) {
    let Claimed {
        run,
        history,
        signals,
        signals_to: _,
        lease: _,
        last_seq: _,
        voided_seq: _,
        builds: _,
        unreadable: _,
    } = claimed;
    let id = run.id;
    self::run(run, visit);
    history.iter_mut().for_each(|one| record(id, one, visit));
    signals.iter_mut().for_each(|one| signal(id, one, visit));
}

pub(super) fn whole_run(whole: &mut WholeRun, visit: &mut dyn Visit) {
    let WholeRun {
        run,
        records,
        signals,
        log,
        attempts: _,
        failed_step: _,
        // Its fingerprint stays as it is stored: from it nothing can be told.
        hold: _,
        suppressed: _,
        cascades: _,
    } = whole;
    let id = run.id;
    self::run(run, visit);
    records.iter_mut().for_each(|one| record(id, one, visit));
    signals.iter_mut().for_each(|one| signal(id, one, visit));
    log.iter_mut().for_each(|line| log_line(id, line, visit));
}

pub(super) fn take_key(take: &mut TakeKey, visit: &mut dyn Visit) {
    let TakeKey { fingerprint, key: _, holder: _, lease_ms: _, counted: _, seen_expired: _ } = take;
    if let Some(fingerprint) = fingerprint {
        visit.fingerprint(fingerprint);
    }
}

pub(super) fn settle_key(key: &str, settle: &mut SettleKey, visit: &mut dyn Visit) {
    let SettleKey { end, ttl_ms: _ } = settle;
    match end {
        KeyEnd::Done(result) => visit.json(done(key), result),
        KeyEnd::Failed(failure) => visit.failure(failed(key), failure),
        KeyEnd::Free => {}
    }
}

pub(super) fn key_answer(key: &str, answer: &mut KeyAnswer, visit: &mut dyn Visit) {
    match answer {
        KeyAnswer::Done(result) => visit.json(done(key), result),
        KeyAnswer::Failed(failure) => visit.failure(failed(key), failure),
        KeyAnswer::Held(_) | KeyAnswer::Busy(_) | KeyAnswer::OtherInput { holder: _ } => {}
    }
}

pub(super) fn step_key(step_key: &mut StepKey, visit: &mut dyn Visit) {
    let StepKey {
        key,
        result,
        failure,
        state: _,
        holder: _,
        token: _,
        fingerprint: _,
        taken_at: _,
        settled_at: _,
        until: _,
        duplicates: _,
    } = step_key;
    if let Some(result) = result {
        visit.json(done(key), result);
    }
    if let Some(failure) = failure {
        visit.failure(failed(key), failure);
    }
}

fn done(key: &str) -> PayloadPlace<'_> {
    PayloadPlace::StepKey { key, state: KeyState::Done }
}

fn failed(key: &str) -> PayloadPlace<'_> {
    PayloadPlace::StepKey { key, state: KeyState::Failed }
}

pub(super) fn put_schedule(put: &mut PutSchedule, visit: &mut dyn Visit) {
    let PutSchedule {
        name,
        input,
        spec: _,
        workflow: _,
        queue: _,
        lane: _,
        priority: _,
        timeout_ms: _,
        tags: _,
        overlap: _,
        catch_up: _,
        next_at: _,
    } = put;
    visit.json(PayloadPlace::Schedule { name }, input);
}

pub(super) fn schedule(schedule: &mut Schedule, visit: &mut dyn Visit) {
    let Schedule {
        name,
        input,
        spec: _,
        workflow: _,
        queue: _,
        lane: _,
        priority: _,
        timeout_ms: _,
        tags: _,
        overlap: _,
        catch_up: _,
        generation: _,
        created_at: _,
        changed_at: _,
        paused_at: _,
        next_at: _,
        latest: _,
    } = schedule;
    visit.json(PayloadPlace::Schedule { name }, input);
}
