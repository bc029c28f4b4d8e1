//! The verbs that only read.
//!
//! Owns: what `get`, `list`, `history`, `duplicates` and `stats` answer. Never writes, and works
//! while no worker is up.

use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::Shared;
use super::fault::Fault;
use super::row::{self, Columns, limit, run_uuid, signed, worker_id};
use super::tx::{Param, Session};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{
    Duplicate, Duplicates, Error, Filter, HistoryPage, Query, RunPage, Stats, Which, WorkerInfo,
};
use crate::{Run, RunId, Timestamp};

/// One run.
pub(super) async fn get(shared: Arc<Shared>, which: Which) -> Result<Option<Run>, Fault> {
    let mut session = Session::open(&shared).await?;
    let id = match which {
        Which::Id(id) => run_uuid(id),
        Which::Key { workflow, key } => {
            let now = shared.clock.given();
            let params: [Param<'_>; 3] =
                [(&workflow, Type::TEXT), (&key, Type::TEXT), (&now, Type::INT8)];
            let holder = session.first(include_str!("sql/start_key_holder.sql"), &params).await?;
            match holder {
                Some(row) => row.try_get(0).map_err(Fault::data)?,
                None => return Ok(None),
            }
        }
    };
    let found = session.first(row::RUN_BY_ID, &[(&id, Type::UUID)]).await?;
    Ok(found.as_ref().map(row::row).transpose()?.map(|row| row.run))
}

/// A page of runs, newest first. A run that cannot be read is shown as far as it can be, stuck
/// with `corrupt_record`, so that one bad row does not hide the others.
pub(super) async fn list(shared: Arc<Shared>, query: Query) -> Result<RunPage, Fault> {
    let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
    let mut conditions = Conditions::of(query.filter);
    if let Some(before) = query.before {
        conditions.add("r.id < $", Box::new(run_uuid(before)), Type::UUID);
    }
    let params: Vec<Param<'_>> = (conditions.values.iter())
        .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
        .collect();
    let mut session = Session::open(&shared).await?;
    let rows = session.read_written(&conditions.sql(limit + 1), &params).await?;
    let read = |found: &tokio_postgres::Row| match row::row(found) {
        Err(fault @ Fault::Data(_)) => row::shown(found, &fault),
        read => read.map(|row| row.run),
    };
    let mut runs: Vec<Run> = rows.iter().map(read).collect::<Result<_, _>>()?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    Ok(RunPage { runs, more })
}

/// The conditions of a list, each with its value.
#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
}

impl Conditions {
    fn of(filter: Filter) -> Self {
        let mut all = Self::default();
        all.add_text("r.workflow = $", filter.workflow);
        all.add_text("r.queue = $", filter.queue);
        all.add_text("r.key = $", filter.key);
        if !filter.states.is_empty() {
            // Written out, because a partial index is used only for a condition that is known when
            // the statement is planned.
            let names: Vec<_> = filter.states.iter().map(|state| format!("'{state}'")).collect();
            all.texts.push(format!("r.state in ({})", names.join(", ")));
        }
        for (name, value) in filter.tags {
            all.add(
                "r.id in (select run from onward.tags where name = $",
                Box::new(name),
                Type::TEXT,
            );
            let at = all.values.len() + 1;
            if let Some(text) = all.texts.last_mut() {
                *text += &format!(" and value = ${at})");
            }
            all.values.push((Box::new(value), Type::TEXT));
        }
        if let Some(parent) = filter.parent {
            all.add("r.parent = $", Box::new(run_uuid(parent)), Type::UUID);
        }
        if let Some(from) = filter.created_from {
            all.add("r.created_at >= $", Box::new(from.as_millis()), Type::INT8);
        }
        if let Some(before) = filter.created_before {
            all.add("r.created_at < $", Box::new(before.as_millis()), Type::INT8);
        }
        all
    }

    fn add(&mut self, text: &str, value: Box<dyn ToSql + Sync + Send>, kind: Type) {
        self.values.push((value, kind));
        self.texts.push(format!("{text}{}", self.values.len()));
    }

    fn add_text(&mut self, text: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(text, Box::new(value), Type::TEXT);
        }
    }

    fn sql(&self, limit: usize) -> String {
        let clause = match self.texts.is_empty() {
            true => String::new(),
            false => format!("where {}\n", self.texts.join("\nand ")),
        };
        format!("{}{clause}order by r.id desc\nlimit {limit}", row::RUN)
    }
}

