//! The end of an attempt, one at a time: what a group commit did not take.
//!
//! Owns: what each end does to a run's row, and the trace by which a repeat is known. Never
//! settles for whoever does not hold the run.

use tokio_postgres::types::Type;

use super::cancel::{cascade, keep_trace, tell_parent};
use super::fault::Fault;
use super::queues;
use super::record::{add, follows, holds};
use super::row::{Row, json_text, limit, run_uuid, small, worker_uuid};
use super::start::insert_run;
use super::steer::void_signal;
use super::turn;
use super::tx::{Param, Tx};
use crate::limits::SIGNAL_KEYS_CARRIED_MAX;
use crate::store::steer::unpause;
use crate::store::{Conflict, End, Error, Lease, Settle, Settled};
use crate::store::{column, rules};
use crate::{Code, Json, RunId, RunState, Timestamp, Waits};

/// Ends an attempt, with its last records.
pub(super) async fn settle(tx: &mut Tx, lease: Lease, settle: &Settle) -> Result<Settled, Fault> {
    if let End::Continued { .. } = settle.end {
        let params: [Param<'_>; 1] = [(&run_uuid(lease.run), Type::UUID)];
        tx.rows(include_str!("sql/continue_key_lock.sql"), &params).await?;
    }
    let Some(mut row) = tx.locked(lease.run).await? else {
        return Err(Error::LeaseLost.into());
    };
    let holds = holds(&row, lease);
    if !holds && let Some(settled) = settled_before(tx, lease, &row).await? {
        // Whoever made it has not told others of the room, if the answer was lost.
        if queues::is_set_up(tx, &row.run.queue).await? {
            tx.work();
        }
        return Ok(settled);
    }
    if !holds || tx.is_lost(lease.worker).await? {
        return Err(Error::LeaseLost.into());
    }
    if !follows(tx, lease, &settle.follows).await? {
        return Err(Error::HistoryLost.into());
    }
    check_server(tx, lease, &settle.end).await?;
    tx.guard(lease.worker);
    check_continuation(tx, &row, &settle.end).await?;
    add(tx, lease, &settle.records).await?;
    if !settle.unasked.is_empty() {
        let build = row.run.build.as_deref();
        row.run.code_change = Some(rules::code_change(build, &settle.unasked, tx.now));
    }
    tx.changed(lease.run);
    end(tx, row, &settle.end).await
}

/// Refuses to let a run wait for what the server may have lost, such as the end of a child whose start it had
/// acknowledged: it is given back and replayed instead.
async fn check_server(tx: &Tx, lease: Lease, end: &End) -> Result<(), Fault> {
    let workers = vec![worker_uuid(lease.worker)];
    let params: [Param<'_>; 1] = [(&workers, Type::UUID_ARRAY)];
    if matches!(end, End::Parked { .. })
        && tx.exists(include_str!("sql/worker_moved.sql"), &params).await?
    {
        return Err(Error::HistoryLost.into());
    }
    Ok(())
}

/// What a settle of this attempt answered, if there was one.
async fn settled_before(tx: &Tx, lease: Lease, row: &Row) -> Result<Option<Settled>, Fault> {
    let params: [Param<'_>; 2] =
        [(&run_uuid(lease.run), Type::UUID), (&small(lease.attempt), Type::INT4)];
    if let Some(trace) = tx.first(include_str!("sql/settle_trace.sql"), &params).await? {
        let settled: Option<String> = trace.try_get(0).map_err(Fault::data)?;
        return settled.map(|text| column::settled(&text)).transpose().map_err(Fault::data);
    }
    // An attempt without a trace whose number is the last of a finished run is what ended it.
    let ended = row.run.state.is_final() && row.run.attempt == lease.attempt && lease.attempt > 0;
    Ok(ended.then_some(Settled::AsSaid))
}

/// Refuses to go on if the run is asked to end, or as a run that is there, before anything is written.
async fn check_continuation(tx: &Tx, row: &Row, end: &End) -> Result<(), Fault> {
    let End::Continued { run: next, .. } = end else { return Ok(()) };
    rules::check_continues(row.run.id, row.run.cancel_at.is_some())?;
    if tx.locked(*next).await?.is_some() {
        return Err(Error::Conflict(Conflict::Record { run: row.run.id }).into());
    }
    Ok(())
}

async fn end(tx: &mut Tx, mut row: Row, end: &End) -> Result<Settled, Fault> {
    // Whoever was held back by a limit of the queue may take a run now.
    if queues::is_set_up(tx, &row.run.queue).await? {
        tx.work();
    }
    row.run.crashes = 0;
    row.run.retried_at = None;
    match end {
        End::Completed(output) => {
            keep_output(tx, &row, Some(output.as_str()), None).await?;
            finish(tx, row, RunState::Completed).await
        }
        End::Failed { failure, step } => {
            keep_output(tx, &row, None, Some(json_text(failure)?)).await?;
            row.failed_step.clone_from(step);
            finish(tx, row, RunState::Failed).await
        }
        End::Cancelled => finish(tx, row, RunState::Cancelled).await,
        End::Continued { run, input, undelivered } => {
            for step in undelivered {
                void_signal(tx, row.run.id, step).await?;
            }
            continue_as(tx, row, *run, input).await
        }
        End::Parked { wake_at, waits_for, wakes_seen } => {
            park(tx, row, *wakes_seen, waits_for.clone(), *wake_at).await
        }
        End::Stuck { code, detail, wakes_seen } => {
            let waits_for = Waits::Stuck { code: code.as_str().to_owned(), detail: detail.clone() };
            rules::add_stuck_build(&mut row.run.stuck_builds, row.run.build.as_deref());
            park(tx, row, *wakes_seen, waits_for, None).await
        }
        End::Released => {
            keep_trace(tx, &row, Some(Settled::AsSaid)).await?;
            rules::queue(&mut row.run, tx.now);
            row.ticket = None;
            tx.work();
            tx.save(&row).await?;
            Ok(Settled::AsSaid)
        }
    }
}

pub(super) async fn keep_output(
    tx: &Tx,
    row: &Row,
    output: Option<&str>,
    failure: Option<String>,
) -> Result<(), Fault> {
    let params: [Param<'_>; 3] =
        [(&run_uuid(row.run.id), Type::UUID), (&output, Type::TEXT), (&failure, Type::TEXT)];
    tx.rows(include_str!("sql/settle_output.sql"), &params).await?;
    Ok(())
}

/// Puts a run into a final state.
fn finished(row: &mut Row, state: RunState, now: Timestamp) {
    row.run.state = state;
    row.run.finished_at = Some(now);
    row.run.due_at = None;
    row.run.waits_for = None;
    unpause(&mut row.run);
    row.run.worker = None;
    row.ticket = None;
}

/// Puts a run into a final state and lets the one behind it go.
async fn finish(tx: &mut Tx, mut row: Row, state: RunState) -> Result<Settled, Fault> {
    finished(&mut row, state, tx.now);
    tx.save(&row).await?;
    turn::begin(tx, row.run.successor).await?;
    tell_parent(tx, &row).await?;
    cascade(tx, &row).await?;
    Ok(Settled::AsSaid)
}

/// Ends the run and starts the one that goes on, which takes over its key and its successor.
async fn continue_as(
    tx: &mut Tx,
    mut row: Row,
    next: RunId,
    input: &Json,
) -> Result<Settled, Fault> {
    let fresh = rules::continuation(row.run.clone(), next, input.clone(), tx.now);
    finished(&mut row, RunState::Completed, tx.now);
    let successor = row.run.successor.take();
    row.run.continued_as = Some(next);
    tx.save(&row).await?;
    insert_run(tx, &fresh).await?;
    if let Some(key) = &fresh.key {
        let params: [Param<'_>; 4] = [
            (&fresh.workflow, Type::TEXT),
            (key, Type::TEXT),
            (&run_uuid(row.run.id), Type::UUID),
            (&run_uuid(next), Type::UUID),
        ];
        tx.rows(include_str!("sql/continue_key.sql"), &params).await?;
    }
    if row.run.signals > 0 {
        let params: [Param<'_>; 3] = [
            (&run_uuid(row.run.id), Type::UUID),
            (&run_uuid(next), Type::UUID),
            (&limit(SIGNAL_KEYS_CARRIED_MAX), Type::INT8),
        ];
        tx.rows(include_str!("sql/continue_signals.sql"), &params).await?;
    }
    turn::move_behind(tx, successor, next).await?;
    Ok(Settled::AsSaid)
}

/// Lets a run wait, or queues it when it was woken since its holder last looked.
async fn park(
    tx: &mut Tx,
    mut row: Row,
    wakes_seen: u64,
    waits_for: Waits,
    wake_at: Option<Timestamp>,
) -> Result<Settled, Fault> {
    let settled = if wakes_seen == row.run.wakes { Settled::AsSaid } else { Settled::Queued };
    keep_trace(tx, &row, Some(settled)).await?;
    row.run.worker = None;
    row.ticket = None;
    match settled {
        Settled::Queued => {
            row.run.state = RunState::Queued;
            row.run.due_at = Some(tx.now);
            row.run.waits_for = None;
            tx.work();
        }
        Settled::AsSaid => {
            row.run.state = RunState::Waiting;
            row.run.due_at = wake_at;
            row.run.waits_for = Some(waits_for);
            if wake_at.is_some() {
                tx.work();
            }
        }
    }
    tx.save(&row).await?;
    Ok(settled)
}

/// Lets a run that cannot be read wait for an operator, or for another build to try. Only what is
/// needed of its row is read.
pub(super) async fn set_aside(tx: &mut Tx, lease: Lease, detail: &str) -> Result<(), Fault> {
    let waits_for =
        Waits::Stuck { code: Code::CorruptRecord.as_str().to_owned(), detail: detail.to_owned() };
    let params: [Param<'_>; 5] = [
        (&run_uuid(lease.run), Type::UUID),
        (&worker_uuid(lease.worker), Type::UUID),
        (&small(lease.attempt), Type::INT4),
        (&json_text(&waits_for)?, Type::TEXT),
        (&Code::CorruptRecord.as_str(), Type::TEXT),
    ];
    tx.rows(include_str!("sql/claim_corrupt.sql"), &params).await?;
    tx.guard(lease.worker);
    tx.changed(lease.run);
    // It may have taken the place of another in a limited queue.
    tx.work();
    Ok(())
}
