//! The end of an attempt, with its last records.
//!
//! Owns: what each end does to a run's row, and the trace by which a repeat is known. Never
//! settles for whoever does not hold the run.

use rusqlite::params;

use super::fault::Fault;
use super::queues;
use super::record::{self, add, holds};
use super::row::{self, json_text, run_blob, run_id, waits_columns};
use super::signal::{take_over, tell_parent};
use super::start::insert_run;
use super::turn;
use super::tx::Tx;
use crate::store::{Conflict, End, Error, Lease, Settle, Settled};
use crate::store::{column, rules};
use crate::{Json, RunId, RunState, Timestamp, Waits};

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
    has_parent: bool,
    queue: String,
}

/// Ends an attempt, with its last records.
pub(super) fn settle(tx: &mut Tx<'_>, lease: Lease, settle: &Settle) -> Result<Settled, Fault> {
    let Some(held) = held(tx, lease)? else {
        return Err(Error::LeaseLost.into());
    };
    if !held.holds
        && let Some(settled) = settled_before(tx, lease, &held)?
    {
        return Ok(settled);
    }
    if !held.holds || tx.is_lost(lease.worker)? {
        return Err(Error::LeaseLost.into());
    }
    if !record::follows(tx, held.no, &settle.follows)? {
        return Err(Error::HistoryLost.into());
    }
    check_continuation(tx, lease.run, &held, &settle.end)?;
    if !settle.records.is_empty() {
        add(tx, lease, held.no, &settle.records)?;
    }
    if !settle.unasked.is_empty() {
        let change = rules::code_change(held.build.as_deref(), &settle.unasked, tx.now);
        let params = params![held.no, json_text(&change)?];
        tx.execute(include_str!("sql/settle_note.sql"), params)?;
    }
    tx.changed(lease.run);
    // Whoever was held back by a limit of the queue may take a run now.
    if queues::is_set_up(tx, &held.queue)? {
        tx.work();
    }
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
            has_parent: row.get(9)?,
            queue: row.get(10)?,
        })
    })
}

/// What a settle of this attempt answered, if there was one.
fn settled_before(tx: &Tx<'_>, lease: Lease, held: &Held) -> Result<Option<Settled>, Fault> {
    let sql = include_str!("sql/settle_trace.sql");
    let trace: Option<Option<String>> =
        row::first(tx.conn, sql, params![held.no, lease.attempt], |row| Ok(row.get(0)?))?;
    if let Some(settled) = trace {
        return settled.map(|text| column::settled(&text)).transpose().map_err(Fault::data);
    }
    // An attempt without a trace whose number is the last of a finished run is what ended it.
    let ended = held.state.parse().is_ok_and(RunState::is_final)
        && held.attempt == lease.attempt
        && lease.attempt > 0;
    Ok(ended.then_some(Settled::AsSaid))
}

/// Refuses to go on if the run is asked to end, or as a run that is there, before anything is written.
fn check_continuation(tx: &Tx<'_>, run: RunId, held: &Held, end: &End) -> Result<(), Fault> {
    let End::Continued { run: next, .. } = end else { return Ok(()) };
    rules::check_continues(run, held.cancel_asked)?;
    if tx.exists(include_str!("sql/record_fence.sql"), [run_blob(*next)])? {
        return Err(Error::Conflict(Conflict::Record { run }).into());
    }
    Ok(())
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
        End::Continued { run, input, undelivered } => {
            for step in undelivered {
                let params = params![held.no, step, tx.now.as_millis()];
                tx.execute(include_str!("sql/retry_void_signal.sql"), params)?;
            }
            continue_as(tx, lease.run, &held, *run, input)
        }
        End::Parked { wake_at, waits_for, wakes_seen } => {
            park(tx, &held, *wakes_seen, waiting(waits_for.clone(), *wake_at))
        }
        End::Stuck { code, detail, wakes_seen } => {
            let waits_for = Waits::Stuck { code: code.as_str().to_owned(), detail: detail.clone() };
            let stuck_builds = Some(stuck_builds_with(&held)?);
            park(tx, &held, *wakes_seen, Park { stuck_builds, ..waiting(waits_for, None) })
        }
        End::Released => release(tx, &held),
    }
}

pub(super) fn keep_output(
    tx: &Tx<'_>,
    no: i64,
    output: Option<&str>,
    failure: Option<String>,
) -> Result<(), Fault> {
    tx.wrote(output.map_or(0, str::len) + failure.as_ref().map_or(0, String::len));
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
    turn::begin(tx, held.successor)?;
    if rules::cascades(state, held.cancel_asked) {
        tx.execute(include_str!("sql/cascade_mark.sql"), [held.no])?;
    }
    if held.has_parent
        && let Some(row) = row::by_no(tx.conn, held.no)?
    {
        tell_parent(tx, &row.run)?;
    }
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
    let fresh = rules::continuation(old, next, input.clone(), tx.now);
    let no = insert_run(tx, &fresh)?;
    let params = params![fresh.workflow, fresh.key, held.no, no];
    tx.execute(include_str!("sql/continue_key.sql"), params)?;
    take_over(tx, held.no, no)?;
    turn::move_behind(tx, held.successor, next)?;
    Ok(Settled::AsSaid)
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
    let params = params![held.no, held.attempt, build, column::of_settled(settled)];
    tx.execute(include_str!("sql/settle_keep.sql"), params)?;
    Ok(())
}

/// The builds under which the run got stuck, with the holder's.
fn stuck_builds_with(held: &Held) -> Result<String, Fault> {
    let mut builds: Vec<String> = match &held.stuck_builds {
        Some(text) => serde_json::from_str(text).map_err(Fault::data)?,
        None => Vec::new(),
    };
    rules::add_stuck_build(&mut builds, held.build.as_deref());
    json_text(&builds)
}
