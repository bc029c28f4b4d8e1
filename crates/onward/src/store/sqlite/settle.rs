//! Writes under a lease: records, and the end of an attempt.

use std::borrow::Cow;

use rusqlite::params;

use super::cancel::{release_successor, settled_text};
use super::fault::Fault;
use super::row::{self, json_text, run_blob, run_id, signed, waits_columns, worker_blob};
use super::start::insert_run;
use super::tx::Tx;
use crate::store::{Conflict, End, Error, Lease, Settle, Settled};
use crate::{Entry, Json, Record, Run, RunId, RunState, Timestamp, Waits};

/// Adds records to a run's history.
///
/// The usual case costs one look at the run's row and one insert per record; only when the fence
/// or an index refuses does it look at what is there.
pub(super) fn record(tx: &mut Tx<'_>, lease: Lease, records: &[Record]) -> Result<(), Fault> {
    let held = row::first(
        tx.conn,
        include_str!("sql/record_fence.sql"),
        [run_blob(lease.run)],
        |row| Ok((row.get::<_, i64>(0)?, holds(row, lease)?)),
    )?;
    let (no, holds) = held.unzip();
    if holds == Some(true) && !tx.is_lost(lease.worker)? {
        return add(tx, lease, no.unwrap_or_default(), records);
    }
    for record in records {
        if !is_there(tx, lease, no.unwrap_or_default(), record)? {
            return Err(Error::LeaseLost.into());
        }
    }
    Ok(())
}

/// Whether a row that begins with number, state, attempt and worker is held under this lease.
fn holds(row: &rusqlite::Row<'_>, lease: Lease) -> Result<bool, Fault> {
    Ok(row.get_ref(1)?.as_bytes().is_ok_and(|state| state == b"running")
        && row.get::<_, u32>(2)? == lease.attempt
        && row.get::<_, Option<[u8; 16]>>(3)? == Some(worker_blob(lease.worker)))
}

fn add(tx: &mut Tx<'_>, lease: Lease, no: i64, records: &[Record]) -> Result<(), Fault> {
    for (place, record) in records.iter().enumerate() {
        if insert(tx, lease, no, record)? == Inserted::Refused {
            for earlier in &records[..place] {
                let params = params![no, signed(earlier.seq)];
                tx.execute(include_str!("sql/record_remove.sql"), params)?;
            }
            return add_new(tx, lease, no, records);
        }
    }
    if !records.is_empty() {
        tx.changed(lease.run);
    }
    Ok(())
}

