//! Workers coming and going, and what becomes of the runs of those that are gone.
//!
//! Owns: how a worker joins, renews and leaves, and the call that sweeps. Never marks the worker
//! that sweeps.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::Shared;
use super::cancel::{cancel, end};
use super::fault::Fault;
use super::row::{Columns, json_text, run_id, run_uuid, small_limit, worker_id, worker_uuid};
use super::settle::keep_output;
use super::tx::{Changes, Param, Session, Tx, transact};
use crate::limits::{
    CASCADE_BACK_MAX, CASCADE_BATCH_MAX, LATE_BATCH_MAX, LOST_WORKERS_KEPT, SWEEP_BATCH_MAX,
};
use crate::store::rules::{self, Late};
use crate::store::{Error, ExpiredLeases, Lease, NewWorker, Renewed, Sweep, Swept};
use crate::{Clock as _, RunId, RunState, SystemClock, Timestamp, WorkerId};

// The function for SQL is written for this number.
const _: () = assert!(CASCADE_BACK_MAX == 1_000);

const LEAVE: &str = "select released, more from onward.leave($1, $2, $3)";
const SWEEP: &str = "select lost, taken, woken, changed, more, next_at, children, late \
     from onward.sweep($1, $2, $3, $4, $5, $6)";

/// Children and late runs that a sweep is told of: one number for both, as each is a write of its own.
const WRITES_MAX: usize = CASCADE_BATCH_MAX;
const _: () = assert!(CASCADE_BATCH_MAX == LATE_BATCH_MAX);

/// Enters a worker.
pub(super) async fn join(shared: Arc<Shared>, worker: NewWorker) -> Result<(), Fault> {
    let mut session = Session::vital(&shared).await?;
    let id = worker_uuid(worker.id);
    let params: [Param<'_>; 8] = [
        (&id, Type::UUID),
        (&worker.build, Type::TEXT),
        (&worker.place, Type::TEXT),
        (&json_text(&worker.queues)?, Type::TEXT),
        (&json_text(&worker.workflows)?, Type::TEXT),
        (&worker.lease_ms, Type::INT8),
        (&shared.clock.given(), Type::INT8),
        (&i64::from(worker.concurrency), Type::INT8),
    ];
    session.rows(include_str!("sql/join.sql"), &params).await?;
    let row = session.first(include_str!("sql/worker_lost.sql"), &[(&id, Type::UUID)]).await?;
    match row.map(|row| row.try_get(0)).transpose().map_err(Fault::data)? {
        Some(false) => Ok(()),
        _ => Err(Error::LeaseLost.into()),
    }
}

/// How long a renewal waits for its answer before it is asked for on a second connection too: a fifth of
/// a lease, so that the second has time, and far longer than a server that is well takes.
const RENEW_BESIDE_AFTER: Duration = Duration::from_secs(2);

/// Renews a lease, unless it is lost, and sets the store's clock by the answer.
///
/// A connection may be dead without a word, as when a firewall forgot it. To wait for it until it is
/// given up would cost the lease, though another would answer at once. And to give it up sooner would
/// cost the lease where the server is slow. So after a while both are waited for.
pub(super) async fn renew(shared: Arc<Shared>, worker: WorkerId) -> Result<Renewed, Fault> {
    let mut first = pin!(renew_once(&shared, worker));
    tokio::select! {
        answer = &mut first => return answer,
        () = tokio::time::sleep(RENEW_BESIDE_AFTER) => {}
    }
    let mut second = pin!(renew_once(&shared, worker));
    tokio::select! {
        answer = &mut first => match answer {
            Err(Fault::Outage(..)) => second.await,
            answer => answer,
        },
        answer = &mut second => match answer {
            Err(Fault::Outage(..)) => first.await,
            answer => answer,
        },
    }
}

