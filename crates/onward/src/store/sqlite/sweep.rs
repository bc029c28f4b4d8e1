//! Workers coming and going, and what becomes of the runs of those that are gone.
//!
//! Owns: the mark that takes a lease away, and taking back what its worker held. Never marks the
//! worker that sweeps.

use rusqlite::params;

use super::cancel::{cancel, end, keep_trace};
use super::claim::{served, wake_due};
use super::fault::Fault;
use super::row::{self, Row, json_text, run_blob, run_id, whole_id, worker_blob, worker_id};
use super::settle::keep_output;
use super::tx::Tx;
use crate::limits::{CASCADE_BACK_MAX, CASCADE_BATCH_MAX, LATE_BATCH_MAX, SWEEP_BATCH_MAX};
use crate::store::rules::{self, Late};
use crate::store::{Error, ExpiredLeases, Lease, NewWorker, Renewed, Sweep, Swept};
use crate::{RunId, RunState, Timestamp, WorkerId};

/// Enters a worker.
pub(super) fn join(tx: &mut Tx<'_>, worker: &NewWorker) -> Result<(), Fault> {
    let id = worker_blob(worker.id);
    let sql = include_str!("sql/worker_lost.sql");
    match row::first(tx.conn, sql, [id], |row| Ok(row.get::<_, bool>(0)?))? {
        Some(true) => return Err(Error::LeaseLost.into()),
        Some(false) => return Ok(()),
        None => {}
    }
    let params = params![
        id,
        worker.build,
        worker.place,
        json_text(&worker.queues)?,
        json_text(&worker.workflows)?,
        worker.lease_ms,
        tx.now.as_millis() + worker.lease_ms,
        worker.concurrency,
    ];
    tx.execute(include_str!("sql/join.sql"), params)?;
    tx.fence_moved();
    Ok(())
}

/// Renews a lease, unless it is lost.
pub(super) fn renew(tx: &Tx<'_>, worker: WorkerId) -> Result<Renewed, Fault> {
    let params = params![worker_blob(worker), tx.now.as_millis()];
    let renewed = row::first(tx.conn, include_str!("sql/renew.sql"), params, |row| {
        Ok(Timestamp::from_millis(row.get(0)?))
    })?;
    let until = renewed.ok_or(Error::LeaseLost)?;
    let held =
        row::all(tx.conn, include_str!("sql/renew_held.sql"), [worker_blob(worker)], |row| {
            let attempt = row.get(1)?;
            Ok(whole_id(row, 0).map(|run| Lease { run: run_id(run), worker, attempt }))
        })?;
    let mut held: Vec<Lease> = held.into_iter().flatten().collect();
    held.sort_unstable_by_key(|lease| lease.run);
    Ok(Renewed { until, held, moved: false })
}

/// Queues one batch of what a worker holds, and ends the worker with the last batch. Returns whether more follow.
pub(super) fn leave(tx: &mut Tx<'_>, worker: WorkerId) -> Result<bool, Fault> {
    let (id, limit) = (worker_blob(worker), row::limit(SWEEP_BATCH_MAX));
    tx.execute(include_str!("sql/leave_trace.sql"), params![id, limit])?;
    let params = params![id, tx.now.as_millis(), limit];
    let sql = include_str!("sql/leave_runs.sql");
    let runs = row::all(tx.conn, sql, params, |row| Ok(whole_id(row, 0)))?;
    let more = runs.len() == SWEEP_BATCH_MAX;
    for run in runs {
        run.into_iter().for_each(|run| tx.changed(run_id(run)));
        tx.work();
    }
    if !more {
        tx.execute(include_str!("sql/worker_lose.sql"), params![id, tx.now.as_millis()])?;
        tx.fence_moved();
    }
    Ok(more)
}

/// Takes back what the dead hold, and wakes what is due. `dead`: workers of this machine whose
/// process is gone, whatever their leases say.
pub(super) fn sweep(tx: &mut Tx<'_>, sweep: &Sweep, dead: &[WorkerId]) -> Result<Swept, Fault> {
    if tx.is_lost(sweep.worker)? {
        return Err(Error::LeaseLost.into());
    }
    let lost = mark_lost(tx, sweep, dead)?;
    let (taken, more_to_take) = take_back(tx, sweep.worker)?;
    let (woken, more_to_wake) = wake_due(tx)?;
    let more_to_end = end_late(tx)?;
    let more_to_mend = mend_stuck(tx, sweep.worker)?;
    let more_to_cancel = cascade(tx)?;
    forget_lost(tx)?;
    let more = more_to_take || more_to_wake || more_to_end || more_to_mend || more_to_cancel;
    Ok(Swept { lost, taken, woken, more, next_at: None })
}

