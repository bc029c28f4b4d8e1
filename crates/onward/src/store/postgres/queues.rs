//! Queues with limits, on Postgres.
//!
//! Owns: the columns of a queue, and looks at what is in it. Never decides what a change means;
//! `store::queues` does. What a claim takes of it is decided in `sql/claim_limited.sql`.
//!
//! Whoever changes a queue locks its row, as a claim from it does. Where there is none yet, it waits for the
//! claims that are under way instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::fault::Fault;
use super::row::{Columns, limit, signed, small, worker_id};
use super::tx::{Param, Session, Tx};
use super::{PostgresStore, Shared};
use crate::limits::{
    LANES_LOOK_MAX, LANES_LOOK_PAUSE, PAGE_ROWS_MAX, QUEUES_MAX, SUSPECTS_LOOK_MAX,
};
use crate::store::limited::rate_end;
use crate::store::queues::{self, Change};
use crate::store::{
    Answer, Conflict, Error, Grant, ImportQueue, PutQueue, QueueImported, QueuePage, Queues,
    WholeQueue,
};
use crate::{Queue, QueueCounts, QueueLimits, QueueUse, Rate, Timestamp};

// The functions that claim from limited queues are written for these numbers.
const _: () = assert!(LANES_LOOK_MAX == 1_000 && SUSPECTS_LOOK_MAX == 100);
const _: () = assert!(LANES_LOOK_PAUSE.as_millis() == 100);

const ALL: &str = include_str!("sql/queue.sql");
const BY_NAME: &str = concat!(include_str!("sql/queue.sql"), include_str!("sql/queue_by_name.sql"));
const LOCKED: &str = concat!(
    include_str!("sql/queue.sql"),
    include_str!("sql/queue_by_name.sql"),
    include_str!("sql/queue_lock.sql")
);

impl Queues for PostgresStore {
    fn put_queue(&self, put: PutQueue) -> Answer<'_, Queue> {
        self.in_transaction(put, |tx, put| {
            Box::pin(change(tx, &put.name, move |old, now| queues::put(old, put, now)))
        })
    }

    fn pause_queue(&self, name: String) -> Answer<'_, Queue> {
        self.in_transaction(name, |tx, name| {
            Box::pin(change(tx, name, move |old, now| queues::pause(old, name, now)))
        })
    }

    fn resume_queue(&self, name: String) -> Answer<'_, Queue> {
        self.in_transaction(name, |tx, name| {
            Box::pin(change(tx, name, move |old, now| queues::resume(old, name, now)))
        })
    }

    fn clear_queue(&self, name: String) -> Answer<'_, bool> {
        self.in_transaction(name, |tx, name| {
            Box::pin(async move {
                let there = locked(tx, name).await?.is_some();
                change(tx, name, |_, _| Change::Remove).await?;
                Ok(there)
            })
        })
    }

    fn get_queue(&self, name: String) -> Answer<'_, Option<Queue>> {
        self.home.answer(get(Arc::clone(&self.shared), name))
    }

    fn list_queues(&self, after: Option<String>, limit: usize) -> Answer<'_, QueuePage> {
        self.home.answer(list(Arc::clone(&self.shared), after, limit))
    }

    fn queue_use(&self, name: String, lane: Option<String>) -> Answer<'_, Option<QueueUse>> {
        self.home.answer(queue_use(Arc::clone(&self.shared), name, lane))
    }

    fn export_queue(&self, name: String) -> Answer<'_, Option<WholeQueue>> {
        self.home.answer(export(Arc::clone(&self.shared), name))
    }

    fn import_queue(&self, import: ImportQueue) -> Answer<'_, QueueImported> {
        self.in_transaction(import, |tx, import| Box::pin(import_one(tx, import)))
    }
}

/// Whether a queue has limits or is paused: then no run of it is claimed but by a claim.
pub(super) async fn is_set_up(tx: &Tx, name: &str) -> Result<bool, Fault> {
    tx.rows(include_str!("sql/queue_shared.sql"), &[]).await?;
    tx.exists(BY_NAME, &[(&name, Type::TEXT)]).await
}

async fn locked(tx: &Tx, name: &str) -> Result<Option<Queue>, Fault> {
    tx.first(LOCKED, &[(&name, Type::TEXT)]).await?.as_ref().map(queue).transpose()
}

