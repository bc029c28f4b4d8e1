//! Queues with limits, in SQLite.
//!
//! Owns: the columns of a queue, and looks at what is in it. Never decides what a change means;
//! `store::queues` does.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::SqliteStore;
use super::fault::Fault;
use super::limited::{granted, turn};
use super::row::{self, Columns, signed, worker_id};
use super::tx::Tx;
use crate::limits::{PAGE_ROWS_MAX, QUEUES_MAX};
use crate::store::limited::{Limited, Within, rate_end};
use crate::store::queues::{self, Change, earlier};
use crate::store::{
    Answer, Conflict, Error, Grant, ImportQueue, PutQueue, QueueImported, QueuePage, Queues,
    WholeQueue,
};
use crate::{Queue, QueueCounts, QueueLimits, QueueUse, Rate, Timestamp};

const ALL: &str = include_str!("sql/queue.sql");
const BY_NAME: &str = concat!(include_str!("sql/queue.sql"), include_str!("sql/queue_by_name.sql"));

impl Queues for SqliteStore {
    fn put_queue(&self, put: PutQueue) -> Answer<'_, Queue> {
        self.small(move |tx| change(tx, &put.name, |old, now| queues::put(old, &put, now)))
    }

    fn pause_queue(&self, name: String) -> Answer<'_, Queue> {
        self.small(move |tx| change(tx, &name, |old, now| queues::pause(old, &name, now)))
    }

    fn resume_queue(&self, name: String) -> Answer<'_, Queue> {
        self.small(move |tx| change(tx, &name, |old, now| queues::resume(old, &name, now)))
    }

    fn clear_queue(&self, name: String) -> Answer<'_, bool> {
        self.small(move |tx| {
            let there = is_set_up(tx, &name)?;
            change(tx, &name, |_, _| Change::Remove)?;
            Ok(there)
        })
    }

    fn get_queue(&self, name: String) -> Answer<'_, Option<Queue>> {
        self.people.look(move |conn| Ok(get(conn, &name)?.map(|limited| limited.queue)))
    }

    fn list_queues(&self, after: Option<String>, limit: usize) -> Answer<'_, QueuePage> {
        self.people.look(move |conn| list(conn, after.as_deref(), limit))
    }

    fn queue_use(&self, name: String, lane: Option<String>) -> Answer<'_, Option<QueueUse>> {
        let now = self.clock.now();
        self.people.look(move |conn| queue_use(conn, &name, lane.as_deref(), now))
    }

    fn export_queue(&self, name: String) -> Answer<'_, Option<WholeQueue>> {
        let now = self.clock.now();
        self.people.look(move |conn| {
            let Some(Limited { queue, last_lane }) = get(conn, &name)? else { return Ok(None) };
            let grants = row::all(conn, include_str!("sql/export_grants.sql"), [name], |row| {
                let count = u64::try_from(row.get::<_, i64>(1)?).map_err(Fault::data)?;
                Ok(Grant { at: Timestamp::from_millis(row.get(0)?), count })
            })?;
            Ok(Some(WholeQueue { queue, last_lane, grants }.at(now)))
        })
    }

    fn import_queue(&self, import: ImportQueue) -> Answer<'_, QueueImported> {
        self.large(move |tx| {
            let ImportQueue { whole: WholeQueue { queue, last_lane, grants }, dry_run } = &import;
            if let Some(there) = get(tx.conn, &queue.name)? {
                let same = there.queue == *queue;
                return Ok(if same { QueueImported::There } else { QueueImported::Differs });
            }
            if !dry_run {
                change(tx, &queue.name, |_, _| Change::Save(queue.clone()))?;
                if let Some(lane) = last_lane {
                    turn(tx, &queue.name, lane)?;
                }
                for grant in grants {
                    let params = params![queue.name, grant.at.as_millis(), signed(grant.count)];
                    tx.execute(include_str!("sql/import_grant.sql"), params)?;
                }
            }
            Ok(QueueImported::New)
        })
    }
}

/// Whether a queue has limits or is paused: then no run of it is claimed but by a claim.
pub(super) fn is_set_up(tx: &Tx<'_>, name: &str) -> Result<bool, Fault> {
    tx.exists(BY_NAME, [name])
}

/// Those of these queues that are set up, by name. Mostly there are none.
pub(super) fn served(conn: &Connection, names: &[String]) -> Result<Vec<Limited>, Fault> {
    let mut all = row::all(conn, ALL, [], limited)?;
    all.retain(|limited| names.contains(&limited.queue.name));
    Ok(all)
}

fn get(conn: &Connection, name: &str) -> Result<Option<Limited>, Fault> {
    row::first(conn, BY_NAME, [name], limited)
}