/// A page of a run's records.
pub(super) async fn history(
    shared: Arc<Shared>,
    run: RunId,
    after: Option<u64>,
    most: usize,
) -> Result<HistoryPage, Fault> {
    let mut session = Session::open(&shared).await?;
    suppressed(&mut session, run).await?;
    let most = most.clamp(1, PAGE_ROWS_MAX);
    let params: [Param<'_>; 3] = [
        (&run_uuid(run), Type::UUID),
        (&after.map_or(-1, signed), Type::INT8),
        (&limit(most + 1), Type::INT8),
    ];
    let rows = session.rows(include_str!("sql/history.sql"), &params).await?;
    let mut records = rows.iter().map(row::record).collect::<Result<Vec<_>, _>>()?;
    let more = records.len() > most;
    records.truncate(most);
    Ok(HistoryPage { records, more })
}

/// What came with the key of a run and was suppressed.
pub(super) async fn duplicates(shared: Arc<Shared>, run: RunId) -> Result<Duplicates, Fault> {
    let mut session = Session::open(&shared).await?;
    let count = suppressed(&mut session, run).await?;
    let params: [Param<'_>; 1] = [(&run_uuid(run), Type::UUID)];
    let rows = session.rows(include_str!("sql/duplicates.sql"), &params).await?;
    let read = |row: &tokio_postgres::Row| -> Result<_, tokio_postgres::Error> {
        let at = Timestamp::from_millis(row.try_get(0)?);
        Ok(Duplicate { at, caller: row.try_get(1)?, same_input: row.try_get(2)? })
    };
    let latest = rows.iter().map(read).collect::<Result<_, _>>().map_err(Fault::data)?;
    Ok(Duplicates { count, latest })
}

/// How many starts were suppressed for a run, which must be there.
async fn suppressed(session: &mut Session, run: RunId) -> Result<u64, Fault> {
    let params: [Param<'_>; 1] = [(&run_uuid(run), Type::UUID)];
    let row = session.first(include_str!("sql/duplicates_count.sql"), &params).await?;
    let row = row.ok_or(Error::NotFound)?;
    Ok(u64::try_from(row.try_get::<_, i64>(0).map_err(Fault::data)?).unwrap_or(0))
}

/// The workers; what cannot be read is left out.
pub(super) async fn workers(shared: Arc<Shared>) -> Result<Vec<WorkerInfo>, Fault> {
    let mut session = Session::open(&shared).await?;
    workers_in(&mut session).await
}

/// Counts standbys that no commit waits for.
pub(super) async fn unawaited_standbys(shared: Arc<Shared>) -> Result<u64, Fault> {
    let mut session = Session::open(&shared).await?;
    let row = session.first(include_str!("sql/stats_standbys.sql"), &[]).await?;
    let count: i64 = row.map_or(Ok(0), |row| row.try_get(0)).map_err(Fault::data)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

async fn workers_in(session: &mut Session) -> Result<Vec<WorkerInfo>, Fault> {
    let workers = session.rows(include_str!("sql/stats_workers.sql"), &[]).await?;
    Ok(workers.iter().filter_map(|row| worker(row).ok()).collect())
}

/// Counts of runs, and the workers; what cannot be read is left out.
pub(super) async fn stats(shared: Arc<Shared>) -> Result<Stats, Fault> {
    let mut session = Session::open(&shared).await?;
    let mut stats = Stats::default();
    for row in session.rows(include_str!("sql/stats_states.sql"), &[]).await? {
        if let Ok(state) = row::state_of(&row, 0) {
            stats.runs.insert(state, counted(&row, 1)?);
        }
    }
    for row in session.rows(include_str!("sql/stats_queues.sql"), &[]).await? {
        stats.queued.insert(row.try_get(0).map_err(Fault::data)?, counted(&row, 1)?);
    }
    stats.workers = workers_in(&mut session).await?;
    Ok(stats)
}

fn counted(row: &tokio_postgres::Row, column: usize) -> Result<u64, Fault> {
    let count: i64 = row.try_get(column).map_err(Fault::data)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn worker(row: &tokio_postgres::Row) -> Result<WorkerInfo, Fault> {
    let concurrency: Option<i64> = row.try_get(7).map_err(Fault::data)?;
    let mut columns = Columns { row, next: 0 };
    Ok(WorkerInfo {
        id: worker_id(columns.take()?),
        build: columns.take()?,
        place: columns.take()?,
        queues: columns.json()?.unwrap_or_default(),
        workflows: columns.json()?.unwrap_or_default(),
        lease_until: Timestamp::from_millis(columns.take()?),
        running: counted(row, 6)?,
        concurrency: concurrency.and_then(|places| u32::try_from(places).ok()),
    })
}
