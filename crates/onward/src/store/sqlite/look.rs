//! The verbs that only read.
//!
//! Owns: what `get`, `list`, `history`, `duplicates` and `stats` answer. Never writes, and works
//! while no worker is up.

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::fault::Fault;
use super::row::{self, run_blob, worker_id};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{
    Duplicate, Duplicates, Error, Filter, HistoryPage, Query, RunPage, Stats, Which, WorkerInfo,
};
use crate::{Run, RunId, RunState, Timestamp};

/// One run.
pub(super) fn get(conn: &Connection, which: &Which, now: Timestamp) -> Result<Option<Run>, Fault> {
    let row = match which {
        Which::Id(id) => row::by_id(conn, *id)?,
        Which::Key { workflow, key } => {
            let sql = include_str!("sql/start_key_holder.sql");
            let params = params![workflow, key, now.as_millis()];
            match row::first(conn, sql, params, |row| Ok(row.get::<_, i64>(0)?))? {
                Some(no) => row::by_no(conn, no)?,
                None => None,
            }
        }
    };
    Ok(row.map(|row| row.run))
}

/// Leaves out the runs whose id is damaged, in the statement: a page is as full without them.
const WHOLE_ID: &str = "typeof(r.id) = 'blob' and length(r.id) = 16";

/// A page of runs, newest first. A run that cannot be read is shown as far as it can be, stuck
/// with `corrupt_record`, so that one bad row does not hide the others; one whose id is damaged
/// cannot be named and is left out.
pub(super) fn list(conn: &Connection, query: &Query) -> Result<RunPage, Fault> {
    let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
    let (sql, mut values) = list_statement(query);
    values.push(Value::Integer(row::limit(limit + 1)));
    let mut runs = row::all(conn, &sql, params_from_iter(values), |row| match row::row(row) {
        Err(fault @ Fault::Data(_)) => row::shown(row, &fault),
        read => read.map(|row| row.run),
    })?;
    let more = runs.len() > limit;
    runs.truncate(limit);
    Ok(RunPage { runs, more })
}

/// The statement of a list with its values, but for how many runs it gives.
pub(super) fn list_statement(query: &Query) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(&query.filter);
    conditions.texts.push(WHOLE_ID.to_owned());
    if let Some(before) = query.before {
        conditions.add("r.id < ?", Value::Blob(run_blob(before).to_vec()));
    }
    let clause = conditions.clause();
    (format!("{}{clause}order by r.id desc\nlimit ?", row::RUN), conditions.values)
}

/// The conditions of a list, each with its value.
#[derive(Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn of(filter: &Filter) -> Self {
        let mut all = Self::default();
        all.add_text("r.workflow = ?", filter.workflow.as_ref());
        all.add_text("r.queue = ?", filter.queue.as_ref());
        all.add_text("r.key = ?", filter.key.as_ref());
        all.add_states(&filter.states);
        for (name, value) in &filter.tags {
            all.add(
                "r.no in (select run from onward_tags where name = ? and value = ?)",
                Value::Text(name.clone()),
            );
            all.values.push(Value::Text(value.clone()));
        }
        if let Some(parent) = filter.parent {
            all.add("r.parent = ?", Value::Blob(run_blob(parent).to_vec()));
        }
        let time = |time: Timestamp| Value::Integer(time.as_millis());
        if let Some(from) = filter.created_from {
            all.add("r.created_at >= ?", time(from));
        }
        if let Some(before) = filter.created_before {
            all.add("r.created_at < ?", time(before));
        }
        all
    }

    fn add(&mut self, text: &str, value: Value) {
        self.texts.push(text.to_owned());
        self.values.push(value);
    }

    fn add_text(&mut self, text: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.add(text, Value::Text(value.clone()));
        }
    }

    /// States are written out, because a partial index is used only for a condition that is
    /// known when the statement is prepared. Few runs fail or are cancelled, so these are found
    /// by the index of finished runs; completed ones are found fastest by walking down the ids.
    fn add_states(&mut self, states: &[RunState]) {
        if states.is_empty() {
            return;
        }
        let names: Vec<_> = states.iter().map(|state| format!("'{state}'")).collect();
        self.texts.push(format!("r.state in ({})", names.join(", ")));
        let rare = |state: &RunState| matches!(state, RunState::Failed | RunState::Cancelled);
        if states.iter().all(rare) {
            self.texts.push("r.finished_at is not null".to_owned());
        }
    }

    fn clause(&self) -> String {
        format!("where {}\n", self.texts.join("\nand "))
    }
}

