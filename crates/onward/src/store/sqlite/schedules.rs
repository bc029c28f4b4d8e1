//! Schedules in SQLite.
//!
//! Owns: the columns of a schedule, and what firing does to runs and to its row in one transaction.
//! Never decides what a policy says; `store::schedules` does.

use rusqlite::{Connection, params};

use super::fault::Fault;
use super::row::{self, Columns, json_text};
use super::start;
use super::turn;
use super::tx::Tx;
use crate::limits::{PAGE_ROWS_MAX, SCHEDULES_DUE_MAX};
use crate::store::reading::{Page, Reading};
use crate::store::schedules::{self, Overlapping};
use crate::store::{
    DueSchedules, Error, Fire, Fired, ImportSchedule, NewRun, Occurred, PutSchedule, Resume,
    ScheduleImported, SchedulePage,
};
use crate::{Json, LatestRun, RunId, Schedule, Timestamp};

const BY_NAME: &str =
    concat!(include_str!("sql/schedule.sql"), include_str!("sql/schedule_by_name.sql"));
const LIST: &str = concat!(include_str!("sql/schedule.sql"), include_str!("sql/schedule_list.sql"));
const DUE: &str = concat!(include_str!("sql/schedule.sql"), include_str!("sql/schedule_due.sql"));

/// Adds a schedule, or changes it.
pub(super) fn put(tx: &mut Tx<'_>, put: &PutSchedule) -> Result<Schedule, Fault> {
    let old = get(tx.conn, &put.name)?;
    let Some(new) = schedules::put(old.as_ref(), put, tx.now) else {
        return Ok(old.ok_or(Error::NotFound)?);
    };
    match old {
        Some(_) => save(tx, &new)?,
        None => add(tx, &new)?,
    }
    tx.scheduled();
    Ok(new)
}

/// One schedule.
pub(super) fn get(conn: &Connection, name: &str) -> Result<Option<Schedule>, Fault> {
    row::first(conn, BY_NAME, [name], schedule)
}

/// A page of schedules.
pub(super) fn list(
    conn: &Connection,
    after: Option<String>,
    limit: usize,
) -> Result<SchedulePage, Fault> {
    let limit = limit.clamp(1, PAGE_ROWS_MAX);
    let mut reading = Reading::new(after, limit + 1);
    loop {
        let (after, limit) = reading.next();
        let found = row::all(conn, LIST, params![after, row::limit(limit)], named)?;
        if !reading.take(found) {
            let Page { rows: schedules, unreadable, more } = reading.page();
            return Ok(SchedulePage { schedules, unreadable, more });
        }
    }
}

/// The schedules whose time has come.
pub(super) fn due(
    conn: &Connection,
    after: Option<String>,
    limit: usize,
    now: Timestamp,
) -> Result<DueSchedules, Fault> {
    let limit = limit.clamp(1, SCHEDULES_DUE_MAX);
    let mut reading = Reading::new(after, limit);
    loop {
        let (after, limit) = reading.next();
        let params = params![now.as_millis(), after, row::limit(limit)];
        if !reading.take(row::all(conn, DUE, params, named)?) {
            break;
        }
    }
    let sql = include_str!("sql/schedule_next.sql");
    let next_at =
        row::first(conn, sql, [now.as_millis()], |row| Ok(row.get::<_, Option<i64>>(0)?))?;
    let next_at = next_at.flatten().map(Timestamp::from_millis);
    Ok(DueSchedules { schedules: reading.rows(), next_at, now })
}