/// Adds those records of which no identical one is there, or none when one of them clashes.
fn add_new(tx: &mut Tx<'_>, lease: Lease, no: i64, records: &[Record]) -> Result<(), Fault> {
    let mut new = Vec::new();
    for record in records {
        if !is_there(tx, lease, no, record)? {
            new.push(record);
        }
    }
    for (place, record) in new.iter().enumerate() {
        let ends = record.entry.kind().is_final();
        let params = params![no, signed(record.seq), ends, record.step];
        let among_new = new[..place].iter().any(|earlier| {
            let both_end = ends && earlier.entry.kind().is_final();
            earlier.seq == record.seq || (both_end && earlier.step == record.step)
        });
        if among_new || tx.exists(include_str!("sql/record_clash.sql"), params)? {
            return Err(Error::Conflict(Conflict::Record { run: lease.run }).into());
        }
    }
    for record in new {
        if insert(tx, lease, no, record)? == Inserted::Refused {
            return Err(Fault::data(format!("record {} of run {no} is refused", record.seq)));
        }
    }
    tx.changed(lease.run);
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Inserted {
    Done,
    /// An index has such a record; nothing was written.
    Refused,
}

fn insert(tx: &Tx<'_>, lease: Lease, no: i64, record: &Record) -> Result<Inserted, Fault> {
    let (body, next_at) = columns(&record.entry)?;
    let result = tx.conn.prepare_cached(include_str!("sql/record_add.sql"))?.execute(params![
        no,
        signed(record.seq),
        record.step,
        record.entry.kind().as_str(),
        body,
        record.try_number,
        lease.attempt,
        record.began_at.as_millis(),
        record.at.as_millis(),
        next_at,
        record.foreign,
        record.voided_at.map(Timestamp::as_millis),
    ]);
    match result {
        Ok(_) => Ok(Inserted::Done),
        Err(error) if Fault::is_constraint(&error) => Ok(Inserted::Refused),
        Err(error) => Err(error.into()),
    }
}

/// Whether a first write of this record left its row.
fn is_there(tx: &Tx<'_>, lease: Lease, no: i64, record: &Record) -> Result<bool, Fault> {
    let (body, next_at) = columns(&record.entry)?;
    let params = params![
        no,
        signed(record.seq),
        record.step,
        record.entry.kind().as_str(),
        body,
        record.try_number,
        lease.attempt,
        next_at,
    ];
    tx.exists(include_str!("sql/record_same.sql"), params)
}

/// The columns `body` and `next_at` of an entry.
fn columns(entry: &Entry) -> Result<(Option<Cow<'_, str>>, Option<i64>), Fault> {
    Ok(match entry {
        Entry::Done(json) => (Some(Cow::Borrowed(json.as_str())), None),
        Entry::Failed(failure) => (Some(Cow::Owned(json_text(failure)?)), None),
        Entry::TryFailed { failure, next_at } => {
            (Some(Cow::Owned(json_text(failure)?)), Some(next_at.as_millis()))
        }
        Entry::Began | Entry::Fired => (None, None),
    })
}

/// A run's row, as far as the end of an attempt needs it.
struct Held {
    no: i64,
    state: String,
    attempt: u32,
    holds: bool,
    wakes: u64,
    cancel_asked: bool,
    build: Option<String>,
    successor: Option<RunId>,
    stuck_builds: Option<String>,
}

/// Ends an attempt, with its last records.
pub(super) fn settle(tx: &mut Tx<'_>, lease: Lease, settle: &Settle) -> Result<Settled, Fault> {
    let Some(held) = held(tx, lease)? else { return Err(Error::LeaseLost.into()) };
    if !held.holds
        && let Some(settled) = settled_before(tx, lease, &held)?
    {
        return Ok(settled);
    }
    if !held.holds || tx.is_lost(lease.worker)? {
        return Err(Error::LeaseLost.into());
    }
    if !settle.records.is_empty() {
        add(tx, lease, held.no, &settle.records)?;
    }
    tx.changed(lease.run);
    end(tx, lease, held, &settle.end)
}

fn held(tx: &Tx<'_>, lease: Lease) -> Result<Option<Held>, Fault> {
    row::first(tx.conn, include_str!("sql/settle_fence.sql"), [run_blob(lease.run)], |row| {
        Ok(Held {
            no: row.get(0)?,
            state: row.get(1)?,
            attempt: row.get(2)?,
            holds: holds(row, lease)?,
            wakes: u64::try_from(row.get::<_, i64>(4)?).map_err(Fault::data)?,
            cancel_asked: row.get::<_, Option<i64>>(5)?.is_some(),
            build: row.get(6)?,
            successor: row.get::<_, Option<[u8; 16]>>(7)?.map(run_id),
            stuck_builds: row.get(8)?,
        })
    })
}

/// What a settle of this attempt answered, if there was one.
fn settled_before(tx: &Tx<'_>, lease: Lease, held: &Held) -> Result<Option<Settled>, Fault> {
    let sql = include_str!("sql/settle_trace.sql");
    let trace: Option<Option<String>> =
        row::first(tx.conn, sql, params![held.no, lease.attempt], |row| Ok(row.get(0)?))?;
    if let Some(settled) = trace {
        return settled.map(|text| settled_of(&text)).transpose();
    }
    // An attempt without a trace whose number is the last of a finished run is what ended it.
    let ended = matches!(held.state.as_str(), "completed" | "failed" | "cancelled")
        && held.attempt == lease.attempt
        && lease.attempt > 0;
    Ok(ended.then_some(Settled::AsSaid))
}

fn settled_of(text: &str) -> Result<Settled, Fault> {
    match text {
        "as_said" => Ok(Settled::AsSaid),
        "queued" => Ok(Settled::Queued),
        _ => Err(Fault::data(format!("no settle answers {text:?}"))),
    }
}

fn end(tx: &mut Tx<'_>, lease: Lease, held: Held, end: &End) -> Result<Settled, Fault> {
    let waiting = |waits_for, wake_at| Park { waits_for, wake_at, stuck_builds: None };
    match end {
        End::Completed(output) => {
            keep_output(tx, held.no, Some(output.as_str()), None)?;
            finish(tx, &held, RunState::Completed, None)
        }
        End::Failed { failure, step } => {
            keep_output(tx, held.no, None, Some(json_text(failure)?))?;
            finish(tx, &held, RunState::Failed, step.as_deref())
        }
        End::Cancelled => finish(tx, &held, RunState::Cancelled, None),
        // A cancel that met the continuation half-way must not be lost with the old run.
        End::Continued { .. } if held.cancel_asked => {
            finish(tx, &held, RunState::Cancelled, None)
        }
        End::Continued { run, input } => continue_as(tx, lease.run, &held, *run, input),
        End::Parked { wake_at, waits_for, wakes_seen } => {
            park(tx, &held, *wakes_seen, waiting(waits_for.clone(), *wake_at))
        }
        End::Stuck { code, detail, wakes_seen } => {
            let waits_for =
                Waits::Stuck { code: code.as_str().to_owned(), detail: detail.clone() };
            let stuck_builds = Some(stuck_builds_with(&held)?);
            park(tx, &held, *wakes_seen, Park { stuck_builds, ..waiting(waits_for, None) })
        }
        End::Released => release(tx, &held),
    }
}

fn keep_output(
    tx: &Tx<'_>,
    no: i64,
    output: Option<&str>,
    failure: Option<String>,
) -> Result<(), Fault> {
    tx.execute(include_str!("sql/settle_output.sql"), params![no, output, failure])?;
    Ok(())
}

/// Puts a run into a final state and lets the one behind it go.
fn finish(
    tx: &mut Tx<'_>,
    held: &Held,
    state: RunState,
    failed_step: Option<&str>,
) -> Result<Settled, Fault> {
    let successor = held.successor.map(run_blob);
    let params = params![
        held.no,
        state.as_str(),
        tx.now.as_millis(),
        failed_step,
        None::<[u8; 16]>,
        successor
    ];
    tx.execute(include_str!("sql/settle_end.sql"), params)?;
    release_successor(tx, held.successor)?;
    Ok(Settled::AsSaid)
}

/// Ends the run and starts the one that goes on, which takes over its key and its successor.
fn continue_as(
    tx: &mut Tx<'_>,
    run: RunId,
    held: &Held,
    next: RunId,
    input: &Json,
) -> Result<Settled, Fault> {
    let old = tx.row(run)?.run;
    let params = params![
        held.no,
        RunState::Completed.as_str(),
        tx.now.as_millis(),
        None::<String>,
        run_blob(next),
        None::<[u8; 16]>
    ];
    tx.execute(include_str!("sql/settle_end.sql"), params)?;
    let fresh = Run {
        queue: old.queue,
        priority: old.priority,
        key: old.key,
        tags: old.tags,
        deadline_at: old.deadline_at,
        continued_from: Some(run),
        successor: held.successor,
        ..Run::fresh(next, old.workflow, input.clone(), tx.now)
    };
    let no = insert_run(tx, &fresh)?;
    let params = params![fresh.workflow, fresh.key, held.no, no];
    tx.execute(include_str!("sql/continue_key.sql"), params)?;
    move_behind(tx, held.successor, next)?;
    Ok(Settled::AsSaid)
}

/// Lets the run that waits behind one wait behind another.
fn move_behind(tx: &mut Tx<'_>, successor: Option<RunId>, next: RunId) -> Result<(), Fault> {
    let Some(id) = successor else { return Ok(()) };
    let Some(mut row) = row::by_id(tx.conn, id)? else { return Ok(()) };
    if let Some(Waits::Behind { run, .. }) = &mut row.run.waits_for {
        *run = next;
        row.save(tx.conn)?;
        tx.changed(id);
    }
    Ok(())
}

/// How a run waits after its attempt.
struct Park {
    waits_for: Waits,
    wake_at: Option<Timestamp>,
    /// `None`: as they are.
    stuck_builds: Option<String>,
}

/// Lets a run wait, or queues it when it was woken since its holder last looked.
fn park(tx: &mut Tx<'_>, held: &Held, wakes_seen: u64, park: Park) -> Result<Settled, Fault> {
    let builds = park.stuck_builds.as_ref().or(held.stuck_builds.as_ref()).map(String::as_str);
    if wakes_seen != held.wakes {
        keep_trace(tx, held, Settled::Queued)?;
        let params = params![
            held.no,
            RunState::Queued.as_str(),
            tx.now.as_millis(),
            None::<String>,
            None::<String>,
            builds,
            0
        ];
        tx.execute(include_str!("sql/settle_park.sql"), params)?;
        tx.work();
        return Ok(Settled::Queued);
    }
    keep_trace(tx, held, Settled::AsSaid)?;
    let waits = waits_columns(Some(&park.waits_for))?;
    let wake_at = park.wake_at.map(Timestamp::as_millis);
    let state = RunState::Waiting.as_str();
    // The index of stuck runs is made of their builds, so a stuck run has at least an empty list.
    let builds = builds.or(waits.stuck.as_ref().map(|_| "[]"));
    let params = params![held.no, state, wake_at, waits.waits_for, waits.stuck, builds, 0];
    tx.execute(include_str!("sql/settle_park.sql"), params)?;
    if wake_at.is_some() {
        tx.work();
    }
    Ok(Settled::AsSaid)
}

fn release(tx: &mut Tx<'_>, held: &Held) -> Result<Settled, Fault> {
    keep_trace(tx, held, Settled::AsSaid)?;
    let params = params![
        held.no,
        RunState::Queued.as_str(),
        tx.now.as_millis(),
        None::<String>,
        None::<String>,
        held.stuck_builds,
        1
    ];
    tx.execute(include_str!("sql/settle_park.sql"), params)?;
    tx.work();
    Ok(Settled::AsSaid)
}

fn keep_trace(tx: &Tx<'_>, held: &Held, settled: Settled) -> Result<(), Fault> {
    let build = held.build.as_deref().unwrap_or_default();
    let params = params![held.no, held.attempt, build, settled_text(settled)];
    tx.execute(include_str!("sql/settle_keep.sql"), params)?;
    Ok(())
}

/// The builds under which the run got stuck, with the holder's.
fn stuck_builds_with(held: &Held) -> Result<String, Fault> {
    let mut builds: Vec<String> = match &held.stuck_builds {
        Some(text) => serde_json::from_str(text).map_err(Fault::data)?,
        None => Vec::new(),
    };
    let build = held.build.clone().unwrap_or_default();
    if !builds.contains(&build) {
        builds.push(build);
    }
    json_text(&builds)
}