/// A page of a run's records.
pub(super) fn history(
    conn: &Connection,
    run: RunId,
    after: Option<u64>,
    limit: usize,
) -> Result<HistoryPage, Fault> {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let (no, _) = numbered(conn, run)?;
    let after = after.map_or(-1, row::signed);
    let params = params![no, after, row::limit(limit + 1)];
    let mut records = row::all(conn, include_str!("sql/history.sql"), params, row::record)?;
    records.sort_by_key(|record| (record.seq, record.attempt));
    let more = records.len() > limit;
    records.truncate(limit);
    Ok(HistoryPage { records, more })
}

/// What came with the key of a run and was suppressed.
pub(super) fn duplicates(conn: &Connection, run: RunId) -> Result<Duplicates, Fault> {
    let (no, count) = numbered(conn, run)?;
    let latest = row::all(conn, include_str!("sql/duplicates.sql"), [no], |row| {
        Ok(Duplicate {
            at: Timestamp::from_millis(row.get(0)?),
            caller: row.get(1)?,
            same_input: row.get(2)?,
        })
    })?;
    Ok(Duplicates { count: u64::try_from(count).unwrap_or(0), latest })
}

/// The number of a run, and of the starts that were suppressed for it.
fn numbered(conn: &Connection, run: RunId) -> Result<(i64, i64), Fault> {
    let sql = include_str!("sql/duplicates_count.sql");
    let found = row::first(conn, sql, [run_blob(run)], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(found.ok_or(Error::NotFound)?)
}

/// The workers; what cannot be read is left out.
pub(super) fn workers(conn: &Connection) -> Result<Vec<WorkerInfo>, Fault> {
    readable(conn, include_str!("sql/stats_workers.sql"), worker)
}

/// Counts of runs, and the workers; what cannot be read is left out.
pub(super) fn stats(conn: &Connection) -> Result<Stats, Fault> {
    let mut stats = Stats::default();
    let counts = readable(conn, include_str!("sql/stats_states.sql"), counted)?;
    for (state, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        if let Ok(state) = state.parse::<RunState>() {
            *stats.runs.entry(state).or_default() += count;
        }
    }
    for (queue, count) in readable(conn, include_str!("sql/stats_queues.sql"), counted)? {
        *stats.queued.entry(queue).or_default() += count;
    }
    stats.workers = workers(conn)?;
    Ok(stats)
}

/// Every row of a query that can be read.
fn readable<T>(
    conn: &Connection,
    sql: &str,
    decode: impl Fn(&rusqlite::Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let rows = row::all(conn, sql, [], |row| match decode(row) {
        Err(Fault::Data(_)) => Ok(None),
        read => read.map(Some),
    })?;
    Ok(rows.into_iter().flatten().collect())
}

fn counted(row: &rusqlite::Row<'_>) -> Result<(String, u64), Fault> {
    Ok((row.get(0)?, u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
}

fn worker(row: &rusqlite::Row<'_>) -> Result<WorkerInfo, Fault> {
    let names = |text: String| serde_json::from_str(&text).map_err(Fault::data);
    Ok(WorkerInfo {
        id: worker_id(row.get(0)?),
        build: row.get(1)?,
        place: row.get(2)?,
        queues: names(row.get(3)?)?,
        workflows: names(row.get(4)?)?,
        lease_until: Timestamp::from_millis(row.get(5)?),
        running: u64::try_from(row.get::<_, i64>(6)?).unwrap_or(0),
        concurrency: row.get(7)?,
    })
}
