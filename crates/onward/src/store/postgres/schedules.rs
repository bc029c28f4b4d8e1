//! Schedules on Postgres.
//!
//! Owns: the columns of a schedule, and what firing does to runs and to its row in one transaction.
//! Never decides what a policy says; `store::schedules` does.
//!
//! Whoever changes or fires a schedule locks its row before anything else.

use std::sync::Arc;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::Shared;
use super::fault::Fault;
use super::row::{Columns, Row, json_text, limit, run_id, run_uuid, small};
use super::start;
use super::turn;
use super::tx::{Param, Session, Tx};
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
const LOCKED: &str = concat!(
    include_str!("sql/schedule.sql"),
    include_str!("sql/schedule_by_name.sql"),
    include_str!("sql/schedule_lock.sql")
);
const LIST: &str = concat!(include_str!("sql/schedule.sql"), include_str!("sql/schedule_list.sql"));
const DUE: &str = concat!(include_str!("sql/schedule.sql"), include_str!("sql/schedule_due.sql"));

/// Adds a schedule, or changes it.
pub(super) async fn put(tx: &mut Tx, put: &PutSchedule) -> Result<Schedule, Fault> {
    let old = locked(tx, &put.name).await?;
    let Some(new) = schedules::put(old.as_ref(), put, tx.now) else {
        return Ok(old.ok_or(Error::NotFound)?);
    };
    match old {
        Some(_) => save(tx, &new).await?,
        None => add(tx, &new).await?,
    }
    tx.scheduled();
    Ok(new)
}

/// One schedule.
pub(super) async fn get(shared: Arc<Shared>, name: String) -> Result<Option<Schedule>, Fault> {
    let mut session = Session::open(&shared).await?;
    let found = session.first(BY_NAME, &[(&name, Type::TEXT)]).await?;
    found.as_ref().map(schedule).transpose()
}

