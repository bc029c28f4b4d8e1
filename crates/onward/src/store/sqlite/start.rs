//! Starting runs, and what a key does to a start.
//!
//! Owns: new runs, their keys, and the audit of duplicates. Never decides what a key that is in
//! use means; `rules` does.

use rusqlite::params;

use super::cancel;
use super::fault::Fault;
use super::queues;
use super::record;
use super::row::{self, Row, json_text, notes_column, run_blob, waits_columns, worker_blob};
use super::turn;
use super::tx::Tx;
use crate::limits::{DUPLICATES_KEPT_MAX, GATHERED_PURGE_BATCH};
use crate::store::gather;
use crate::store::rules::{self, InLine, KeyMet};
use crate::store::{Conflict, Error, NewKey, NewRun, Started, StartedHow};
use crate::{Run, RunId, RunState, Timestamp};

/// Starts runs. A refused one does not refuse the others.
pub(super) fn start(
    tx: &mut Tx<'_>,
    runs: &[NewRun],
) -> Result<Vec<Result<Started, Error>>, Fault> {
    let mut answers = Vec::with_capacity(runs.len());
    for new in runs {
        answers.push(match start_one(tx, new) {
            Ok(started) => Ok(started),
            Err(Fault::Refused(error)) => Err(error),
            Err(fault) => return Err(fault),
        });
    }
    Ok(answers)
}

/// Starts a run, or meets the one that has its key.
pub(super) fn start_one(tx: &mut Tx<'_>, new: &NewRun) -> Result<Started, Fault> {
    if let Some(started) = started_before(tx, new)? {
        return Ok(started);
    }
    check_parent(tx, new)?;
    let Some(key) = &new.key else {
        return insert(tx, new, None);
    };
    if key.gather.is_some()
        && let Some(started) = met_before(tx, new)?
    {
        return Ok(started);
    }
    let sql = include_str!("sql/start_key_holder.sql");
    let params = params![new.workflow, key.key, tx.now.as_millis()];
    let holder = row::first(tx.conn, sql, params, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
    })?;
    match holder {
        None => insert(tx, new, None),
        Some((no, fingerprint)) => {
            let holder = row::by_no(tx.conn, no)?.ok_or(Error::NotFound)?;
            meet_key(tx, new, key, holder, fingerprint == key.fingerprint.0)
        }
    }
}

/// Refuses a child whose parent is not held by who starts it.
fn check_parent(tx: &mut Tx<'_>, new: &NewRun) -> Result<(), Fault> {
    let Some(parent) = &new.parent else { return Ok(()) };
    if record::is_held(tx, parent.lease)? && !tx.is_lost(parent.lease.worker)? {
        return Ok(());
    }
    Err(Error::LeaseLost.into())
}

/// What a repeated start is told: the same as the first time, as far as it still holds.
fn started_before(tx: &Tx<'_>, new: &NewRun) -> Result<Option<Started>, Fault> {
    let sql = include_str!("sql/start_again.sql");
    row::first(tx.conn, sql, [run_blob(new.id)], |row| {
        let worker: Option<[u8; 16]> = row.get(1)?;
        let (attempt, ticket): (u32, Option<i64>) = (row.get(2)?, row.get(3)?);
        let recorded: bool = row.get(4)?;
        let held = new.claimant.as_ref().is_some_and(|claimant| {
            worker == Some(worker_blob(claimant.worker)) && attempt == 1 && ticket.is_none()
        });
        let how = if held && !recorded { StartedHow::Claimed } else { StartedHow::New };
        Ok(Started { run: new.id, how, at: Timestamp::from_millis(row.get(0)?) })
    })
}