async fn renew_once(shared: &Arc<Shared>, worker: WorkerId) -> Result<Renewed, Fault> {
    let mut session = Session::vital(shared).await?;
    let params: [Param<'_>; 2] =
        [(&worker_uuid(worker), Type::UUID), (&shared.clock.given(), Type::INT8)];
    let asked = SystemClock.now();
    let renewed = session.first(include_str!("sql/renew.sql"), &params).await?;
    let row = renewed.ok_or(Error::LeaseLost)?;
    let until: i64 = row.try_get(0).map_err(Fault::data)?;
    let said: i64 = row.try_get(1).map_err(Fault::data)?;
    shared.clock.heard(Timestamp::from_millis(said), asked);
    let runs: Vec<uuid::Uuid> = row.try_get(2).map_err(Fault::data)?;
    let attempts: Vec<i32> = row.try_get(3).map_err(Fault::data)?;
    let lease = |(run, attempt)| Lease {
        run: run_id(run),
        worker,
        attempt: u32::try_from(attempt).unwrap_or_default(),
    };
    let held = runs.into_iter().zip(attempts).map(lease).collect();
    let moved = row.try_get(4).map_err(Fault::data)?;
    Ok(Renewed { until: Timestamp::from_millis(until), held, moved })
}

/// Ends a worker and queues what it holds.
pub(super) async fn leave(shared: Arc<Shared>, worker: WorkerId) -> Result<(), Fault> {
    shared.heads.forget(worker);
    shared.tickets.forget(worker);
    let mut session = Session::open(&shared).await?;
    let params: [Param<'_>; 3] = [
        (&shared.clock.given(), Type::INT8),
        (&worker_uuid(worker), Type::UUID),
        (&small_limit(SWEEP_BATCH_MAX), Type::INT4),
    ];
    loop {
        let row = session.first(LEAVE, &params).await?;
        let row = row.ok_or_else(|| Fault::data("a leave without an answer"))?;
        let runs: Vec<uuid::Uuid> = row.try_get(0).map_err(Fault::data)?;
        tell_here(&shared, runs.into_iter().map(run_id).collect());
        if !row.try_get(1).map_err(Fault::data)? {
            return Ok(());
        }
    }
}

/// Takes back what the dead hold, and wakes what is due.
pub(super) async fn sweep(shared: Arc<Shared>, sweep: Sweep) -> Result<Swept, Fault> {
    let mut session = Session::open(&shared).await?;
    let kept = i64::try_from(LOST_WORKERS_KEPT.as_millis()).unwrap_or(i64::MAX);
    let params: [Param<'_>; 6] = [
        (&shared.clock.given(), Type::INT8),
        (&worker_uuid(sweep.worker), Type::UUID),
        (&(sweep.expired == ExpiredLeases::Take), Type::BOOL),
        (&small_limit(SWEEP_BATCH_MAX), Type::INT4),
        (&kept, Type::INT8),
        (&small_limit(WRITES_MAX), Type::INT4),
    ];
    let row = session.first(SWEEP, &params).await?;
    let row = row.ok_or_else(|| Fault::data("a sweep without an answer"))?;
    let mut columns = Columns { row: &row, next: 0 };
    let mut lost: Vec<_> = columns.take::<Vec<uuid::Uuid>>()?.into_iter().map(worker_id).collect();
    lost.sort_unstable();
    let taken = columns.take::<Vec<uuid::Uuid>>()?.into_iter().map(run_id).collect();
    let woken: i32 = columns.take()?;
    let runs: Vec<_> = columns.take::<Vec<uuid::Uuid>>()?.into_iter().map(run_id).collect();
    let more = columns.take()?;
    let next_at = columns.time_or_none()?;
    let children: Vec<uuid::Uuid> = columns.take()?;
    let late: Vec<uuid::Uuid> = columns.take()?;
    drop(session);
    end_late(&shared, late).await?;
    cascade(&shared, children).await?;
    tell_here(&shared, runs);
    Ok(Swept { lost, taken, woken: usize::try_from(woken).unwrap_or(0), more, next_at })
}

/// Tells this process that runs are queued. The others were told by the transaction itself.
fn tell_here(shared: &Shared, runs: Vec<RunId>) {
    Changes { work: !runs.is_empty(), runs, ..Changes::default() }.tell(&shared.hub);
}

/// Ends runs whose deadline has passed, and opens those that have something to undo. One that was
/// claimed or ended meanwhile is left alone.
async fn end_late(shared: &Arc<Shared>, late: Vec<uuid::Uuid>) -> Result<(), Fault> {
    for run in late.into_iter().map(run_id) {
        match transact(shared, move |tx| Box::pin(end_if_late(tx, run))).await {
            Ok(()) => {}
            // A row that cannot be read is for the claim that meets it, and must not hold up others.
            Err(Fault::Data(_)) => {
                transact(shared, move |tx| Box::pin(see_late(tx, run))).await?;
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

async fn end_if_late(tx: &mut Tx, run: RunId) -> Result<(), Fault> {
    let Some(mut row) = tx.locked(run).await? else { return Ok(()) };
    let sql = include_str!("sql/sweep_undoes.sql");
    let undoes = tx.exists(sql, &[(&run_uuid(run), Type::UUID)]).await?;
    match rules::late(&row.run, None, undoes, tx.now) {
        Late::Leave => return Ok(()),
        Late::Open => {
            rules::open_late(&mut row.run, tx.now);
            tx.save(&row).await?;
            see_late(tx, run).await?;
        }
        Late::End => {
            let failure = json_text(&rules::deadline_exceeded())?;
            keep_output(tx, &row, None, Some(failure)).await?;
            end(tx, &mut row, RunState::Failed).await?;
        }
    }
    tx.changed(run);
    tx.work();
    Ok(())
}

/// Notes that a sweep has seen that a run's deadline passed.
async fn see_late(tx: &mut Tx, run: RunId) -> Result<(), Fault> {
    tx.rows(include_str!("sql/sweep_late_seen.sql"), &[(&run_uuid(run), Type::UUID)]).await?;
    Ok(())
}

async fn cancel_unread(tx: &mut Tx, run: RunId) -> Result<(), Fault> {
    let params: [Param<'_>; 2] = [(&run_uuid(run), Type::UUID), (&tx.now.as_millis(), Type::INT8)];
    tx.rows(include_str!("sql/cancel_unread.sql"), &params).await?;
    Ok(())
}

/// Asks the children of cancelled runs to end. One that has ended meanwhile is left alone.
pub(super) async fn cascade(shared: &Arc<Shared>, children: Vec<uuid::Uuid>) -> Result<(), Fault> {
    for child in children.into_iter().map(run_id) {
        match transact(shared, move |tx| Box::pin(cancel(tx, child))).await {
            Ok(_) | Err(Fault::Refused(Error::Conflict(_) | Error::NotFound)) => {}
            Err(Fault::Data(source)) => {
                tracing::warn!(run = %child, %source, "a child cannot be read; it is only marked");
                transact(shared, move |tx| Box::pin(cancel_unread(tx, child))).await?;
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