/// Changes a queue's row, and has every worker look again.
fn change(
    tx: &mut Tx<'_>,
    name: &str,
    decide: impl FnOnce(Option<&Queue>, Timestamp) -> Change,
) -> Result<Queue, Fault> {
    let old = get(tx.conn, name)?.map(|limited| limited.queue);
    let change = decide(old.as_ref(), tx.now);
    match &change {
        Change::None => {}
        Change::Save(queue) => {
            let count = row::first(tx.conn, include_str!("sql/queue_count.sql"), [], |row| {
                Ok(row.get::<_, i64>(0)?)
            })?;
            if old.is_none() && count.is_some_and(|count| count >= row::limit(QUEUES_MAX)) {
                return Err(Error::Conflict(Conflict::QueuesFull).into());
            }
            save(tx, queue)?;
        }
        Change::Remove => {
            tx.exists(include_str!("sql/queue_remove.sql"), [name])?;
            tx.execute(include_str!("sql/queue_remove_grants.sql"), [name])?;
        }
    }
    tx.work();
    Ok(change.after(old, name))
}

fn save(tx: &Tx<'_>, queue: &Queue) -> Result<(), Fault> {
    let limits = queue.limits;
    let params = params![
        queue.name,
        limits.concurrency,
        limits.per_worker,
        limits.rate.map(|rate| rate.count),
        limits.rate.map(|rate| rate.period_ms),
        limits.per_lane,
        queue.paused_at.map(Timestamp::as_millis),
        queue.changed_at.map(Timestamp::as_millis),
    ];
    tx.execute(include_str!("sql/queue_save.sql"), params)?;
    Ok(())
}

/// A row of `queue.sql`.
fn limited(row: &rusqlite::Row<'_>) -> Result<Limited, Fault> {
    match read(row) {
        Err(Fault::Data(source)) => {
            let queue = queues::unreadable(row.get(0)?, &source);
            Ok(Limited { queue, last_lane: None })
        }
        read => read,
    }
}

fn read(row: &rusqlite::Row<'_>) -> Result<Limited, Fault> {
    let mut columns = Columns { row, next: 0 };
    let name = columns.take()?;
    let (concurrency, per_worker) = (columns.take()?, columns.take()?);
    let (count, period_ms) = (columns.take()?, columns.take()?);
    let rate = Option::zip(count, period_ms);
    let rate = rate.map(|(count, period_ms)| Rate { count, period_ms });
    let limits = QueueLimits { concurrency, per_worker, rate, per_lane: columns.take()? };
    let paused_at = columns.time_or_none()?;
    let changed_at = columns.time_or_none()?;
    let queue = Queue { name, limits, paused_at, changed_at };
    Ok(Limited { queue, last_lane: columns.take()? })
}

fn list(conn: &Connection, after: Option<&str>, limit: usize) -> Result<QueuePage, Fault> {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let mut all: BTreeMap<String, QueueCounts> = BTreeMap::new();
    let queued = row::all(conn, include_str!("sql/stats_queues.sql"), [], |row| {
        let due = row.get::<_, Option<i64>>(2)?.map(Timestamp::from_millis);
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, due))
    })?;
    for (name, count, due) in queued {
        let counts = all.entry(name).or_default();
        counts.queued += u64::try_from(count).unwrap_or(0);
        counts.oldest_due_at = earlier(counts.oldest_due_at, due);
    }
    let running = row::all(conn, include_str!("sql/queue_counts.sql"), [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    })?;
    for (name, count) in running {
        all.entry(name).or_default().running = u64::try_from(count).unwrap_or(0);
    }
    for limited in row::all(conn, ALL, [], limited)? {
        let name = limited.queue.name.clone();
        all.entry(name).or_default().queue = limited.queue;
    }
    let named = all.into_iter().map(|(name, mut counts)| {
        counts.queue.name = name;
        counts
    });
    let after = |counts: &QueueCounts| after.is_none_or(|after| counts.queue.name.as_str() > after);
    let mut queues: Vec<_> = named.filter(after).take(limit + 1).collect();
    let more = queues.len() > limit;
    queues.truncate(limit);
    Ok(QueuePage { queues, more })
}

fn queue_use(
    conn: &Connection,
    name: &str,
    lane: Option<&str>,
    now: Timestamp,
) -> Result<Option<QueueUse>, Fault> {
    let Some(Limited { queue, .. }) = get(conn, name)? else { return Ok(None) };
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    let held = row::all(conn, include_str!("sql/queue_held.sql"), [name], |row| {
        Ok((worker_id(row.get(0)?), count(row.get(1)?)))
    })?;
    let lane_running = match lane {
        None => None,
        Some(lane) => {
            let sql = include_str!("sql/claim_lane_running.sql");
            row::first(conn, sql, params![name, lane], |row| Ok(count(row.get(0)?)))?
        }
    };
    let mut rate_until = None;
    if let Some(rate) = queue.limits.rate {
        let granted = granted(conn, name, Within::period(now, rate.period_ms))?;
        let first_at = granted.first_at.filter(|_| granted.count >= u64::from(rate.count));
        rate_until = first_at.map(|first| rate_end(first, rate.period_ms));
    }
    let running = held.iter().map(|(_, count)| count).sum();
    let lane_running = lane_running.unwrap_or_default();
    Ok(Some(QueueUse { queue, running, lane_running, held, rate_until }))
}