fn meet_key(
    tx: &mut Tx<'_>,
    new: &NewRun,
    key: &NewKey,
    holder: Row,
    same_input: bool,
) -> Result<Started, Fault> {
    let met = match key.gather {
        Some(gather) => gather.met(&holder.run, tx.now),
        None => rules::key_met(key.on_conflict, same_input, &holder.run),
    };
    let answer = met.answer(&holder.run, new.id, tx.now);
    if key.gather.is_some() && met != KeyMet::Fresh {
        note_gathered(tx, new, &holder.run)?;
    }
    match met {
        KeyMet::Replace => replace(tx, new, holder)?,
        KeyMet::Retry => cancel::retry_row(tx, holder)?,
        KeyMet::Fresh => return insert(tx, new, None),
        KeyMet::Later => put_off(tx, new, key, holder, same_input)?,
        KeyMet::Existing | KeyMet::OtherInput | KeyMet::Taken => {
            add_duplicate(tx, &holder, new, same_input)?;
        }
    }
    Ok(answer?)
}

/// What a gathered start that is made again is told, if it met a run before.
fn met_before(tx: &Tx<'_>, new: &NewRun) -> Result<Option<Started>, Fault> {
    row::first(tx.conn, include_str!("sql/start_gathered.sql"), [run_blob(new.id)], |row| {
        let created_at = Timestamp::from_millis(row.get(1)?);
        Ok(gather::met_before(row::run_id(row.get(0)?), created_at))
    })
}

/// Notes which run a gathered start met, and forgets a few notes that are too old to be asked for.
fn note_gathered(tx: &Tx<'_>, new: &NewRun, met: &Run) -> Result<(), Fault> {
    let over = params![gather::over(tx.now).as_millis(), row::limit(GATHERED_PURGE_BATCH)];
    tx.execute(include_str!("sql/start_gathered_over.sql"), over)?;
    let (start, run) = (run_blob(new.id), run_blob(met.id));
    let params = params![start, run, met.created_at.as_millis(), tx.now.as_millis()];
    tx.execute(include_str!("sql/start_gather.sql"), params)?;
    Ok(())
}

/// Gives the run that has the key the input of a later start, and puts it off.
fn put_off(
    tx: &mut Tx<'_>,
    new: &NewRun,
    key: &NewKey,
    mut holder: Row,
    same_input: bool,
) -> Result<(), Fault> {
    gather::put_off(&mut holder.run, new, tx.now);
    holder.save(tx.conn)?;
    let params = params![holder.no, new.input.as_str()];
    tx.execute(include_str!("sql/start_input_later.sql"), params)?;
    let params = params![new.workflow, key.key, key.fingerprint.0];
    tx.execute(include_str!("sql/start_key_later.sql"), params)?;
    tx.changed(holder.run.id);
    tx.work();
    add_duplicate(tx, &holder, new, same_input)
}

fn add_duplicate(tx: &Tx<'_>, holder: &Row, new: &NewRun, same_input: bool) -> Result<(), Fault> {
    let params = params![holder.no, run_blob(new.id), tx.now.as_millis(), new.caller, same_input];
    if tx.execute(include_str!("sql/start_duplicate.sql"), params)? == 0 {
        return Ok(());
    }
    let sql = include_str!("sql/start_duplicate_count.sql");
    let count: Option<i64> = row::first(tx.conn, sql, [holder.no], |row| Ok(row.get(0)?))?;
    if count.is_some_and(|count| count > row::limit(DUPLICATES_KEPT_MAX)) {
        tx.execute(include_str!("sql/start_duplicate_drop.sql"), [holder.no])?;
    }
    Ok(())
}

/// Ends the run that has the key and starts the new one behind it.
pub(super) fn replace(tx: &mut Tx<'_>, new: &NewRun, holder: Row) -> Result<(), Fault> {
    let ahead = rules::ahead(&holder.run).unwrap_or(holder.run.id);
    match cancel::cancel_row(tx, holder) {
        Ok(()) | Err(Fault::Refused(Error::Conflict(Conflict::Finished { .. }))) => {}
        Err(fault) => return Err(fault),
    }
    let place = turn::join(tx, ahead, new.id)?;
    // The answer says `Replaced`, not `Claimed`: a claimant would hold the run and not know it.
    let new = NewRun { claimant: None, ..new.clone() };
    insert(tx, &new, place)?;
    Ok(())
}