/// Asks the children of cancelled runs to end, and those of the runs that went on as them; says whether
/// more may be left: a child that ends at once may have children itself.
pub(super) fn cascade(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let sql = include_str!("sql/cascade_children.sql");
    let limit = row::limit(CASCADE_BATCH_MAX);
    for _ in 0..CASCADE_BACK_MAX {
        let children = row::all(tx.conn, sql, [limit], |row| Ok(run_id(row.get(0)?)))?;
        for child in &children {
            if !tx.apart(|tx| cancel(tx, *child).map(drop))? {
                let params = params![run_blob(*child), tx.now.as_millis()];
                tx.execute(include_str!("sql/cancel_unread.sql"), params)?;
            }
        }
        if !children.is_empty() {
            return Ok(true);
        }
        let before: Vec<i64> =
            row::all(tx.conn, include_str!("sql/cascade_back.sql"), [], |row| Ok(row.get(0)?))?;
        tx.execute(include_str!("sql/cascade_done.sql"), [])?;
        for run in &before {
            tx.execute(include_str!("sql/cascade_mark.sql"), [run])?;
        }
        if before.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn mark_lost(tx: &mut Tx<'_>, sweep: &Sweep, dead: &[WorkerId]) -> Result<Vec<WorkerId>, Fault> {
    let mut lost = Vec::new();
    if sweep.expired == ExpiredLeases::Take {
        let params = params![tx.now.as_millis(), worker_blob(sweep.worker)];
        let sql = include_str!("sql/sweep_expired.sql");
        let expired = row::all(tx.conn, sql, params, |row| Ok(whole_id(row, 0)))?;
        lost = expired.into_iter().flatten().map(worker_id).collect();
    }
    for worker in dead {
        if *worker != sweep.worker && !tx.is_lost(*worker)? {
            lost.push(*worker);
        }
    }
    lost.sort_unstable();
    lost.dedup();
    for worker in &lost {
        let params = params![worker_blob(*worker), tx.now.as_millis()];
        tx.execute(include_str!("sql/worker_lose.sql"), params)?;
    }
    tx.fence_moved();
    Ok(lost)
}

/// Deletes some of the workers that were lost long ago and hold no run: what is left of them is
/// for the next pass.
fn forget_lost(tx: &Tx<'_>) -> Result<(), Fault> {
    let params =
        params![rules::forget_lost_before(tx.now).as_millis(), row::limit(SWEEP_BATCH_MAX)];
    tx.execute(include_str!("sql/sweep_workers.sql"), params)?;
    Ok(())
}

/// Queues the runs of lost or missing workers; says whether more are left.
fn take_back(tx: &mut Tx<'_>, sweeper: WorkerId) -> Result<(Vec<RunId>, bool), Fault> {
    let mut orphaned: Vec<(Option<RunId>, i64)> = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while orphaned.len() <= SWEEP_BATCH_MAX {
        let sql = include_str!("sql/sweep_holder.sql");
        let holder: Option<Option<Vec<u8>>> =
            row::first(tx.conn, sql, [&last], |row| Ok(row.get(0)?))?;
        let Some(holder) = holder.flatten() else {
            break;
        };
        last = holder;
        // A holder whose id is damaged is nobody: it is as good as missing.
        if let Ok(holder) = <[u8; 16]>::try_from(last.as_slice()) {
            let worker = worker_id(holder);
            if worker == sweeper || !tx.is_lost(worker)? {
                continue;
            }
        }
        let room = SWEEP_BATCH_MAX + 1 - orphaned.len();
        let params = params![last, row::limit(room)];
        let sql = include_str!("sql/sweep_held.sql");
        let held =
            row::all(tx.conn, sql, params, |row| Ok((whole_id(row, 1).map(run_id), row.get(0)?)))?;
        orphaned.extend(held);
    }
    orphaned.sort_unstable();
    let more = orphaned.len() > SWEEP_BATCH_MAX;
    orphaned.truncate(SWEEP_BATCH_MAX);
    for (_, no) in &orphaned {
        lose(tx, *no)?;
    }
    Ok((orphaned.into_iter().filter_map(|(run, _)| run).collect(), more))
}

/// Takes a run from a holder that is gone.
fn lose(tx: &mut Tx<'_>, no: i64) -> Result<(), Fault> {
    let mut row = match row::by_no(tx.conn, no) {
        Ok(Some(row)) => row,
        Ok(None) => return Ok(()),
        // A row that cannot be read is queued as it is: the claim that meets it sets it aside.
        Err(Fault::Data(_)) => return queue_unread(tx, no),
        Err(fault) => return Err(fault),
    };
    let params = params![no, row.run.attempt];
    let progressed = tx.exists(include_str!("sql/sweep_progress.sql"), params)?;
    keep_trace(tx, &row, None)?;
    rules::lose(&mut row.run, progressed, tx.now);
    row.ticket = None;
    row.save(tx.conn)?;
    tx.changed(row.run.id);
    tx.work();
    Ok(())
}

fn queue_unread(tx: &mut Tx<'_>, no: i64) -> Result<(), Fault> {
    tx.execute(include_str!("sql/sweep_mend.sql"), params![no, tx.now.as_millis()])?;
    tx.work();
    Ok(())
}

/// Ends runs whose deadline has passed, and opens those that have something to undo; says whether more
/// may be left.
fn end_late(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    let params = params![tx.now.as_millis(), row::limit(LATE_BATCH_MAX)];
    let sql = include_str!("sql/sweep_late.sql");
    let late = row::all(tx.conn, sql, params, |row| Ok(row.get::<_, i64>(0)?))?;
    for no in &late {
        match row::by_no(tx.conn, *no) {
            Ok(Some(row)) => {
                if !tx.apart(|tx| end_if_late(tx, row))? {
                    see_late(tx, *no)?;
                }
            }
            Ok(None) => {}
            // A row that cannot be read is for the claim that meets it, and must not hold up others.
            Err(Fault::Data(_)) => see_late(tx, *no)?,
            Err(fault) => return Err(fault),
        }
    }
    Ok(late.len() == LATE_BATCH_MAX)
}

fn end_if_late(tx: &mut Tx<'_>, mut row: Row) -> Result<(), Fault> {
    let undoes = tx.exists(include_str!("sql/sweep_undoes.sql"), [row.no])?;
    match rules::late(&row.run, None, undoes, tx.now) {
        Late::Leave => return Ok(()),
        Late::Open => {
            rules::open_late(&mut row.run, tx.now);
            row.save(tx.conn)?;
            see_late(tx, row.no)?;
        }
        Late::End => {
            let failure = rules::deadline_exceeded();
            keep_output(tx, row.no, None, Some(json_text(&failure)?))?;
            row.run.failure = Some(failure);
            end(tx, &mut row, RunState::Failed)?;
        }
    }
    tx.changed(row.run.id);
    tx.work();
    Ok(())
}

/// Notes that a sweep has seen that a run's deadline passed.
fn see_late(tx: &Tx<'_>, no: i64) -> Result<(), Fault> {
    tx.execute(include_str!("sql/sweep_late_seen.sql"), [no])?;
    Ok(())
}

/// Queues stuck runs that the sweeper serves, if its build is not one they got stuck under; says
/// whether more are left.
///
/// Runs that are stuck under the same builds stand together in their index, so those that the
/// sweeper may not mend cost one step however many they are.
fn mend_stuck(tx: &mut Tx<'_>, sweeper: WorkerId) -> Result<bool, Fault> {
    let mut last = String::new();
    let mut mendable: Vec<(Option<RunId>, i64)> = Vec::new();
    let mut worker = None;
    let sql = include_str!("sql/sweep_stuck_builds.sql");
    while let Some(builds) = row::next_set(tx.conn, sql, &last)? {
        let served_by = match &mut worker {
            Some(served_by) => served_by,
            None => worker.insert(ServedBy::read(tx, sweeper)?),
        };
        let stuck: Vec<String> = serde_json::from_str(&builds).unwrap_or_default();
        if !stuck.contains(&served_by.build) {
            for (queue, workflow) in served(&served_by.queues, &served_by.workflows) {
                let params = params![builds, queue, workflow, row::limit(SWEEP_BATCH_MAX + 1)];
                let sql = include_str!("sql/sweep_stuck.sql");
                mendable.append(&mut row::all(tx.conn, sql, params, |row| {
                    Ok((whole_id(row, 1).map(run_id), row.get(0)?))
                })?);
            }
        }
        last = builds;
    }
    mendable.sort_unstable();
    let more = mendable.len() > SWEEP_BATCH_MAX;
    mendable.truncate(SWEEP_BATCH_MAX);
    for (run, no) in mendable {
        tx.execute(include_str!("sql/sweep_mend.sql"), params![no, tx.now.as_millis()])?;
        run.into_iter().for_each(|run| tx.changed(run));
        tx.work();
    }
    Ok(more)
}

/// What a worker serves.
struct ServedBy {
    build: String,
    queues: Vec<String>,
    workflows: Vec<String>,
}

impl ServedBy {
    fn read(tx: &Tx<'_>, worker: WorkerId) -> Result<Self, Fault> {
        let sql = include_str!("sql/sweep_worker.sql");
        let read = row::first(tx.conn, sql, [worker_blob(worker)], |row| {
            let names = |text: String| serde_json::from_str(&text).map_err(Fault::data);
            Ok(Self {
                build: row.get(0)?,
                queues: names(row.get(1)?)?,
                workflows: names(row.get(2)?)?,
            })
        })?;
        Ok(read.ok_or(Error::LeaseLost)?)
    }
}