/// Starts the runs of some times, and moves the next time on.
pub(super) fn fire(tx: &mut Tx<'_>, fire: &Fire) -> Result<Fired, Fault> {
    let mut schedule = get(tx.conn, &fire.name)?.ok_or(Error::NotFound)?;
    if !schedules::is_seen(&schedule, fire) {
        return Ok(Fired::Late);
    }
    let mut latest = match &schedule.latest {
        Some(latest) => holder(tx, &latest.workflow, &latest.key)?.map(|(run, _)| run),
        None => None,
    };
    let mut all = Vec::with_capacity(fire.occurrences.len());
    for occurrence in &fire.occurrences {
        let new = schedules::run_of(&schedule, occurrence, &fire.caller);
        let occurred = occur(tx, &schedule, (occurrence.at, &new), latest)?;
        latest = occurred.run().or(latest);
        all.push(occurred);
    }
    schedules::fired(&mut schedule, fire, &all);
    save(tx, &schedule)?;
    Ok(Fired::Done(all))
}

/// Starts the run of one time, unless it is there or the policy is against it.
fn occur(
    tx: &mut Tx<'_>,
    schedule: &Schedule,
    (at, new): (Timestamp, &NewRun),
    latest: Option<RunId>,
) -> Result<Occurred, Fault> {
    let run = new.id;
    if row::by_id(tx.conn, run)?.is_some() {
        return Ok(Occurred::Started { run });
    }
    if let Some(key) = &new.key
        && let Some((holder, fingerprint)) = holder(tx, &new.workflow, &key.key)?
    {
        return Ok(match fingerprint == key.fingerprint.0 {
            true => Occurred::Existing { run: holder },
            false => Occurred::Refused { holder },
        });
    }
    let latest = match latest {
        Some(latest) => turn::last(tx, latest)?,
        None => None,
    };
    let found = latest.as_ref().map(|row| &row.run);
    let decided = schedules::overlapping(schedule, at, found, tx.now);
    let Some(row) = latest.filter(|_| decided != Overlapping::Start) else {
        start::insert(tx, new, None)?;
        return Ok(Occurred::Started { run });
    };
    let live = row.run.id;
    Ok(match decided {
        Overlapping::Start | Overlapping::Skip => Occurred::Skipped { live },
        Overlapping::Behind => {
            let place = turn::join(tx, live, run)?;
            start::insert(tx, new, place)?;
            Occurred::Buffered { run, behind: live }
        }
        Overlapping::Replace => {
            start::replace(tx, new, row)?;
            Occurred::Replaced { run, previous: live }
        }
    })
}

/// The run that has a key, and the fingerprint that it came with.
fn holder(tx: &Tx<'_>, workflow: &str, key: &str) -> Result<Option<(RunId, [u8; 32])>, Fault> {
    let sql = include_str!("sql/start_key_holder.sql");
    let params = params![workflow, key, tx.now.as_millis()];
    let found = row::first(tx.conn, sql, params, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?))
    })?;
    let Some((no, fingerprint)) = found else { return Ok(None) };
    let id = row::first(tx.conn, include_str!("sql/run_id.sql"), [no], |row| Ok(row.get(0)?))?;
    Ok(id.map(|id| (row::run_id(id), fingerprint)))
}

/// Pauses a schedule.
pub(super) fn pause(tx: &mut Tx<'_>, name: &str) -> Result<Schedule, Fault> {
    let mut schedule = get(tx.conn, name)?.ok_or(Error::NotFound)?;
    if schedule.paused_at.is_none() {
        schedule.paused_at = Some(tx.now);
        save(tx, &schedule)?;
    }
    Ok(schedule)
}

/// Lets a paused schedule go on.
pub(super) fn resume(tx: &mut Tx<'_>, resume: &Resume) -> Result<Schedule, Fault> {
    let old = get(tx.conn, &resume.name)?.ok_or(Error::NotFound)?;
    let Some(new) = schedules::resume(&old, resume) else { return Ok(old) };
    save(tx, &new)?;
    tx.scheduled();
    Ok(new)
}

/// Removes a schedule; says whether it was there.
pub(super) fn remove(tx: &Tx<'_>, name: &str) -> Result<bool, Fault> {
    tx.exists(include_str!("sql/schedule_remove.sql"), [name])
}

