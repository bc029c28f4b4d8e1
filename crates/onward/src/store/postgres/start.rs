//! Starting runs, one at a time, and what a key does to a start: what a group commit did not take.
//!
//! Owns: new runs, their keys, and the audit of duplicates. Never decides what a key that is in
//! use means; `rules` does.

use tokio_postgres::types::Type;

use super::fault::{AGAIN_MAX, Fault};
use super::row::{Row, json_text, limit, notes_column, run_id, run_uuid, small, worker_uuid};
use super::tx::{Param, Tx};
use super::{cancel, queues, turn};
use crate::limits::{DUPLICATES_KEPT_MAX, GATHERED_PURGE_BATCH};
use crate::store::gather;
use crate::store::rules::{self, InLine, KeyMet};
use crate::store::{Conflict, Error, NewKey, NewParent, NewRun, Started, StartedHow};
use crate::{Run, RunId, RunState, Timestamp};

/// Starts one run, or says what became of it.
pub(super) async fn start(tx: &mut Tx, new: &NewRun) -> Result<Started, Fault> {
    if let Some(started) = started_before(tx, new).await? {
        return Ok(started);
    }
    check_parent(tx, new).await?;
    let Some(key) = &new.key else {
        return insert(tx, new, None).await;
    };
    if let Some(started) = met_before(tx, new, key).await? {
        return Ok(started);
    }
    let (mut holder, taken) = hold_key(tx, new, key).await?;
    // The same start may have been under way until it let go of the key.
    if !matches!(taken, Taken::Mine)
        && let Some(started) = met_before(tx, new, key).await?
    {
        return Ok(started);
    }
    match (&mut holder, taken) {
        (Some(holder), Taken::By { same_input }) => {
            meet_key(tx, new, key, holder, same_input).await
        }
        (_, Taken::Mine) => insert(tx, new, None).await,
        _ => {
            take_key(tx, new, key).await?;
            insert(tx, new, None).await
        }
    }
}

/// Refuses a child whose parent is not held by who starts it. The last word is the guard's.
async fn check_parent(tx: &mut Tx, new: &NewRun) -> Result<(), Fault> {
    let Some(NewParent { lease, .. }) = new.parent else { return Ok(()) };
    let params: [Param<'_>; 3] = [
        (&run_uuid(lease.run), Type::UUID),
        (&worker_uuid(lease.worker), Type::UUID),
        (&small(lease.attempt), Type::INT4),
    ];
    let held = tx.exists(include_str!("sql/parent_held.sql"), &params).await?;
    if !held || tx.is_lost(lease.worker).await? {
        return Err(Error::LeaseLost.into());
    }
    tx.guard(lease.worker);
    Ok(())
}

/// How a start found its key, which is locked now.
enum Taken {
    /// It was free and is this start's.
    Mine,
    /// It has expired, or its run is gone.
    Over,
    /// A run has it.
    By { same_input: bool },
}

/// Takes a free key, or locks it with the run that has it.
async fn hold_key(tx: &Tx, new: &NewRun, key: &NewKey) -> Result<(Option<Row>, Taken), Fault> {
    let names: [Param<'_>; 3] =
        [(&new.workflow, Type::TEXT), (&key.key, Type::TEXT), (&tx.now.as_millis(), Type::INT8)];
    for _ in 0..AGAIN_MAX {
        if let Some(row) = tx.first(include_str!("sql/start_key_lock.sql"), &names).await? {
            let holder = run_id(row.try_get(0).map_err(Fault::data)?);
            let fingerprint: Vec<u8> = row.try_get(1).map_err(Fault::data)?;
            if !row.try_get(2).map_err(Fault::data)? {
                return Ok((None, Taken::Over));
            }
            let same_input = fingerprint == key.fingerprint.0;
            return Ok((tx.locked(holder).await?, Taken::By { same_input }));
        }
        if tx.exists(include_str!("sql/start_key.sql"), &key_params(tx, new, key).each()).await? {
            return Ok((None, Taken::Mine));
        }
        // Somebody else took it in between, or pruned it: look again.
    }
    Err(Fault::Again("the key is taken and freed again and again".to_owned()))
}

/// Takes a key that nobody has; says whether nobody had it. One that has expired is taken too.
pub(super) async fn take_new_key(tx: &Tx, new: &NewRun, key: &NewKey) -> Result<bool, Fault> {
    let (_, taken) = hold_key(tx, new, key).await?;
    if matches!(taken, Taken::Over) {
        take_key(tx, new, key).await?;
    }
    Ok(!matches!(taken, Taken::By { .. }))
}

async fn take_key(tx: &Tx, new: &NewRun, key: &NewKey) -> Result<(), Fault> {
    let params = key_params(tx, new, key);
    tx.rows(include_str!("sql/start_key_take.sql"), &params.each()).await?;
    Ok(())
}

struct KeyParams<'a> {
    workflow: &'a str,
    key: &'a str,
    run: uuid::Uuid,
    fingerprint: &'a [u8],
    expires_at: Option<i64>,
}

