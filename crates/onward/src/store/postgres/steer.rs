//! Steering runs: pausing, forking, and what a retry does about a child.
//!
//! Owns: what these do to the rows. Never decides whether they may; `store::steer` does.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::cancel::retry_row;
use super::export::wholes;
use super::fault::Fault;
use super::row::{run_id, run_uuid, small_limit};
use super::tx::{Param, Session, Tx};
use super::{PostgresStore, Shared, import, signal, sweep};
use crate::limits::{CASCADE_BATCH_MAX, LATE_CHILDREN_MAX};
use crate::model::step_id;
use crate::store::rules;
use crate::store::steer::{self, ChildAgain};
use crate::store::{Answer, Conflict, Error, Fork, KeyHold, Pause, Seen, Steer};
use crate::{Run, RunId};

const CHILDREN: &str = "select onward.sweep_children($1)";

impl Steer for PostgresStore {
    fn pause(&self, pause: Pause) -> Answer<'_, Run> {
        self.in_transaction(pause, |tx, pause| Box::pin(mark(tx, pause)))
    }

    fn resume(&self, run: RunId) -> Answer<'_, Run> {
        self.in_transaction(run, |tx, run| Box::pin(unmark(tx, *run)))
    }

    fn retry_seen(&self, seen: Seen) -> Answer<'_, bool> {
        self.in_transaction(seen, |tx, seen| Box::pin(retry_seen(tx, *seen)))
    }

    fn fork(&self, fork: Fork) -> Answer<'_, Run> {
        self.in_transaction(fork, |tx, fork| Box::pin(start_fork(tx, fork)))
    }

    fn cascade(&self) -> Answer<'_, bool> {
        self.home.answer(cascade(Arc::clone(&self.shared)))
    }
}

async fn mark(tx: &mut Tx, pause: &Pause) -> Result<Run, Fault> {
    let mut row = tx.locked(pause.run).await?.ok_or(Error::NotFound)?;
    if steer::pausing(&row.run)? {
        steer::pause(&mut row.run, &pause.caller, tx.now);
        tx.save(&row).await?;
        tx.changed(row.run.id);
        tx.work();
    }
    Ok(row.run)
}

async fn retry_seen(tx: &mut Tx, seen: Seen) -> Result<bool, Fault> {
    let mut row = tx.locked(seen.run).await?.ok_or(Error::NotFound)?;
    if row.run.wakes != seen.wakes {
        return Ok(false);
    }
    retry_row(tx, &mut row).await?;
    Ok(true)
}

async fn unmark(tx: &mut Tx, run: RunId) -> Result<Run, Fault> {
    let mut row = tx.locked(run).await?.ok_or(Error::NotFound)?;
    if steer::resuming(&row.run)? {
        steer::resume(&mut row.run);
        tx.save(&row).await?;
        tx.changed(run);
        tx.work();
    }
    Ok(row.run)
}

