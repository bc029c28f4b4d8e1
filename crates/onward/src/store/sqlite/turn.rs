//! Runs that wait one behind the other.
//!
//! Owns: who waits for whom when a run joins a line, ends, or goes on as another. Never decides whether
//! a run has to wait; `rules` and `schedules` do.

use super::fault::Fault;
use super::row::{self, Row};
use super::tx::Tx;
use crate::RunId;
use crate::store::rules::{self, InLine};

/// Gives a run the place behind this one, unless that one has ended.
pub(super) fn join(tx: &mut Tx<'_>, ahead: RunId, run: RunId) -> Result<Option<InLine>, Fault> {
    let Some(mut row) = row::by_id(tx.conn, ahead)?.filter(|row| !row.run.state.is_final()) else {
        return Ok(None);
    };
    let mut next = row.run.successor.replace(run);
    row.save(tx.conn)?;
    tx.changed(ahead);
    if let Some(id) = next {
        let row = row::readable(tx.conn, id)?;
        let waits = |row: &Row| rules::behind(row.run.waits_for.as_ref()) == Some(ahead);
        next = row.filter(waits).map(|row| row.run.id);
    }
    move_behind(tx, next, run)?;
    Ok(Some(InLine { ahead, next }))
}

/// Lets the run that waits behind one wait behind another.
pub(super) fn move_behind(tx: &mut Tx<'_>, run: Option<RunId>, ahead: RunId) -> Result<(), Fault> {
    let Some(id) = run else { return Ok(()) };
    if let Some(mut row) = row::readable(tx.conn, id)?
        && rules::move_behind(&mut row.run, ahead)
    {
        row.save(tx.conn)?;
        tx.changed(id);
    }
    Ok(())
}

/// Lets the run behind one that ended begin, or take the place of one that ended before its turn.
pub(super) fn leave(
    tx: &mut Tx<'_>,
    next: Option<RunId>,
    ahead: Option<RunId>,
) -> Result<(), Fault> {
    let Some(id) = next else { return Ok(()) };
    if let Some(ahead) = ahead {
        let params = [row::run_blob(ahead), row::run_blob(id)];
        tx.execute(include_str!("sql/turn_successor.sql"), params)?;
        return move_behind(tx, next, ahead);
    }
    if let Some(mut row) = row::readable(tx.conn, id)?
        && rules::take_turn(&mut row.run, tx.now)
    {
        row.save(tx.conn)?;
        tx.changed(id);
        tx.work();
    }
    Ok(())
}

/// The run by which to judge whether the line of `latest` is free. One that cannot be read holds up nobody.
pub(super) fn last(tx: &Tx<'_>, latest: RunId) -> Result<Option<Row>, Fault> {
    let Some(latest) = row::readable(tx.conn, latest)? else { return Ok(None) };
    let Some(ahead) = latest.run.notes.ended_behind else { return Ok(Some(latest)) };
    let Some(mut ahead) = row::readable(tx.conn, ahead)? else { return Ok(Some(latest)) };
    Ok(Some(match rules::stands_for(&latest.run, ahead.run.clone()) {
        Some(run) => {
            ahead.run = run;
            ahead
        }
        None => latest,
    }))
}
