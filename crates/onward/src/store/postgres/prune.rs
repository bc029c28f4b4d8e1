//! Deleting runs that ended long ago, with all that belongs to them; or only the key of one.
//!
//! Owns: the call that prunes, and the count of a dry run. Never deletes a run that has not ended.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::fault::{AGAIN_MAX, Fault};
use super::row::{self, Columns, RUN_BY_ID, run_uuid, small_limit};
use super::steer::cascade;
use super::tx::{Changes, Param, Session};
use super::{PostgresStore, Shared};
use crate::limits::PRUNE_BATCH_MAX;
use crate::store::{Answer, Conflict, Delete, Error, Prune, Pruned};
use crate::{RunId, RunState};

const PRUNE: &str = "select runs, more from onward.prune($1, $2, $3, $4, null)";

/// No state has ended long ago enough, so that only the run itself is deleted.
const DELETE: &str = "select runs, more from onward.prune(0, 0, '{}', 1, $1)";

impl Delete for PostgresStore {
    fn delete_run(&self, run: RunId) -> Answer<'_, bool> {
        self.home.answer(delete(Arc::clone(&self.shared), run))
    }

    fn release_run_key(&self, run: RunId) -> Answer<'_, bool> {
        self.home.answer(release_key(Arc::clone(&self.shared), run))
    }
}

async fn delete(shared: Arc<Shared>, run: RunId) -> Result<bool, Fault> {
    let params: [Param<'_>; 1] = [(&run_uuid(run), Type::UUID)];
    for _ in 0..AGAIN_MAX {
        while cascade(Arc::clone(&shared)).await? {}
        let mut session = Session::open(&shared).await?;
        let row = session.first(DELETE, &params).await?;
        let row = row.ok_or_else(|| Fault::data("a delete without an answer"))?;
        if (Columns { row: &row, next: 0 }).take::<i64>()? > 0 {
            return Ok(true);
        }
        // Not there, not ended, or cancelled since its children were looked for.
        match session.first(RUN_BY_ID, &params).await? {
            None => return Ok(false),
            Some(row) if !row::row(&row)?.run.state.is_final() => {
                return Err(Error::Conflict(Conflict::NotEnded { run }).into());
            }
            Some(_) => {}
        }
    }
    Err(Fault::Again("the run's children are not asked to end yet".to_owned()))
}

async fn release_key(shared: Arc<Shared>, run: RunId) -> Result<bool, Fault> {
    let mut session = Session::open(&shared).await?;
    let now = shared.clock.given();
    let id = run_uuid(run);
    let params: [Param<'_>; 2] = [(&id, Type::UUID), (&now, Type::INT8)];
    let freed = session.first(include_str!("sql/release_run_key.sql"), &params).await?;
    if let Some(row) = freed {
        shared.tell(Changes { runs: vec![run], ..Changes::default() });
        return (Columns { row: &row, next: 0 }).take();
    }
    match session.first(RUN_BY_ID, &params[..1]).await? {
        Some(row) if !row::row(&row)?.run.state.is_final() => {
            Err(Error::Conflict(Conflict::NotEnded { run }).into())
        }
        _ => Ok(false),
    }
}

/// Deletes a bounded batch of old runs, or counts them.
pub(super) async fn prune(shared: Arc<Shared>, prune: Prune) -> Result<Pruned, Fault> {
    let mut session = Session::open(&shared).await?;
    let (now, age) = (shared.clock.given(), prune.older_than_ms);
    let states: Vec<&str> = (RunState::ALL.into_iter())
        .filter(|state| prune.covers(*state))
        .map(RunState::as_str)
        .collect();
    if prune.dry_run {
        let params: [Param<'_>; 3] =
            [(&states, Type::TEXT_ARRAY), (&now, Type::INT8), (&age, Type::INT8)];
        let row = session.first(include_str!("sql/prune_count.sql"), &params).await?;
        let count: i64 = row.map_or(Ok(0), |row| row.try_get(0)).map_err(Fault::data)?;
        return Ok(Pruned { runs: u64::try_from(count).unwrap_or(0), more: false });
    }
    drop(session);
    if cascade(Arc::clone(&shared)).await? {
        return Ok(Pruned { runs: 0, more: true });
    }
    let mut session = Session::open(&shared).await?;
    let limit = small_limit(prune.limit.clamp(1, PRUNE_BATCH_MAX));
    let params: [Param<'_>; 4] =
        [(&now, Type::INT8), (&age, Type::INT8), (&states, Type::TEXT_ARRAY), (&limit, Type::INT4)];
    let row = session.first(PRUNE, &params).await?;
    let row = row.ok_or_else(|| Fault::data("a prune without an answer"))?;
    let mut columns = Columns { row: &row, next: 0 };
    let runs = u64::try_from(columns.take::<i64>()?).unwrap_or(0);
    Ok(Pruned { runs, more: columns.take()? })
}
