//! Operators' verbs: asking a run to end, and letting a failed or stuck one go on.
//!
//! Owns: what these do to a run's row, its records and the run behind it. Never decides whether
//! they may; `rules` does.

use tokio_postgres::types::Type;

use super::fault::Fault;
use super::row::{Row, run_uuid, small};
use super::signal;
use super::steer::{ask_child_again, ask_late_children_again};
use super::turn;
use super::tx::{Param, Tx};
use crate::store::column;
use crate::store::rules::{self, Cancelling};
use crate::store::steer::unpause;
use crate::store::{Error, Settled};
use crate::{Run, RunId, RunState};

/// Asks a run to end.
pub(super) async fn cancel(tx: &mut Tx, run: RunId) -> Result<Run, Fault> {
    let mut row = tx.locked(run).await?.ok_or(Error::NotFound)?;
    cancel_row(tx, &mut row).await?;
    Ok(row.run)
}

/// Asks a locked run to end.
pub(super) async fn cancel_row(tx: &mut Tx, row: &mut Row) -> Result<(), Fault> {
    let id = run_uuid(row.run.id);
    let recorded = tx.exists(include_str!("sql/recorded.sql"), &[(&id, Type::UUID)]).await?;
    let cancelling = rules::cancelling(&row.run, recorded)?;
    unpause(&mut row.run);
    match cancelling {
        Cancelling::Already => return Ok(()),
        Cancelling::Mark => {
            row.run.cancel_at = Some(tx.now);
            row.run.wakes += 1;
        }
        Cancelling::Queue => {
            row.run.cancel_at = Some(tx.now);
            rules::queue(&mut row.run, tx.now);
            row.ticket = None;
        }
        Cancelling::End => {
            row.run.cancel_at.get_or_insert(tx.now);
            end(tx, row, RunState::Cancelled).await?;
        }
    }
    tx.save(row).await?;
    tx.changed(row.run.id);
    tx.work();
    let mark = match cancelling {
        Cancelling::End => include_str!("sql/cascade_mark.sql"),
        _ => include_str!("sql/cancel_mark.sql"),
    };
    tx.rows(mark, &[(&id, Type::UUID)]).await?;
    Ok(())
}

/// Ends a locked run that nobody holds, tells those who wait for it, and lets the one behind it go.
pub(super) async fn end(tx: &mut Tx, row: &mut Row, state: RunState) -> Result<(), Fault> {
    let ahead = rules::end(&mut row.run, state, tx.now);
    row.run.worker = None;
    row.ticket = None;
    tx.save(row).await?;
    turn::leave(tx, &row.run, ahead).await?;
    tell_parent(tx, row).await
}

/// Tells the parent of a run that has just ended, if it has one.
pub(super) async fn tell_parent(tx: &mut Tx, row: &Row) -> Result<(), Fault> {
    match row.run.parent {
        Some(_) => signal::tell_parent(tx, row.run.id).await,
        None => Ok(()),
    }
}

/// Has the children of a run that was asked to end cancelled by the next sweep.
pub(super) async fn cascade(tx: &Tx, row: &Row) -> Result<(), Fault> {
    if rules::cascades(row.run.state, row.run.cancel_at.is_some()) {
        let id = run_uuid(row.run.id);
        tx.rows(include_str!("sql/cascade_mark.sql"), &[(&id, Type::UUID)]).await?;
    }
    Ok(())
}

/// Lets a failed or stuck run go on.
pub(super) async fn retry(tx: &mut Tx, run: RunId) -> Result<Run, Fault> {
    let mut row = tx.locked(run).await?.ok_or(Error::NotFound)?;
    retry_row(tx, &mut row).await?;
    // A child may have told it of its end meanwhile.
    Ok(tx.locked(run).await?.ok_or(Error::NotFound)?.run)
}

/// Lets a locked run go on.
pub(super) async fn retry_row(tx: &mut Tx, row: &mut Row) -> Result<(), Fault> {
    let id = run_uuid(row.run.id);
    let undone = tx.exists(include_str!("sql/undone.sql"), &[(&id, Type::UUID)]).await?;
    if !rules::retrying(&row.run, undone)? {
        return Ok(());
    }
    if row.run.state == RunState::Failed {
        // The finished row was the trace of the attempt that ended the run. One that ran out of time before
        // anybody took it has had none.
        if row.run.attempt > 0 {
            keep_trace(tx, row, Some(Settled::AsSaid)).await?;
        }
        tx.rows(include_str!("sql/retry_output.sql"), &[(&id, Type::UUID)]).await?;
    }
    let failed_step = row.failed_step.take();
    if let Some(step) = &failed_step {
        let params: [Param<'_>; 3] =
            [(&id, Type::UUID), (step, Type::TEXT), (&tx.now.as_millis(), Type::INT8)];
        tx.rows(include_str!("sql/retry_void.sql"), &params).await?;
    }
    let (ahead, was_late) = (rules::ahead(&row.run), rules::ran_out_of_time(&row.run));
    rules::retry(&mut row.run, tx.now);
    row.ticket = None;
    if let Some(parent) = &row.run.parent
        && let Some(parent) = tx.read_readable(parent.run).await?
    {
        rules::limit_retried(&mut row.run, &parent.run);
    }
    if let Some(ahead) = ahead
        && let Some(place) = turn::join(tx, ahead, row.run.id).await?
    {
        rules::wait_in_line(&mut row.run, place, tx.now);
    }
    tx.save(row).await?;
    if let Some(step) = &failed_step {
        Box::pin(ask_child_again(tx, row.run.id, step)).await?;
    }
    if was_late {
        Box::pin(ask_late_children_again(tx, row.run.id)).await?;
    }
    tx.changed(row.run.id);
    tx.work();
    Ok(())
}

/// Keeps what a late repeat of the current attempt's settle is recognised by.
pub(super) async fn keep_trace(tx: &Tx, row: &Row, settled: Option<Settled>) -> Result<(), Fault> {
    let build = row.run.build.as_deref().unwrap_or_default();
    let params: [Param<'_>; 4] = [
        (&run_uuid(row.run.id), Type::UUID),
        (&small(row.run.attempt), Type::INT4),
        (&build, Type::TEXT),
        (&settled.map(column::of_settled), Type::TEXT),
    ];
    tx.rows(include_str!("sql/settle_keep.sql"), &params).await?;
    Ok(())
}
