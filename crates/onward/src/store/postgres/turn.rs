//! Runs that wait one behind the other.
//!
//! Owns: who waits for whom when a run joins a line, ends, or goes on as another. Never decides whether
//! a run has to wait; `rules` and `schedules` do.

use tokio_postgres::types::Type;

use super::fault::{AGAIN_MAX, Fault};
use super::row::{Row, run_uuid};
use super::tx::{Param, Tx};
use crate::store::rules::{self, InLine};
use crate::{Run, RunId};

/// Gives a run the place behind this one, unless that one has ended.
pub(super) async fn join(tx: &mut Tx, ahead: RunId, run: RunId) -> Result<Option<InLine>, Fault> {
    let Some(mut row) = tx.locked(ahead).await?.filter(|row| !row.run.state.is_final()) else {
        return Ok(None);
    };
    let mut next = row.run.successor.replace(run);
    tx.save(&row).await?;
    tx.changed(ahead);
    if let Some(id) = next {
        // One that cannot be read keeps its place: it may be mended before its turn, and others may be behind it.
        // So it may still name the run that was ahead of it before.
        let waits = |row: &Row| rules::behind(row.run.waits_for.as_ref()).is_some();
        next = tx.locked_readable(id).await?.is_none_or(|row| waits(&row)).then_some(id);
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

/// Lets the run behind one that ended begin.
pub(super) async fn begin(tx: &mut Tx, next: Option<RunId>) -> Result<(), Fault> {
    let Some(id) = next else { return Ok(()) };
    match tx.locked_readable(id).await? {
        Some(mut row) => {
            if !rules::take_turn(&mut row.run, tx.now) {
                return Ok(());
            }
            tx.save(&row).await?;
        }
        None => {
            let params: [Param<'_>; 2] =
                [(&run_uuid(id), Type::UUID), (&tx.now.as_millis(), Type::INT8)];
            tx.rows(include_str!("sql/turn_unread.sql"), &params).await?;
        }
    }
    tx.changed(id);
    tx.work();
    Ok(())
}

/// Lets the run behind one that ended begin, or take the place of one that ended before its turn.
pub(super) async fn leave(tx: &mut Tx, ended: &Run, ahead: Option<RunId>) -> Result<(), Fault> {
    let next = ended.successor;
    let (Some(id), Some(ahead)) = (next, ahead) else { return begin(tx, next).await };
    let ahead = just_ahead(tx, ended.id, ahead).await?;
    let params: [Param<'_>; 2] = [(&run_uuid(ahead), Type::UUID), (&run_uuid(id), Type::UUID)];
    tx.rows(include_str!("sql/turn_successor.sql"), &params).await?;
    move_behind(tx, next, ahead).await
}

/// The run that a run is behind, which was behind this one before: it knows of no other if it could not be read
/// when that changed.
async fn just_ahead(tx: &Tx, run: RunId, before: RunId) -> Result<RunId, Fault> {
    let mut ahead = before;
    for _ in 0..rules::MOVES_MAX {
        let Some(row) = tx.locked_readable(ahead).await? else { break };
        match rules::nearer(&row.run, run) {
            Some(nearer) => ahead = nearer,
            None => return Ok(ahead),
        }
    }
    Ok(before)
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