/// Changes a queue's row, and has every worker look again.
async fn change(
    tx: &mut Tx,
    name: &str,
    decide: impl FnOnce(Option<&Queue>, Timestamp) -> Change,
) -> Result<Queue, Fault> {
    let old = locked(tx, name).await?;
    let change = decide(old.as_ref(), tx.now);
    match &change {
        Change::None => {}
        Change::Save(queue) => {
            let counted = tx.first(include_str!("sql/queue_count.sql"), &[]).await?;
            let count: Option<i64> =
                counted.map(|row| row.try_get(0)).transpose().map_err(Fault::data)?;
            if old.is_none() && count.is_some_and(|count| count >= limit(QUEUES_MAX)) {
                return Err(Error::Conflict(Conflict::QueuesFull).into());
            }
            save(tx, queue).await?;
            if old.is_none() {
                tx.rows(include_str!("sql/queue_first.sql"), &[]).await?;
            }
        }
        Change::Remove => {
            tx.rows(include_str!("sql/queue_remove.sql"), &[(&name, Type::TEXT)]).await?;
        }
    }
    tx.work();
    Ok(change.after(old, name))
}

async fn save(tx: &Tx, queue: &Queue) -> Result<(), Fault> {
    let limits = queue.limits;
    let params: [Param<'_>; 8] = [
        (&queue.name, Type::TEXT),
        (&limits.concurrency.map(small), Type::INT4),
        (&limits.per_worker.map(small), Type::INT4),
        (&limits.rate.map(|rate| small(rate.count)), Type::INT4),
        (&limits.rate.map(|rate| rate.period_ms), Type::INT8),
        (&limits.per_lane.map(small), Type::INT4),
        (&queue.paused_at.map(Timestamp::as_millis), Type::INT8),
        (&queue.changed_at.map(Timestamp::as_millis), Type::INT8),
    ];
    tx.rows(include_str!("sql/queue_save.sql"), &params).await?;
    Ok(())
}

async fn import_one(tx: &mut Tx, import: &ImportQueue) -> Result<QueueImported, Fault> {
    let ImportQueue { whole: WholeQueue { queue, last_lane, grants }, dry_run } = import;
    if let Some(there) = locked(tx, &queue.name).await? {
        let same = there == *queue;
        return Ok(if same { QueueImported::There } else { QueueImported::Differs });
    }
    if !dry_run {
        change(tx, &queue.name, |_, _| Change::Save(queue.clone())).await?;
        let at: Vec<_> = grants.iter().map(|grant| grant.at.as_millis()).collect();
        let counts: Vec<_> = grants.iter().map(|grant| signed(grant.count)).collect();
        let params: [Param<'_>; 4] = [
            (&queue.name, Type::TEXT),
            (last_lane, Type::TEXT),
            (&at, Type::INT8_ARRAY),
            (&counts, Type::INT8_ARRAY),
        ];
        tx.rows(include_str!("sql/import_grants.sql"), &params).await?;
    }
    Ok(QueueImported::New)
}

async fn export(shared: Arc<Shared>, name: String) -> Result<Option<WholeQueue>, Fault> {
    let mut session = Session::open(&shared).await?;
    let Some(row) = session.first(BY_NAME, &[(&name, Type::TEXT)]).await? else { return Ok(None) };
    let queue = queue(&row)?;
    let last_lane = row.try_get("last_lane").map_err(Fault::data)?;
    let rows = session.rows(include_str!("sql/export_grants.sql"), &[(&name, Type::TEXT)]).await?;
    let grant = |row: &PgRow| {
        let count: i64 = row.try_get(1).map_err(Fault::data)?;
        let at = Timestamp::from_millis(row.try_get(0).map_err(Fault::data)?);
        Ok(Grant { at, count: u64::try_from(count).map_err(Fault::data)? })
    };
    let grants = rows.iter().map(grant).collect::<Result<_, Fault>>()?;
    let now = session.now().await?;
    Ok(Some(WholeQueue { queue, last_lane, grants }.at(now)))
}

/// A row of `queue.sql`.
fn queue(row: &PgRow) -> Result<Queue, Fault> {
    match read(row) {
        Err(Fault::Data(source)) => {
            let name = row.try_get(0).map_err(Fault::data)?;
            Ok(queues::unreadable(name, &source))
        }
        read => read,
    }
}