async fn start_fork(tx: &mut Tx, fork: &Fork) -> Result<Run, Fault> {
    let ids = [run_uuid(fork.run), run_uuid(fork.id)];
    let mut found = wholes(tx, &ids).await?;
    if let Some(there) = found.remove(&fork.id) {
        return Ok(there.run);
    }
    let source = found.remove(&fork.run).ok_or(Error::NotFound)?;
    let mut forked = steer::forked(source, fork, tx.now)?;
    if let Some(key) = &fork.key {
        let now = tx.now.as_millis();
        let params: [Param<'_>; 3] =
            [(&forked.run.workflow, Type::TEXT), (&key.key, Type::TEXT), (&now, Type::INT8)];
        if let Some(held) = tx.first(include_str!("sql/start_key_holder.sql"), &params).await? {
            let run = run_id(held.try_get(0).map_err(Fault::data)?);
            return Err(Error::Conflict(Conflict::KeyTaken { run }).into());
        }
        forked.hold = Some(KeyHold::of(key, tx.now));
    }
    import::add(tx, std::slice::from_ref(&forked)).await?;
    tx.changed(fork.id);
    tx.work();
    Ok(forked.run)
}

pub(super) async fn cascade(shared: Arc<Shared>) -> Result<bool, Fault> {
    let mut session = Session::open(&shared).await?;
    let limit = small_limit(CASCADE_BATCH_MAX);
    let row = session.first(CHILDREN, &[(&limit, Type::INT4)]).await?;
    let children: Vec<uuid::Uuid> = match row {
        Some(row) => row.try_get(0).map_err(Fault::data)?,
        None => Vec::new(),
    };
    drop(session);
    let more = !children.is_empty();
    sweep::cascade(&shared, children).await?;
    Ok(more)
}

/// Retries the children that ran out of time with this run, and have told it so since.
pub(super) async fn ask_late_children_again(tx: &mut Tx, run: RunId) -> Result<(), Fault> {
    let (id, limit) = (run_uuid(run), small_limit(LATE_CHILDREN_MAX));
    let params: [Param<'_>; 2] = [(&id, Type::UUID), (&limit, Type::INT4)];
    for failed in tx.rows(include_str!("sql/retry_late.sql"), &params).await? {
        let step: String = failed.try_get(0).map_err(Fault::data)?;
        let child = run_id(failed.try_get(1).map_err(Fault::data)?);
        let child = tx.locked_readable(child).await?;
        if child.is_some_and(|child| rules::ran_out_of_time(&child.run)) {
            ask_child_again(tx, run, &step).await?;
        }
    }
    Ok(())
}

/// Takes back what a child told of its end, and has it told anew, if the failure of this step is a
/// child's. A fork starts a child of its own, where it took that end along. The run is locked.
pub(super) async fn ask_child_again(tx: &mut Tx, run: RunId, step: &str) -> Result<(), Fault> {
    let id = run_uuid(run);
    let sql = include_str!("sql/retry_signal.sql");
    let told = tx.first(sql, &[(&id, Type::UUID), (&step, Type::TEXT)]).await?;
    let Some(told) = told else {
        if step_id::is_child(step) {
            let now = tx.now.as_millis();
            let params: [Param<'_>; 3] =
                [(&id, Type::UUID), (&step, Type::TEXT), (&now, Type::INT8)];
            tx.rows(include_str!("sql/retry_void_child.sql"), &params).await?;
        }
        return Ok(());
    };
    let no: i64 = told.try_get(0).map_err(Fault::data)?;
    let recorded_as: String = told.try_get(1).map_err(Fault::data)?;
    let child: String = told.try_get(2).map_err(Fault::data)?;
    let child = match child.parse::<RunId>() {
        Ok(child) => tx.locked_readable(child).await?,
        Err(_) => None,
    };
    let Some(mut child) = child else { return Ok(()) };
    let child_id = run_uuid(child.run.id);
    let undone = tx.exists(include_str!("sql/undone.sql"), &[(&child_id, Type::UUID)]).await?;
    let again = steer::child_again(&child.run, undone);
    if again == ChildAgain::Leave {
        return Ok(());
    }
    void_signal(tx, run, &recorded_as).await?;
    let params: [Param<'_>; 2] = [(&id, Type::UUID), (&no, Type::INT8)];
    tx.rows(include_str!("sql/retry_signal_drop.sql"), &params).await?;
    match again {
        ChildAgain::Retry => retry_row(tx, &mut child).await,
        ChildAgain::Tell => signal::tell_parent(tx, child.run.id).await,
        ChildAgain::Await | ChildAgain::Leave => Ok(()),
    }
}

/// Takes the record of a signal out of a run's history, visibly.
pub(super) async fn void_signal(tx: &Tx, run: RunId, recorded_as: &str) -> Result<(), Fault> {
    let (id, now) = (run_uuid(run), tx.now.as_millis());
    let params: [Param<'_>; 3] =
        [(&id, Type::UUID), (&recorded_as, Type::TEXT), (&now, Type::INT8)];
    tx.rows(include_str!("sql/retry_void_signal.sql"), &params).await?;
    Ok(())
}