pub(super) fn insert(
    tx: &mut Tx<'_>,
    new: &NewRun,
    place: Option<InLine>,
) -> Result<Started, Fault> {
    let mut run = rules::fresh(new, place, tx.now);
    if let Some(parent) = &new.parent {
        heed_parent(tx, &mut run, parent.lease.run)?;
    }
    let mut how = StartedHow::New;
    if let Some(claimant) = &new.claimant
        && run.state == RunState::Queued
        && !tx.is_lost(claimant.worker)?
        && !queues::is_set_up(tx, &run.queue)?
    {
        rules::claim(&mut run, claimant.worker, &claimant.build, tx.now);
        how = StartedHow::Claimed;
    }
    let no = insert_run(tx, &run)?;
    if let Some(key) = &new.key {
        let expires_at = key.ttl_ms.map(|ttl| tx.now.as_millis() + ttl);
        let params = params![new.workflow, key.key, no, key.fingerprint.0, expires_at];
        tx.execute(include_str!("sql/start_key.sql"), params)?;
    }
    Ok(Started { run: new.id, how, at: tx.now })
}

/// Gives a child its parent's deadline, where that is sooner. One that is started though its parent is
/// asked to end is asked too.
fn heed_parent(tx: &Tx<'_>, run: &mut Run, parent: RunId) -> Result<(), Fault> {
    let sql = include_str!("sql/start_parent_marks.sql");
    let marks = row::first(tx.conn, sql, [run_blob(parent)], |row| {
        let deadline_at: Option<i64> = row.get(1)?;
        Ok((row.get::<_, i64>(0)?, deadline_at, row.get::<_, bool>(2)?))
    })?;
    let Some((no, deadline_at, cancel_asked)) = marks else { return Ok(()) };
    rules::limit_child(run, deadline_at.map(Timestamp::from_millis));
    if cancel_asked {
        tx.execute(include_str!("sql/cascade_mark.sql"), [no])?;
    }
    Ok(())
}

/// Adds a run's row, its input and its tags, and gives the run's number.
pub(super) fn insert_run(tx: &mut Tx<'_>, run: &Run) -> Result<i64, Fault> {
    tx.execute(
        include_str!("sql/start_run.sql"),
        params![
            run_blob(run.id),
            run.state.as_str(),
            run.attempt,
            run.worker.map(worker_blob),
            run.priority,
            run.due_at.map(Timestamp::as_millis),
            run.workflow,
            run.queue,
            run.build,
            run.successor.map(run_blob),
            waits_columns(run.waits_for.as_ref())?.waits_for,
            run.key,
            run.created_at.as_millis(),
            run.started_at.map(Timestamp::as_millis),
            run.deadline_at.map(Timestamp::as_millis),
            run.continued_from.map(run_blob),
            run.lane,
            notes_column(run)?,
        ],
    )?;
    let no = tx.conn.last_insert_rowid();
    keep_input(tx, no, run)?;
    tx.wrote(run.input.as_str().len());
    keep_parent(tx, no, run)?;
    if let Some(paused_at) = run.paused_at {
        let params = params![no, paused_at.as_millis(), run.paused_by];
        tx.execute(include_str!("sql/start_paused.sql"), params)?;
    }
    tx.changed(run.id);
    if run.due_at.is_some() {
        tx.work();
    }
    Ok(no)
}

/// Keeps whose child a run is.
pub(super) fn keep_parent(tx: &Tx<'_>, no: i64, run: &Run) -> Result<(), Fault> {
    let Some(parent) = &run.parent else { return Ok(()) };
    let params = params![no, run_blob(parent.run), parent.step, parent.detached];
    tx.execute(include_str!("sql/start_parent.sql"), params)?;
    Ok(())
}

/// Keeps what a run was started with, and lets lists find it by its tags.
pub(super) fn keep_input(tx: &Tx<'_>, no: i64, run: &Run) -> Result<(), Fault> {
    let tags = if run.tags.is_empty() { None } else { Some(json_text(&run.tags)?) };
    tx.execute(include_str!("sql/start_input.sql"), params![no, run.input.as_str(), tags])?;
    for (name, value) in &run.tags {
        tx.execute(include_str!("sql/start_tag.sql"), params![name, value, no])?;
    }
    Ok(())
}
