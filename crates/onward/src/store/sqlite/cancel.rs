//! Operators' verbs: asking a run to end, and letting a failed or stuck one go on.
//!
//! Owns: what these do to a run's row, its records and the run behind it. Never decides whether
//! they may; `rules` does.

use rusqlite::params;

use super::fault::Fault;
use super::row::{self, Row};
use super::signal::tell_parent;
use super::steer::{ask_child_again, ask_late_children_again};
use super::turn;
use super::tx::Tx;
use crate::store::Settled;
use crate::store::column;
use crate::store::rules::{self, Cancelling};
use crate::store::steer::unpause;
use crate::{Run, RunId, RunState};

/// Asks a run to end.
pub(super) fn cancel(tx: &mut Tx<'_>, run: RunId) -> Result<Run, Fault> {
    let row = tx.row(run)?;
    cancel_row(tx, row)?;
    Ok(tx.row(run)?.run)
}

pub(super) fn cancel_row(tx: &mut Tx<'_>, mut row: Row) -> Result<(), Fault> {
    let recorded = tx.exists(include_str!("sql/recorded.sql"), [row.no])?;
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
            row.queue(tx.now);
        }
        Cancelling::End => {
            row.run.cancel_at.get_or_insert(tx.now);
            end(tx, &mut row, RunState::Cancelled)?;
        }
    }
    row.save(tx.conn)?;
    tx.changed(row.run.id);
    tx.work();
    let mark = match cancelling {
        Cancelling::End => include_str!("sql/cascade_mark.sql"),
        _ => include_str!("sql/cancel_mark.sql"),
    };
    tx.execute(mark, [row.no])?;
    Ok(())
}

/// Ends a run that nobody holds, tells those who wait for it, and lets the one behind it go. The
/// caller saves the row.
pub(super) fn end(tx: &mut Tx<'_>, row: &mut Row, state: RunState) -> Result<(), Fault> {
    let ahead = rules::end(&mut row.run, state, tx.now);
    row.release();
    row.save(tx.conn)?;
    turn::leave(tx, &row.run, ahead)?;
    tell_parent(tx, &row.run)
}

/// Lets a failed or stuck run go on.
pub(super) fn retry(tx: &mut Tx<'_>, run: RunId) -> Result<Run, Fault> {
    let row = tx.row(run)?;
    retry_row(tx, row)?;
    Ok(tx.row(run)?.run)
}

pub(super) fn retry_row(tx: &mut Tx<'_>, mut row: Row) -> Result<(), Fault> {
    let undone = tx.exists(include_str!("sql/undone.sql"), [row.no])?;
    if !rules::retrying(&row.run, undone)? {
        return Ok(());
    }
    if row.run.state == RunState::Failed {
        // The finished row was the trace of the attempt that ended the run. One that ran out of time before
        // anybody took it has had none.
        if row.run.attempt > 0 {
            keep_trace(tx, &row, Some(Settled::AsSaid))?;
        }
        tx.execute(include_str!("sql/retry_output.sql"), [row.no])?;
    }
    let failed_step = row.failed_step.take();
    if let Some(step) = &failed_step {
        let params = params![row.no, step, tx.now.as_millis()];
        tx.execute(include_str!("sql/retry_void.sql"), params)?;
    }
    let (ahead, was_late) = (rules::ahead(&row.run), rules::ran_out_of_time(&row.run));
    rules::retry(&mut row.run, tx.now);
    row.ticket = None;
    if let Some(parent) = &row.run.parent
        && let Some(parent) = row::readable(tx.conn, parent.run)?
    {
        rules::limit_retried(&mut row.run, &parent.run);
    }
    if let Some(ahead) = ahead
        && let Some(place) = turn::join(tx, ahead, row.run.id)?
    {
        rules::wait_in_line(&mut row.run, place, tx.now);
    }
    row.save(tx.conn)?;
    if let Some(step) = &failed_step {
        ask_child_again(tx, row.no, step)?;
    }
    if was_late {
        ask_late_children_again(tx, row.no)?;
    }
    tx.changed(row.run.id);
    tx.work();
    Ok(())
}

/// Keeps what a late repeat of the current attempt's settle is recognised by.
pub(super) fn keep_trace(tx: &Tx<'_>, row: &Row, settled: Option<Settled>) -> Result<(), Fault> {
    let build = row.run.build.as_deref().unwrap_or_default();
    let params = params![row.no, row.run.attempt, build, settled.map(column::of_settled)];
    tx.execute(include_str!("sql/settle_keep.sql"), params)?;
    Ok(())
}