/// Adds a schedule of another store.
pub(super) fn import(tx: &mut Tx<'_>, import: &ImportSchedule) -> Result<ScheduleImported, Fault> {
    let ImportSchedule { schedule, dry_run } = import;
    if let Some(there) = get(tx.conn, &schedule.name)? {
        let same = there == *schedule;
        return Ok(if same { ScheduleImported::There } else { ScheduleImported::Differs });
    }
    if !dry_run {
        add(tx, schedule)?;
        tx.scheduled();
    }
    Ok(ScheduleImported::New)
}

fn add(tx: &Tx<'_>, schedule: &Schedule) -> Result<(), Fault> {
    write(schedule, |params| tx.exists(include_str!("sql/schedule_add.sql"), params)).map(drop)
}

fn save(tx: &Tx<'_>, schedule: &Schedule) -> Result<(), Fault> {
    write(schedule, |params| tx.execute(include_str!("sql/schedule_save.sql"), params)).map(drop)
}

/// The columns of a schedule, in the order of `schedule.sql`.
fn write<T>(
    schedule: &Schedule,
    statement: impl FnOnce(&[&dyn rusqlite::ToSql]) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let tags = (!schedule.tags.is_empty()).then(|| json_text(&schedule.tags)).transpose()?;
    let latest = schedule.latest.as_ref();
    statement(params![
        schedule.name,
        json_text(&schedule.spec)?,
        schedule.workflow,
        schedule.input.as_str(),
        schedule.queue,
        schedule.priority,
        schedule.timeout_ms,
        tags,
        schedule.overlap.as_str(),
        schedule.catch_up.to_string(),
        schedule.generation,
        schedule.created_at.as_millis(),
        schedule.changed_at.as_millis(),
        schedule.paused_at.map(Timestamp::as_millis),
        schedule.next_at.map(Timestamp::as_millis),
        latest.map(|latest| latest.at.as_millis()),
        latest.map(|latest| &latest.workflow),
        latest.map(|latest| &latest.key),
        schedule.lane,
    ])
}

/// A row of `schedule.sql` with its name. One that cannot be read must not hold up the others.
fn named(row: &rusqlite::Row<'_>) -> Result<(String, Option<Schedule>), Fault> {
    let name: String = row.get(0)?;
    match schedule(row) {
        Err(Fault::Data(error)) => {
            tracing::warn!(schedule = name, %error, "a schedule cannot be read, and does not fire");
            Ok((name, None))
        }
        read => Ok((name, Some(read?))),
    }
}

/// A row of `schedule.sql`.
fn schedule(row: &rusqlite::Row<'_>) -> Result<Schedule, Fault> {
    let mut columns = Columns { row, next: 0 };
    Ok(Schedule {
        name: columns.take()?,
        spec: columns.json()?.ok_or_else(|| Fault::data("a schedule without its times"))?,
        workflow: columns.take()?,
        input: Json::stored(columns.take::<String>()?),
        queue: columns.take()?,
        priority: columns.take()?,
        timeout_ms: columns.take()?,
        tags: columns.json()?.unwrap_or_default(),
        overlap: columns.take::<String>()?.parse().map_err(Fault::data)?,
        catch_up: columns.take::<String>()?.parse().map_err(Fault::data)?,
        generation: columns.take()?,
        created_at: columns.time()?,
        changed_at: columns.time()?,
        paused_at: columns.time_or_none()?,
        next_at: columns.time_or_none()?,
        latest: latest(&mut columns)?,
        lane: columns.take()?,
    })
}

fn latest(columns: &mut Columns<'_, '_>) -> Result<Option<LatestRun>, Fault> {
    let (at, workflow, key) = (columns.time_or_none()?, columns.take()?, columns.take()?);
    let (Some(at), Some(workflow), Some(key)) = (at, workflow, key) else { return Ok(None) };
    Ok(Some(LatestRun { at, workflow, key }))
}