/// A page of schedules.
pub(super) async fn list(
    shared: Arc<Shared>,
    after: Option<String>,
    most: usize,
) -> Result<SchedulePage, Fault> {
    let mut session = Session::open(&shared).await?;
    let mut reading = Reading::new(after, most.clamp(1, PAGE_ROWS_MAX) + 1);
    loop {
        let (after, most) = reading.next();
        let params: [Param<'_>; 2] = [(&after, Type::TEXT), (&limit(most), Type::INT8)];
        let rows = session.rows(LIST, &params).await?;
        if !reading.take(rows.iter().map(named).collect::<Result<_, _>>()?) {
            let Page { rows: schedules, unreadable, more } = reading.page();
            return Ok(SchedulePage { schedules, unreadable, more });
        }
    }
}

/// The schedules whose time has come, all judged at one moment.
pub(super) async fn due(
    shared: Arc<Shared>,
    after: Option<String>,
    most: usize,
) -> Result<DueSchedules, Fault> {
    let mut session = Session::open(&shared).await?;
    let now = session.now().await?;
    let mut reading = Reading::new(after, most.clamp(1, SCHEDULES_DUE_MAX));
    loop {
        let (after, most) = reading.next();
        let params: [Param<'_>; 3] =
            [(&now.as_millis(), Type::INT8), (&after, Type::TEXT), (&limit(most), Type::INT8)];
        let rows = session.rows(DUE, &params).await?;
        if !reading.take(rows.iter().map(named).collect::<Result<_, _>>()?) {
            break;
        }
    }
    let params: [Param<'_>; 1] = [(&now.as_millis(), Type::INT8)];
    let next = session.first(include_str!("sql/schedule_next.sql"), &params).await?;
    let next: Option<i64> = next.map_or(Ok(None), |row| row.try_get(0)).map_err(Fault::data)?;
    let next_at = next.map(Timestamp::from_millis);
    Ok(DueSchedules { schedules: reading.rows(), next_at, now })
}

/// Starts the runs of some times, and moves the next time on.
pub(super) async fn fire(tx: &mut Tx, fire: &Fire) -> Result<Fired, Fault> {
    let mut schedule = locked(tx, &fire.name).await?.ok_or(Error::NotFound)?;
    if !schedules::is_seen(&schedule, fire) {
        return Ok(Fired::Late);
    }
    let mut latest = match &schedule.latest {
        Some(latest) => holder(tx, &latest.workflow, &latest.key).await?.map(|(run, _)| run),
        None => None,
    };
    let mut all = Vec::with_capacity(fire.occurrences.len());
    for occurrence in &fire.occurrences {
        let new = schedules::run_of(&schedule, occurrence, &fire.caller);
        let occurred = occur(tx, &schedule, (occurrence.at, &new), latest).await?;
        latest = occurred.run().or(latest);
        all.push(occurred);
    }
    schedules::fired(&mut schedule, fire, &all);
    save(tx, &schedule).await?;
    Ok(Fired::Done(all))
}

/// Starts the run of one time, unless it is there or the policy is against it.
async fn occur(
    tx: &mut Tx,
    schedule: &Schedule,
    (at, new): (Timestamp, &NewRun),
    latest: Option<RunId>,
) -> Result<Occurred, Fault> {
    let run = new.id;
    let Some(key) = &new.key else { return Ok(Occurred::Started { run }) };
    if tx.exists(include_str!("sql/start_again.sql"), &[(&run_uuid(run), Type::UUID)]).await? {
        return Ok(Occurred::Started { run });
    }
    if let Some((holder, fingerprint)) = holder(tx, &new.workflow, &key.key).await? {
        return Ok(match fingerprint == key.fingerprint.0 {
            true => Occurred::Existing { run: holder },
            false => Occurred::Refused { holder },
        });
    }
    let latest = match latest {
        Some(latest) => turn::last(tx, latest).await?,
        None => None,
    };
    let found = latest.as_ref().map(|row| &row.run);
    let decided = schedules::overlapping(schedule, at, found, tx.now);
    if let (Overlapping::Skip, Some(live)) = (decided, &latest) {
        return Ok(Occurred::Skipped { live: live.run.id });
    }
    if !start::take_new_key(tx, new, key).await? {
        // Somebody else took it after the look at its holder.
        return Err(Fault::Again("the key of a schedule's run was taken".to_owned()));
    }
    begin(tx, new, latest, decided).await
}

/// Starts a run, whose key is taken for it, as was decided.
async fn begin(
    tx: &mut Tx,
    new: &NewRun,
    latest: Option<Row>,
    decided: Overlapping,
) -> Result<Occurred, Fault> {
    let run = new.id;
    match (decided, latest) {
        (Overlapping::Behind, Some(row)) => {
            let behind = row.run.id;
            let place = turn::join(tx, behind, run).await?;
            start::insert(tx, new, place).await?;
            Ok(Occurred::Buffered { run, behind })
        }
        (Overlapping::Replace, Some(mut row)) => {
            let previous = row.run.id;
            start::queue_behind(tx, new, &mut row).await?;
            Ok(Occurred::Replaced { run, previous })
        }
        _ => {
            start::insert(tx, new, None).await?;
            Ok(Occurred::Started { run })
        }
    }
}

/// The run that has a key, and the fingerprint that it came with.
async fn holder(tx: &Tx, workflow: &str, key: &str) -> Result<Option<(RunId, Vec<u8>)>, Fault> {
    let params: [Param<'_>; 3] =
        [(&workflow, Type::TEXT), (&key, Type::TEXT), (&tx.now.as_millis(), Type::INT8)];
    let found = tx.first(include_str!("sql/start_key_holder.sql"), &params).await?;
    let read = |row: PgRow| Ok((run_id(row.try_get(0)?), row.try_get(1)?));
    found.map(read).transpose().map_err(|error: tokio_postgres::Error| Fault::data(error))
}

/// Pauses a schedule.
pub(super) async fn pause(tx: &mut Tx, name: &str) -> Result<Schedule, Fault> {
    let mut schedule = locked(tx, name).await?.ok_or(Error::NotFound)?;
    if schedule.paused_at.is_none() {
        schedule.paused_at = Some(tx.now);
        save(tx, &schedule).await?;
    }
    Ok(schedule)
}

/// Lets a paused schedule go on.
pub(super) async fn resume(tx: &mut Tx, resume: &Resume) -> Result<Schedule, Fault> {
    let old = locked(tx, &resume.name).await?.ok_or(Error::NotFound)?;
    let Some(new) = schedules::resume(&old, resume) else { return Ok(old) };
    save(tx, &new).await?;
    tx.scheduled();
    Ok(new)
}

/// Removes a schedule; says whether it was there.
pub(super) async fn remove(shared: Arc<Shared>, name: String) -> Result<bool, Fault> {
    let mut session = Session::open(&shared).await?;
    let params: [Param<'_>; 1] = [(&name, Type::TEXT)];
    Ok(session.first(include_str!("sql/schedule_remove.sql"), &params).await?.is_some())
}

/// Adds a schedule of another store.
pub(super) async fn import(
    tx: &mut Tx,
    import: &ImportSchedule,
) -> Result<ScheduleImported, Fault> {
    let ImportSchedule { schedule, dry_run } = import;
    if let Some(there) = locked(tx, &schedule.name).await? {
        let same = there == *schedule;
        return Ok(if same { ScheduleImported::There } else { ScheduleImported::Differs });
    }
    if !dry_run {
        add(tx, schedule).await?;
        tx.scheduled();
    }
    Ok(ScheduleImported::New)
}

async fn locked(tx: &Tx, name: &str) -> Result<Option<Schedule>, Fault> {
    let found = tx.first(LOCKED, &[(&name, Type::TEXT)]).await?;
    found.as_ref().map(schedule).transpose()
}

async fn add(tx: &Tx, schedule: &Schedule) -> Result<(), Fault> {
    let columns = Written::of(schedule)?;
    if tx.exists(include_str!("sql/schedule_add.sql"), &columns.each()).await? {
        return Ok(());
    }
    // Somebody else added one of that name after the look.
    Err(Fault::Again("the schedule was added by another".to_owned()))
}

async fn save(tx: &Tx, schedule: &Schedule) -> Result<(), Fault> {
    let columns = Written::of(schedule)?;
    tx.rows(include_str!("sql/schedule_save.sql"), &columns.each()).await?;
    Ok(())
}

/// The columns of a schedule that are not as it has them.
struct Written<'a> {
    schedule: &'a Schedule,
    spec: String,
    input: &'a str,
    tags: Option<String>,
    overlap: &'a str,
    catch_up: String,
    generation: i32,
    times: [i64; 2],
    paused_at: Option<i64>,
    next_at: Option<i64>,
    latest_at: Option<i64>,
    latest_workflow: Option<&'a str>,
    latest_key: Option<&'a str>,
}

impl<'a> Written<'a> {
    fn of(schedule: &'a Schedule) -> Result<Self, Fault> {
        let latest = schedule.latest.as_ref();
        Ok(Self {
            schedule,
            spec: json_text(&schedule.spec)?,
            input: schedule.input.as_str(),
            tags: (!schedule.tags.is_empty()).then(|| json_text(&schedule.tags)).transpose()?,
            overlap: schedule.overlap.as_str(),
            catch_up: schedule.catch_up.to_string(),
            generation: small(schedule.generation),
            times: [schedule.created_at.as_millis(), schedule.changed_at.as_millis()],
            paused_at: schedule.paused_at.map(Timestamp::as_millis),
            next_at: schedule.next_at.map(Timestamp::as_millis),
            latest_at: latest.map(|latest| latest.at.as_millis()),
            latest_workflow: latest.map(|latest| latest.workflow.as_str()),
            latest_key: latest.map(|latest| latest.key.as_str()),
        })
    }

    /// In the order of `schedule.sql`.
    fn each(&self) -> [Param<'_>; 19] {
        [
            (&self.schedule.name, Type::TEXT),
            (&self.spec, Type::TEXT),
            (&self.schedule.workflow, Type::TEXT),
            (&self.input, Type::TEXT),
            (&self.schedule.queue, Type::TEXT),
            (&self.schedule.priority, Type::INT4),
            (&self.schedule.timeout_ms, Type::INT8),
            (&self.tags, Type::TEXT),
            (&self.overlap, Type::TEXT),
            (&self.catch_up, Type::TEXT),
            (&self.generation, Type::INT4),
            (&self.times[0], Type::INT8),
            (&self.times[1], Type::INT8),
            (&self.paused_at, Type::INT8),
            (&self.next_at, Type::INT8),
            (&self.latest_at, Type::INT8),
            (&self.latest_workflow, Type::TEXT),
            (&self.latest_key, Type::TEXT),
            (&self.schedule.lane, Type::TEXT),
        ]
    }
}

/// A row of `schedule.sql` with its name. One that cannot be read must not hold up the others.
fn named(row: &PgRow) -> Result<(String, Option<Schedule>), Fault> {
    let name: String = row.try_get("name").map_err(Fault::data)?;
    match schedule(row) {
        Err(Fault::Data(error)) => {
            tracing::warn!(schedule = name, %error, "a schedule cannot be read, and does not fire");
            Ok((name, None))
        }
        read => Ok((name, Some(read?))),
    }
}

/// A row of `schedule.sql`.
fn schedule(row: &PgRow) -> Result<Schedule, Fault> {
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
        generation: columns.small()?,
        created_at: columns.time()?,
        changed_at: columns.time()?,
        paused_at: columns.time_or_none()?,
        next_at: columns.time_or_none()?,
        latest: latest(&mut columns)?,
        lane: columns.take()?,
    })
}

fn latest(columns: &mut Columns<'_>) -> Result<Option<LatestRun>, Fault> {
    let (at, workflow, key) = (columns.time_or_none()?, columns.take()?, columns.take()?);
    let (Some(at), Some(workflow), Some(key)) = (at, workflow, key) else { return Ok(None) };
    Ok(Some(LatestRun { at, workflow, key }))
}