fn read(row: &PgRow) -> Result<Queue, Fault> {
    let mut columns = Columns { row, next: 0 };
    let name = columns.take()?;
    let mut number = || {
        let number: Option<i32> = columns.take()?;
        number.map(u32::try_from).transpose().map_err(Fault::data)
    };
    let (concurrency, per_worker, count) = (number()?, number()?, number()?);
    let rate = Option::zip(count, columns.take()?);
    let rate = rate.map(|(count, period_ms)| Rate { count, period_ms });
    let per_lane: Option<i32> = columns.take()?;
    let per_lane = per_lane.map(u32::try_from).transpose().map_err(Fault::data)?;
    let limits = QueueLimits { concurrency, per_worker, rate, per_lane };
    let (paused_at, changed_at) = (columns.time_or_none()?, columns.time_or_none()?);
    Ok(Queue { name, limits, paused_at, changed_at })
}

async fn get(shared: Arc<Shared>, name: String) -> Result<Option<Queue>, Fault> {
    let mut session = Session::open(&shared).await?;
    session.first(BY_NAME, &[(&name, Type::TEXT)]).await?.as_ref().map(queue).transpose()
}

async fn list(
    shared: Arc<Shared>,
    after: Option<String>,
    limit: usize,
) -> Result<QueuePage, Fault> {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let mut session = Session::open(&shared).await?;
    let mut all: BTreeMap<String, QueueCounts> = BTreeMap::new();
    for row in session.rows(include_str!("sql/stats_queues.sql"), &[]).await? {
        let mut columns = Columns { row: &row, next: 0 };
        let (name, queued): (String, _) = (columns.take()?, columns.unsigned()?);
        let counts = all.entry(name).or_default();
        (counts.queued, counts.oldest_due_at) = (queued, columns.time_or_none()?);
    }
    for row in session.rows(include_str!("sql/queue_counts.sql"), &[]).await? {
        let mut columns = Columns { row: &row, next: 0 };
        let (name, running): (String, _) = (columns.take()?, columns.unsigned()?);
        all.entry(name).or_default().running = running;
    }
    for row in session.rows(ALL, &[]).await? {
        let found = queue(&row)?;
        let name = found.name.clone();
        all.entry(name).or_default().queue = found;
    }
    let named = all.into_iter().map(|(name, mut counts)| {
        counts.queue.name = name;
        counts
    });
    let after =
        |counts: &QueueCounts| after.as_ref().is_none_or(|after| counts.queue.name > *after);
    let mut queues: Vec<_> = named.filter(after).take(limit + 1).collect();
    let more = queues.len() > limit;
    queues.truncate(limit);
    Ok(QueuePage { queues, more })
}

async fn queue_use(
    shared: Arc<Shared>,
    name: String,
    lane: Option<String>,
) -> Result<Option<QueueUse>, Fault> {
    let mut session = Session::open(&shared).await?;
    let found = session.first(BY_NAME, &[(&name, Type::TEXT)]).await?;
    let Some(queue) = found.as_ref().map(queue).transpose()? else { return Ok(None) };
    let mut used = QueueUse { queue, ..QueueUse::default() };
    let params: [Param<'_>; 2] = [(&name, Type::TEXT), (&lane, Type::TEXT)];
    for row in session.rows(include_str!("sql/queue_held.sql"), &params).await? {
        let mut columns = Columns { row: &row, next: 0 };
        let worker = worker_id(columns.take()?);
        let held = columns.unsigned()?;
        used.held.push((worker, held));
        used.running += held;
        used.lane_running += columns.unsigned()?;
    }
    if let Some(rate) = used.queue.limits.rate {
        let now = shared.clock.given();
        let params: [Param<'_>; 3] =
            [(&name, Type::TEXT), (&now, Type::INT8), (&rate.period_ms, Type::INT8)];
        if let Some(row) = session.first(include_str!("sql/queue_granted.sql"), &params).await? {
            let mut columns = Columns { row: &row, next: 0 };
            let full = columns.unsigned()? >= u64::from(rate.count);
            let first_at = columns.time_or_none()?.filter(|_| full);
            used.rate_until = first_at.map(|first| rate_end(first, rate.period_ms));
        }
    }
    Ok(Some(used))
}