fn key_params<'a>(tx: &Tx, new: &'a NewRun, key: &'a NewKey) -> KeyParams<'a> {
    KeyParams {
        workflow: &new.workflow,
        key: &key.key,
        run: run_uuid(new.id),
        fingerprint: &key.fingerprint.0,
        expires_at: key.ttl_ms.map(|ttl| tx.now.as_millis() + ttl),
    }
}

impl KeyParams<'_> {
    fn each(&self) -> [Param<'_>; 5] {
        [
            (&self.workflow, Type::TEXT),
            (&self.key, Type::TEXT),
            (&self.run, Type::UUID),
            (&self.fingerprint, Type::BYTEA),
            (&self.expires_at, Type::INT8),
        ]
    }
}

/// What a repeated start is told: the same as the first time, as far as it still holds.
async fn started_before(tx: &Tx, new: &NewRun) -> Result<Option<Started>, Fault> {
    let sql = include_str!("sql/start_again.sql");
    let Some(row) = tx.first(sql, &[(&run_uuid(new.id), Type::UUID)]).await? else {
        return Ok(None);
    };
    let read = || -> Result<_, tokio_postgres::Error> {
        let worker: Option<uuid::Uuid> = row.try_get(1)?;
        let (attempt, ticket): (i32, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        Ok((row.try_get::<_, i64>(0)?, worker, attempt, ticket, row.try_get::<_, bool>(4)?))
    };
    let (created_at, worker, attempt, ticket, recorded) = read().map_err(Fault::data)?;
    let held = new.claimant.as_ref().is_some_and(|claimant| {
        worker == Some(worker_uuid(claimant.worker)) && attempt == 1 && ticket.is_none()
    });
    let how = if held && !recorded { StartedHow::Claimed } else { StartedHow::New };
    Ok(Some(Started { run: new.id, how, at: Timestamp::from_millis(created_at) }))
}

async fn meet_key(
    tx: &mut Tx,
    new: &NewRun,
    key: &NewKey,
    holder: &mut Row,
    same_input: bool,
) -> Result<Started, Fault> {
    let met = match key.gather {
        Some(gather) => gather.met(&holder.run, tx.now),
        None => rules::key_met(key.on_conflict, same_input, &holder.run),
    };
    let answer = met.answer(&holder.run, new.id, tx.now);
    if key.gather.is_some() && met != KeyMet::Fresh {
        note_gathered(tx, new, &holder.run).await?;
    }
    match met {
        KeyMet::Replace => replace(tx, new, key, holder).await?,
        KeyMet::Retry => cancel::retry_row(tx, holder).await?,
        KeyMet::Fresh => {
            take_key(tx, new, key).await?;
            return insert(tx, new, None).await;
        }
        KeyMet::Later => put_off(tx, new, key, holder, same_input).await?,
        KeyMet::Existing | KeyMet::OtherInput | KeyMet::Taken => {
            add_duplicate(tx, holder, new, same_input).await?;
        }
    }
    Ok(answer?)
}

/// What a gathered start that is made again is told, if it made a run or met one before.
async fn met_before(tx: &Tx, new: &NewRun, key: &NewKey) -> Result<Option<Started>, Fault> {
    if key.gather.is_none() {
        return Ok(None);
    }
    let start: [Param<'_>; 1] = [(&run_uuid(new.id), Type::UUID)];
    match tx.first(include_str!("sql/start_gathered.sql"), &start).await? {
        Some(row) => {
            let run = run_id(row.try_get(0).map_err(Fault::data)?);
            let created_at = row.try_get(1).map_err(Fault::data)?;
            Ok(Some(gather::met_before(run, Timestamp::from_millis(created_at))))
        }
        None => started_before(tx, new).await,
    }
}

/// Notes which run a gathered start met, and forgets a few notes that are too old to be asked for.
async fn note_gathered(tx: &Tx, new: &NewRun, met: &Run) -> Result<(), Fault> {
    let params: [Param<'_>; 6] = [
        (&run_uuid(new.id), Type::UUID),
        (&run_uuid(met.id), Type::UUID),
        (&met.created_at.as_millis(), Type::INT8),
        (&tx.now.as_millis(), Type::INT8),
        (&gather::over(tx.now).as_millis(), Type::INT8),
        (&limit(GATHERED_PURGE_BATCH), Type::INT8),
    ];
    tx.rows(include_str!("sql/start_gather.sql"), &params).await?;
    Ok(())
}

/// Gives the run that has the key the input of a later start, and puts it off.
async fn put_off(
    tx: &mut Tx,
    new: &NewRun,
    key: &NewKey,
    holder: &mut Row,
    same_input: bool,
) -> Result<(), Fault> {
    gather::put_off(&mut holder.run, new, tx.now);
    tx.save(holder).await?;
    let input: [Param<'_>; 2] =
        [(&run_uuid(holder.run.id), Type::UUID), (&new.input.as_str(), Type::TEXT)];
    tx.rows(include_str!("sql/start_input_later.sql"), &input).await?;
    let fingerprint = key.fingerprint.0.as_slice();
    let names: [Param<'_>; 3] =
        [(&new.workflow, Type::TEXT), (&key.key, Type::TEXT), (&fingerprint, Type::BYTEA)];
    tx.rows(include_str!("sql/start_key_later.sql"), &names).await?;
    tx.changed(holder.run.id);
    tx.work();
    add_duplicate(tx, holder, new, same_input).await
}

async fn add_duplicate(tx: &Tx, holder: &Row, new: &NewRun, same_input: bool) -> Result<(), Fault> {
    let id = run_uuid(holder.run.id);
    let params: [Param<'_>; 5] = [
        (&id, Type::UUID),
        (&run_uuid(new.id), Type::UUID),
        (&tx.now.as_millis(), Type::INT8),
        (&new.caller, Type::TEXT),
        (&same_input, Type::BOOL),
    ];
    let counted = tx.first(include_str!("sql/start_duplicate.sql"), &params).await?;
    let count: Option<i64> = counted.map(|row| row.try_get(0)).transpose().map_err(Fault::data)?;
    if count.is_some_and(|count| count > DUPLICATES_KEPT_MAX as i64) {
        tx.rows(include_str!("sql/start_duplicate_drop.sql"), &[(&id, Type::UUID)]).await?;
    }
    Ok(())
}

/// Ends the run that has the key and starts the new one behind it.
async fn replace(tx: &mut Tx, new: &NewRun, key: &NewKey, holder: &mut Row) -> Result<(), Fault> {
    take_key(tx, new, key).await?;
    queue_behind(tx, new, holder).await
}

/// Ends a locked run and starts the new one, whose key is taken for it, behind it.
pub(super) async fn queue_behind(tx: &mut Tx, new: &NewRun, holder: &mut Row) -> Result<(), Fault> {
    let ahead = rules::ahead(&holder.run).unwrap_or(holder.run.id);
    match cancel::cancel_row(tx, holder).await {
        Ok(()) | Err(Fault::Refused(Error::Conflict(Conflict::Finished { .. }))) => {}
        Err(fault) => return Err(fault),
    }
    let place = turn::join(tx, ahead, new.id).await?;
    // The answer says `Replaced`, not `Claimed`: a claimant would hold the run and not know it.
    let new = NewRun { claimant: None, ..new.clone() };
    insert(tx, &new, place).await?;
    Ok(())
}

pub(super) async fn insert(
    tx: &mut Tx,
    new: &NewRun,
    place: Option<InLine>,
) -> Result<Started, Fault> {
    let mut run = rules::fresh(new, place, tx.now);
    if let Some(parent) = &new.parent {
        heed_parent(tx, &mut run, parent.lease.run).await?;
    }
    let mut how = StartedHow::New;
    if let Some(claimant) = &new.claimant
        && run.state == RunState::Queued
        && !tx.is_lost(claimant.worker).await?
        && !queues::is_set_up(tx, &run.queue).await?
    {
        rules::claim(&mut run, claimant.worker, &claimant.build, tx.now);
        tx.guard(claimant.worker);
        how = StartedHow::Claimed;
    }
    insert_run(tx, &run).await?;
    Ok(Started { run: new.id, how, at: tx.now })
}

/// Gives a child its parent's deadline, where that is sooner. One that is started though its parent is
/// asked to end is asked too.
async fn heed_parent(tx: &Tx, run: &mut Run, parent: RunId) -> Result<(), Fault> {
    let id = run_uuid(parent);
    let id: [Param<'_>; 1] = [(&id, Type::UUID)];
    let Some(marks) = tx.first(include_str!("sql/start_parent_marks.sql"), &id).await? else {
        return Ok(());
    };
    let deadline_at: Option<i64> = marks.try_get(0).map_err(Fault::data)?;
    rules::limit_child(run, deadline_at.map(Timestamp::from_millis));
    if marks.try_get(1).map_err(Fault::data)? {
        tx.rows(include_str!("sql/cascade_mark.sql"), &id).await?;
    }
    Ok(())
}

/// Adds a run's row, its input and its tags.
pub(super) async fn insert_run(tx: &mut Tx, run: &Run) -> Result<(), Fault> {
    let id = run_uuid(run.id);
    let tags = if run.tags.is_empty() { None } else { Some(json_text(&run.tags)?) };
    let waits_for = run.waits_for.as_ref().map(json_text).transpose()?;
    let time = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
    let params: [Param<'_>; 20] = [
        (&id, Type::UUID),
        (&run.state.as_str(), Type::TEXT),
        (&small(run.attempt), Type::INT4),
        (&run.worker.map(worker_uuid), Type::UUID),
        (&run.priority, Type::INT4),
        (&time(run.due_at), Type::INT8),
        (&run.workflow, Type::TEXT),
        (&run.queue, Type::TEXT),
        (&run.build, Type::TEXT),
        (&run.successor.map(run_uuid), Type::UUID),
        (&waits_for, Type::TEXT),
        (&run.key, Type::TEXT),
        (&run.created_at.as_millis(), Type::INT8),
        (&time(run.started_at), Type::INT8),
        (&time(run.deadline_at), Type::INT8),
        (&run.continued_from.map(run_uuid), Type::UUID),
        (&run.input.as_str(), Type::TEXT),
        (&tags, Type::TEXT),
        (&run.lane, Type::TEXT),
        (&notes_column(run)?, Type::TEXT),
    ];
    tx.rows(include_str!("sql/start_run.sql"), &params).await?;
    for (name, value) in &run.tags {
        let params: [Param<'_>; 3] = [(name, Type::TEXT), (value, Type::TEXT), (&id, Type::UUID)];
        tx.rows(include_str!("sql/start_tag.sql"), &params).await?;
    }
    if let Some(parent) = &run.parent {
        let params: [Param<'_>; 4] = [
            (&id, Type::UUID),
            (&run_uuid(parent.run), Type::UUID),
            (&parent.step, Type::TEXT),
            (&parent.detached, Type::BOOL),
        ];
        tx.rows(include_str!("sql/start_parent.sql"), &params).await?;
    }
    if run.paused_at.is_some() {
        let params: [Param<'_>; 3] =
            [(&id, Type::UUID), (&time(run.paused_at), Type::INT8), (&run.paused_by, Type::TEXT)];
        tx.rows(include_str!("sql/start_paused.sql"), &params).await?;
    }
    tx.changed(run.id);
    if run.due_at.is_some() {
        tx.work();
    }
    Ok(())
}
