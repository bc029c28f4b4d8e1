//! Runs that wait one behind the other.
//!
//! Owns: who waits for whom when a run joins a line, ends, or goes on as another. Never decides whether
//! a run has to wait; `rules` and `schedules` do.

use tokio_postgres::types::Type;

use super::fault::{AGAIN_MAX, Fault};
use super::row::{Row, run_uuid};
use super::tx::{Param, Tx};
use crate::RunId;
use crate::store::rules::{self, InLine};

/// Gives a run the place behind this one, unless that one has ended.
pub(super) async fn join(tx: &mut Tx, ahead: RunId, run: RunId) -> Result<Option<InLine>, Fault> {
    let Some(mut row) = tx.locked(ahead).await?.filter(|row| !row.run.state.is_final()) else {
        return Ok(None);
    };
    let mut next = row.run.successor.replace(run);
    tx.save(&row).await?;
    tx.changed(ahead);
    if let Some(id) = next {
        let row = tx.locked_readable(id).await?;
        let waits = |row: &Row| rules::behind(row.run.waits_for.as_ref()) == Some(ahead);
        next = row.filter(waits).map(|row| row.run.id);
    }
    move_behind(tx, next, run).await?;
    Ok(Some(InLine { ahead, next }))
}

/// Lets the run that waits behind one wait behind another.
pub(super) async fn move_behind(
    tx: &mut Tx,
    run: Option<RunId>,
    ahead: RunId,
) -> Result<(), Fault> {
    let Some(id) = run else { return Ok(()) };
    if let Some(mut row) = tx.locked_readable(id).await?
        && rules::move_behind(&mut row.run, ahead)
    {
        tx.save(&row).await?;
        tx.changed(id);
    }
    Ok(())
}

/// Lets the run behind one that ended begin, or take the place of one that ended before its turn.
pub(super) async fn leave(
    tx: &mut Tx,
    next: Option<RunId>,
    ahead: Option<RunId>,
) -> Result<(), Fault> {
    let Some(id) = next else { return Ok(()) };
    if let Some(ahead) = ahead {
        let params: [Param<'_>; 2] = [(&run_uuid(ahead), Type::UUID), (&run_uuid(id), Type::UUID)];
        tx.rows(include_str!("sql/turn_successor.sql"), &params).await?;
        return move_behind(tx, next, ahead).await;
    }
    if let Some(mut row) = tx.locked_readable(id).await?
        && rules::take_turn(&mut row.run, tx.now)
    {
        tx.save(&row).await?;
        tx.changed(id);
        tx.work();
    }
    Ok(())
}

/// The run by which to judge whether the line of `latest` is free. Whoever looked for it held no lock, so it
/// may have gone on as another until it was locked here. One that cannot be read holds up nobody.
pub(super) async fn last(tx: &mut Tx, latest: RunId) -> Result<Option<Row>, Fault> {
    let Some(mut latest) = tx.locked_readable(latest).await? else { return Ok(None) };
    for _ in 0..AGAIN_MAX {
        let Some(next) = latest.run.continued_as else { break };
        let Some(next) = tx.locked_readable(next).await? else { break };
        latest = next;
    }
    let Some(ahead) = latest.run.notes.ended_behind else { return Ok(Some(latest)) };
    let Some(mut ahead) = tx.locked_readable(ahead).await? else { return Ok(Some(latest)) };
    Ok(Some(match rules::stands_for(&latest.run, ahead.run.clone()) {
        Some(run) => {
            ahead.run = run;
            ahead
        }
        None => latest,
    }))
}
