//! Steering runs: pausing, forking, and what a retry does about a child.
//!
//! Owns: what these do to the rows. Never decides whether they may; `store::steer` does.

use rusqlite::params;

use super::cancel::retry_row;
use super::export::whole;
use super::fault::Fault;
use super::signal::tell_parent;
use super::tx::Tx;
use super::{SqliteStore, import, row, sweep};
use crate::limits::LATE_CHILDREN_MAX;
use crate::model::step_id;
use crate::store::rules;
use crate::store::steer::{self, ChildAgain};
use crate::store::{Answer, Conflict, Error, Fork, KeyHold, Pause, Seen, Steer};
use crate::{Run, RunId};

impl Steer for SqliteStore {
    fn pause(&self, pause: Pause) -> Answer<'_, Run> {
        self.small(move |tx| {
            let mut row = tx.row(pause.run)?;
            if steer::pausing(&row.run)? {
                steer::pause(&mut row.run, &pause.caller, tx.now);
                row.save(tx.conn)?;
                tx.changed(row.run.id);
                tx.work();
            }
            Ok(row.run)
        })
    }

    fn resume(&self, run: RunId) -> Answer<'_, Run> {
        self.small(move |tx| {
            let mut row = tx.row(run)?;
            if steer::resuming(&row.run)? {
                steer::resume(&mut row.run);
                row.save(tx.conn)?;
                tx.changed(run);
                tx.work();
            }
            Ok(row.run)
        })
    }

    fn retry_seen(&self, seen: Seen) -> Answer<'_, bool> {
        self.small(move |tx| {
            let row = tx.row(seen.run)?;
            if row.run.wakes != seen.wakes {
                return Ok(false);
            }
            retry_row(tx, row).map(|()| true)
        })
    }

    fn fork(&self, fork: Fork) -> Answer<'_, Run> {
        self.large(move |tx| start_fork(tx, &fork))
    }

    fn cascade(&self) -> Answer<'_, bool> {
        self.large(sweep::cascade)
    }
}

fn start_fork(tx: &mut Tx<'_>, fork: &Fork) -> Result<Run, Fault> {
    if let Some(there) = row::by_id(tx.conn, fork.id)? {
        return Ok(there.run);
    }
    let source = whole(tx.conn, tx.row(fork.run)?)?;
    let mut forked = steer::forked(source, fork, tx.now)?;
    if let Some(key) = &fork.key {
        if let Some(run) = import::holder(tx, &forked.run.workflow, &key.key)? {
            return Err(Error::Conflict(Conflict::KeyTaken { run }).into());
        }
        forked.hold = Some(KeyHold::of(key, tx.now));
    }
    import::add(tx, &forked)?;
    Ok(tx.row(fork.id)?.run)
}

/// Retries the children that ran out of time with this run, and have told it so since.
pub(super) fn ask_late_children_again(tx: &mut Tx<'_>, run: i64) -> Result<(), Fault> {
    let params = params![run, row::limit(LATE_CHILDREN_MAX)];
    let failed: Vec<(String, [u8; 16])> =
        row::all(tx.conn, include_str!("sql/retry_late.sql"), params, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    for (step, child) in failed {
        let child = row::readable(tx.conn, row::run_id(child))?;
        if child.is_some_and(|child| rules::ran_out_of_time(&child.run)) {
            ask_child_again(tx, run, &step)?;
        }
    }
    Ok(())
}

/// Takes back what a child told of its end, and has it told anew, if the failure of this step is a
/// child's. A fork starts a child of its own, where it took that end along.
pub(super) fn ask_child_again(tx: &mut Tx<'_>, run: i64, step: &str) -> Result<(), Fault> {
    let sql = include_str!("sql/retry_signal.sql");
    let told = row::first(tx.conn, sql, params![run, step], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    let Some((no, recorded_as, child)) = told else {
        if step_id::is_child(step) {
            let params = params![run, step, tx.now.as_millis()];
            tx.execute(include_str!("sql/retry_void_child.sql"), params)?;
        }
        return Ok(());
    };
    let child = match child.parse::<RunId>() {
        Ok(child) => row::readable(tx.conn, child)?,
        Err(_) => None,
    };
    let Some(child) = child else { return Ok(()) };
    let undone = tx.exists(include_str!("sql/undone.sql"), [child.no])?;
    let again = steer::child_again(&child.run, undone);
    if again == ChildAgain::Leave {
        return Ok(());
    }
    let params = params![run, recorded_as, tx.now.as_millis()];
    tx.execute(include_str!("sql/retry_void_signal.sql"), params)?;
    let sql = include_str!("sql/retry_signal_drop.sql");
    let bytes = row::first(tx.conn, sql, params![run, no], |row| Ok(row.get::<_, i64>(0)?))?;
    tx.execute(include_str!("sql/signal_bytes.sql"), params![run, -bytes.unwrap_or(0)])?;
    match again {
        ChildAgain::Retry => retry_row(tx, child),
        ChildAgain::Tell => tell_parent(tx, &child.run),
        ChildAgain::Await | ChildAgain::Leave => Ok(()),
    }
}
