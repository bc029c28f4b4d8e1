//! Runs that wait one behind the other.
//!
//! Owns: who waits for whom when a run joins a line, ends, or goes on as another. Never decides whether
//! a run has to wait; `rules` and `schedules` do.

use rusqlite::params;

use super::fault::Fault;
use super::row::{self, Row};
use super::tx::Tx;
use crate::store::rules::{self, InLine};
use crate::{Run, RunId};

/// Gives a run the place behind this one, unless that one has ended.
pub(super) fn join(tx: &mut Tx<'_>, ahead: RunId, run: RunId) -> Result<Option<InLine>, Fault> {
    let Some(mut row) = row::by_id(tx.conn, ahead)?.filter(|row| !row.run.state.is_final()) else {
        return Ok(None);
    };
    let mut next = row.run.successor.replace(run);
    row.save(tx.conn)?;
    tx.changed(ahead);
    if let Some(id) = next {
        // One that cannot be read keeps its place: it may be mended before its turn, and others may be behind it.
        // So it may still name the run that was ahead of it before.
        let waits = |row: &Row| rules::behind(row.run.waits_for.as_ref()).is_some();
        next = row::readable(tx.conn, id)?.is_none_or(|row| waits(&row)).then_some(id);
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

/// Lets the run behind one that ended begin.
pub(super) fn begin(tx: &mut Tx<'_>, next: Option<RunId>) -> Result<(), Fault> {
    let Some(id) = next else { return Ok(()) };
    match row::readable(tx.conn, id)? {
        Some(mut row) => {
            if !rules::take_turn(&mut row.run, tx.now) {
                return Ok(());
            }
            row.save(tx.conn)?;
        }
        None => {
            let params = params![row::run_blob(id), tx.now.as_millis()];
            tx.execute(include_str!("sql/turn_unread.sql"), params)?;
        }
    }
    tx.changed(id);
    tx.work();
    Ok(())
}

/// Lets the run behind one that ended begin, or take the place of one that ended before its turn.
pub(super) fn leave(tx: &mut Tx<'_>, ended: &Run, ahead: Option<RunId>) -> Result<(), Fault> {
    let next = ended.successor;
    let (Some(id), Some(ahead)) = (next, ahead) else { return begin(tx, next) };
    let ahead = just_ahead(tx, ended.id, ahead)?;
    let params = [row::run_blob(ahead), row::run_blob(id)];
    tx.execute(include_str!("sql/turn_successor.sql"), params)?;
    move_behind(tx, next, ahead)
}

/// The run that a run is behind, which was behind this one before: it knows of no other if it could not be read
/// when that changed.
fn just_ahead(tx: &Tx<'_>, run: RunId, before: RunId) -> Result<RunId, Fault> {
    let mut ahead = before;
    for _ in 0..rules::MOVES_MAX {
        let Some(row) = row::readable(tx.conn, ahead)? else { break };
        match rules::nearer(&row.run, run) {
            Some(nearer) => ahead = nearer,
            None => return Ok(ahead),
        }
    }
    Ok(before)
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
