//! Schedules: what starts runs by the clock.
//!
//! Owns: [`Schedules`], the plain data of its verbs, and the decisions that must be taken inside
//! their transactions. Never computes when a schedule comes; the engine does, and the store only
//! compares.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Answer, NewKey, NewRun, StartAt};
use crate::limits::SCHEDULE_GRACE;
use crate::model::schedule::{SCHEDULE_TAG, SCHEDULED_AT_TAG};
use crate::{
    CatchUp, Fingerprint, Json, LatestRun, OnConflict, Overlap, Run, RunId, Schedule, ScheduleSpec,
    Timestamp, Waits,
};

/// The least by which two times differ.
const MOMENT: Duration = Duration::from_millis(1);

/// A store that keeps schedules.
///
/// Beside [`Store`](super::Store), because no run needs it. Whoever fires a schedule says what it
/// saw: the generation and the next time. In one transaction the store starts the runs and moves
/// the next time on, if both are still what they were; else it does nothing. So however many
/// processes fire at once, and whichever of them dies before or after, each time is fired once.
/// That also answers for a firer that lost its lease: what it saw is no longer there.
///
/// ```
/// use onward::store::{MemoryStore, Schedules};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::store::Error> {
/// let store = MemoryStore::new();
/// assert_eq!(store.get_schedule("nightly-report".to_owned()).await?, None);
/// assert!(store.due_schedules(None, 10).await?.schedules.is_empty());
/// # Ok(()) }
/// ```
pub trait Schedules: Send + Sync {
    /// Adds a schedule, or changes the one of that name. What is the same already changes nothing.
    /// Other times, another workflow or another input raise its generation. Other times move its next
    /// time; the same times move it back at most, since a clock that was ahead may have moved it away, but to no
    /// time that was fired or that came before the schedule was made. A paused one stays paused.
    fn put_schedule(&self, put: PutSchedule) -> Answer<'_, Schedule>;

    /// One schedule.
    fn get_schedule(&self, name: String) -> Answer<'_, Option<Schedule>>;

    /// Schedules by name, after `after`: at most `limit`, up to `PAGE_ROWS_MAX`. One that cannot be
    /// read is named beside them, and takes no place.
    fn list_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, SchedulePage>;

    /// Schedules by name, after `after`, whose next time has come and that are not paused: at most
    /// `limit`, up to `SCHEDULES_DUE_MAX`; and when the next of the others comes. One that cannot be
    /// read is left out.
    fn due_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, DueSchedules>;

    /// Starts the runs of these times, as the overlap policy allows, and moves the next time on.
    /// Only where the schedule is what the caller saw; else, as at a repeat, [`Fired::Late`]. A
    /// time whose run is there already starts no other. At most `SCHEDULE_FIRE_MAX` times.
    /// `NotFound` when there is no such schedule.
    fn fire_schedule(&self, fire: Fire) -> Answer<'_, Fired>;

    /// Pauses a schedule: its times pass without a run. Again: it stays as it is. `NotFound` when
    /// there is no such schedule.
    fn pause_schedule(&self, name: String) -> Answer<'_, Schedule>;

    /// Lets a paused schedule go on at `next_at`, unless its generation is another by now. One that
    /// is not paused stays as it is. `NotFound` when there is no such schedule.
    fn resume_schedule(&self, resume: Resume) -> Answer<'_, Schedule>;

    /// Removes a schedule, and says whether it was there. Its runs stay.
    fn remove_schedule(&self, name: String) -> Answer<'_, bool>;

    /// Adds a schedule of another store as it is given. One of that name is left as it is.
    fn import_schedule(&self, import: ImportSchedule) -> Answer<'_, ScheduleImported>;
}

/// A schedule to add or change.
#[derive(Clone, Debug)]
pub struct PutSchedule {
    /// Its name.
    pub name: String,
    /// When it comes.
    pub spec: ScheduleSpec,
    /// The workflow that it starts.
    pub workflow: String,
    /// What the runs are started with.
    pub input: Json,
    /// The queue of the runs.
    pub queue: String,
    /// The lane of the runs within their queue.
    pub lane: Option<String>,
    /// The priority of the runs.
    pub priority: i32,
    /// How long after its start a run fails if it has not ended.
    pub timeout_ms: Option<i64>,
    /// The labels of the runs.
    pub tags: BTreeMap<String, String>,
    /// What happens when the latest run has not ended.
    pub overlap: Overlap,
    /// What happens about missed times.
    pub catch_up: CatchUp,
    /// The first of these times that has not passed: where the schedule is new, or had others.
    pub next_at: Option<Timestamp>,
}

/// A page of schedules, by name.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct SchedulePage {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// The names of those among them that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// Whether more follow.
    pub more: bool,
}

/// The schedules whose time has come.
#[derive(Clone, Debug, PartialEq)]
pub struct DueSchedules {
    /// Those that are due, by name.
    pub schedules: Vec<Schedule>,
    /// When the next of the others is.
    pub next_at: Option<Timestamp>,
    /// The time by which the store judged that.
    pub now: Timestamp,
}

/// Times of a schedule to start runs for.
#[derive(Clone, Debug)]
pub struct Fire {
    /// The schedule.
    pub name: String,
    /// The generation that the caller saw.
    pub generation: u32,
    /// How its next time moves; `None` when somebody asks for a run out of turn.
    pub advance: Option<Advance>,
    /// The times, in order.
    pub occurrences: Vec<NewOccurrence>,
    /// Who fires, for the audit of duplicates.
    pub caller: String,
}

/// How the next time of a schedule moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The next time that the caller saw.
    pub seen_at: Option<Timestamp>,
    /// The next time after these are fired.
    pub next_at: Option<Timestamp>,
}

/// One time of a schedule, and the run for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOccurrence {
    /// The time.
    pub at: Timestamp,
    /// The name of the run, made by the engine: a repeat is known by it.
    pub run: RunId,
    /// Its key.
    pub key: String,
    /// What it is started with, where that is stored in another form than the schedule's input;
    /// `None`: the schedule's input as it is.
    pub input: Option<OccurrenceInput>,
}

/// What the run for one time of a schedule is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OccurrenceInput {
    /// The input.
    pub input: Json,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
}

/// What came of firing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fired {
    /// Nothing: the schedule is not what the caller saw. Somebody else fired or changed it.
    Late,
    /// What became of each time, in order.
    Done(Vec<Occurred>),
}

/// What became of one time of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Occurred {
    /// A run was started.
    Started {
        /// The run.
        run: RunId,
    },
    /// A run was started that waits for the end of the one before.
    Buffered {
        /// The run.
        run: RunId,
        /// The run that it waits for.
        behind: RunId,
    },
    /// The run before was asked to end, and one was started behind it.
    Replaced {
        /// The run.
        run: RunId,
        /// The run that was asked to end.
        previous: RunId,
    },
    /// The run for it was there.
    Existing {
        /// The run.
        run: RunId,
    },
    /// Nothing was started, because this run has not ended.
    Skipped {
        /// The run that has not ended.
        live: RunId,
    },
    /// Nothing was started: a run with another input has its key.
    Refused {
        /// That run.
        holder: RunId,
    },
}

/// A paused schedule to let go on.
#[derive(Clone, Debug)]
pub struct Resume {
    /// The schedule.
    pub name: String,
    /// The generation that the caller saw.
    pub generation: u32,
    /// Its first time that has not passed.
    pub next_at: Option<Timestamp>,
}

/// A schedule of another store.
#[derive(Clone, Debug)]
pub struct ImportSchedule {
    /// The schedule, whole.
    pub schedule: Schedule,
    /// Whether to look only.
    pub dry_run: bool,
}

/// What an import of a schedule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleImported {
    /// It was added, or would be.
    New,
    /// It was there, the same in everything.
    There,
    /// One of that name was there and differs. Nothing was changed.
    Differs,
}

impl Occurred {
    /// Whether a run was asked to end for it.
    #[cfg(feature = "schedules")]
    pub(crate) fn replaces(&self) -> bool {
        matches!(self, Occurred::Replaced { .. })
    }

    /// The run for that time, if there is one.
    pub fn run(&self) -> Option<RunId> {
        match self {
            Occurred::Started { run }
            | Occurred::Buffered { run, .. }
            | Occurred::Replaced { run, .. }
            | Occurred::Existing { run } => Some(*run),
            Occurred::Skipped { .. } | Occurred::Refused { .. } => None,
        }
    }
}

/// What a put makes of a schedule; nothing when it is as it was.
pub(crate) fn put(old: Option<&Schedule>, put: &PutSchedule, now: Timestamp) -> Option<Schedule> {
    let new = put.fresh(now);
    let Some(old) = old else { return Some(new) };
    let same_input = old.input.fingerprint() == new.input.fingerprint();
    let moved = old.spec != new.spec;
    let other = moved || old.workflow != new.workflow || !same_input;
    let over = over_by(old, now);
    // A time that has come and was not fired yet is earlier than any that the caller computes.
    let next_at = match (old.next_at, new.next_at) {
        (Some(old), Some(new)) if !moved && new > over => Some(old.min(new)),
        (Some(old), _) if !moved => Some(old),
        // Whoever fires begins with the first of its times from there on.
        (_, new) => new.map(|new| new.max(over + MOMENT)),
    };
    let kept = Schedule {
        input: if same_input { old.input.clone() } else { new.input.clone() },
        generation: old.generation,
        created_at: old.created_at,
        changed_at: old.changed_at,
        paused_at: old.paused_at,
        next_at: old.next_at,
        latest: old.latest.clone(),
        ..new
    };
    let changed_at = if kept == *old { old.changed_at } else { now };
    let generation = old.generation + u32::from(other);
    let new = Schedule { generation, changed_at, next_at, ..kept };
    (new != *old).then_some(new)
}

/// The moment up to which the times of a schedule are over, whatever its next time is: they were fired, or came
/// before it was made. To start them again, whose runs may have been pruned, a clock that is behind is enough.
///
/// A clock that was ahead may have fired a time to come. Then the times until that one are not over; but by a
/// clock that is before the making of the schedule, nothing is known to be ahead.
pub(crate) fn over_by(schedule: &Schedule, now: Timestamp) -> Timestamp {
    let made = schedule.created_at;
    let fired = schedule.latest.as_ref().map(|latest| latest.at);
    fired.filter(|at| *at <= now || now < made).map_or(made, |at| at.max(made))
}

impl PutSchedule {
    fn fresh(&self, now: Timestamp) -> Schedule {
        Schedule {
            name: self.name.clone(),
            spec: self.spec.clone(),
            workflow: self.workflow.clone(),
            input: self.input.clone(),
            queue: self.queue.clone(),
            lane: self.lane.clone(),
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            tags: self.tags.clone(),
            overlap: self.overlap,
            catch_up: self.catch_up,
            generation: 1,
            created_at: now,
            changed_at: now,
            paused_at: None,
            next_at: self.next_at,
            latest: None,
        }
    }
}

/// Whether a schedule is what whoever fires it saw.
pub(crate) fn is_seen(schedule: &Schedule, fire: &Fire) -> bool {
    let seen = match fire.advance {
        Some(advance) => schedule.paused_at.is_none() && schedule.next_at == advance.seen_at,
        None => true,
    };
    seen && schedule.generation == fire.generation
}

/// What a resume makes of a schedule; nothing when it is as it was.
pub(crate) fn resume(old: &Schedule, resume: &Resume) -> Option<Schedule> {
    let paused = old.paused_at.is_some() && old.generation == resume.generation;
    paused.then(|| Schedule { paused_at: None, next_at: resume.next_at, ..old.clone() })
}

/// What an overlap policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlapping {
    /// Start at once.
    Start,
    /// Start nothing.
    Skip,
    /// Start behind it.
    Behind,
    /// Cancel it, and start behind it.
    Replace,
}

/// What is done about a time when `latest` is the run that the schedule started before. `All` promises
/// a run for each missed time, so these may wait one behind the other.
pub(crate) fn overlapping(
    schedule: &Schedule,
    at: Timestamp,
    latest: Option<&Run>,
    now: Timestamp,
) -> Overlapping {
    let Some(latest) = latest.filter(|run| !run.state.is_final()) else {
        return Overlapping::Start;
    };
    let catches_up = matches!(schedule.catch_up, CatchUp::All { .. }) && at + SCHEDULE_GRACE < now;
    let is_free = catches_up || !matches!(latest.waits_for, Some(Waits::Behind { .. }));
    match schedule.overlap {
        Overlap::Allow => Overlapping::Start,
        Overlap::CancelPrevious => Overlapping::Replace,
        Overlap::BufferOne if is_free && latest.successor.is_none() => Overlapping::Behind,
        Overlap::Skip | Overlap::BufferOne => Overlapping::Skip,
    }
}

/// The run of one time of a schedule.
pub(crate) fn run_of(schedule: &Schedule, occurrence: &NewOccurrence, caller: &str) -> NewRun {
    let mut tags = schedule.tags.clone();
    tags.insert(SCHEDULE_TAG.to_owned(), schedule.name.clone());
    tags.insert(SCHEDULED_AT_TAG.to_owned(), occurrence.at.to_string());
    let (input, fingerprint) = match &occurrence.input {
        Some(OccurrenceInput { input, fingerprint }) => (input.clone(), *fingerprint),
        None => (schedule.input.clone(), schedule.input.fingerprint()),
    };
    NewRun {
        id: occurrence.run,
        workflow: schedule.workflow.clone(),
        queue: schedule.queue.clone(),
        lane: schedule.lane.clone(),
        priority: schedule.priority,
        input,
        key: Some(NewKey {
            key: occurrence.key.clone(),
            fingerprint,
            ttl_ms: None,
            on_conflict: OnConflict::Existing,
            gather: None,
        }),
        start_at: StartAt::Now,
        timeout_ms: schedule.timeout_ms,
        tags,
        caller: caller.to_owned(),
        parent: None,
        claimant: None,
    }
}

/// The schedule after its times were fired.
pub(crate) fn fired(schedule: &mut Schedule, fire: &Fire, occurred: &[Occurred]) {
    let started = fire.occurrences.iter().zip(occurred).rev();
    let latest =
        started.filter(|(_, occurred)| occurred.run().is_some()).map(|(new, _)| new).next();
    if let Some(latest) = latest {
        let (workflow, key) = (schedule.workflow.clone(), latest.key.clone());
        schedule.latest = Some(LatestRun { at: latest.at, workflow, key });
    }
    if let Some(advance) = fire.advance {
        schedule.next_at = advance.next_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunState;

    const NOW: Timestamp = Timestamp::from_millis(5_000);
    const LATER: Timestamp = Timestamp::from_millis(9_000);

    fn new() -> PutSchedule {
        PutSchedule {
            name: "nightly".to_owned(),
            spec: ScheduleSpec::Every { every_ms: 1_000, anchor: Timestamp::from_millis(0) },
            workflow: "report".to_owned(),
            input: Json::stored(r#"{"a":1,"b":2}"#),
            queue: "default".to_owned(),
            lane: None,
            priority: 0,
            timeout_ms: None,
            tags: BTreeMap::new(),
            overlap: Overlap::Skip,
            catch_up: CatchUp::One,
            next_at: Some(NOW),
        }
    }

    #[test]
    fn only_another_spec_workflow_or_input_is_another_generation() {
        let old = put(None, &new(), NOW).unwrap();
        assert_eq!((old.generation, old.next_at), (1, Some(NOW)));
        let same = PutSchedule { input: Json::stored(r#"{"b":2.0,"a":1}"#), ..new() };
        assert_eq!(put(Some(&old), &same, LATER), None, "written in another way");

        let later = PutSchedule { next_at: Some(LATER), ..new() };
        let changed = |new: PutSchedule| put(Some(&old), &new, LATER).unwrap();
        let queue = changed(PutSchedule { queue: "bulk".to_owned(), ..later.clone() });
        assert_eq!((queue.generation, queue.next_at), (1, Some(NOW)));
        assert_eq!(queue.changed_at, LATER);
        let input = changed(PutSchedule { input: Json::stored("7"), ..later.clone() });
        assert_eq!((input.generation, input.next_at), (2, Some(NOW)));
        let spec = ScheduleSpec::Every { every_ms: 2_000, anchor: Timestamp::from_millis(0) };
        let moved = changed(PutSchedule { spec, ..later });
        assert_eq!((moved.generation, moved.next_at), (2, Some(LATER)));
    }

    #[test]
    fn a_put_leaves_a_pause_and_the_latest_run() {
        let latest = LatestRun { at: NOW, workflow: "report".to_owned(), key: "k".to_owned() };
        let old = Schedule {
            paused_at: Some(NOW),
            latest: Some(latest.clone()),
            ..put(None, &new(), NOW).unwrap()
        };
        let new = put(Some(&old), &PutSchedule { priority: 3, ..new() }, LATER).unwrap();
        assert_eq!((new.paused_at, new.latest), (Some(NOW), Some(latest)));
    }

    #[test]
    fn a_put_moves_back_to_nothing_that_was_fired_or_came_before_the_schedule() {
        let at = Timestamp::from_millis;
        let latest = |at| LatestRun { at, workflow: "report".to_owned(), key: "k".to_owned() };
        let made = Schedule { next_at: Some(at(90_000)), ..put(None, &new(), NOW).unwrap() };
        let next_at = |old: &Schedule, next_at, now| {
            let new = PutSchedule { next_at: Some(next_at), ..new() };
            put(Some(old), &new, now).map_or(old.next_at, |new| new.next_at)
        };
        assert_eq!(next_at(&made, at(1_000), LATER), made.next_at);
        assert_eq!(next_at(&made, NOW, LATER), made.next_at);
        assert_eq!(next_at(&made, at(6_000), LATER), Some(at(6_000)));
        let fired = Schedule { latest: Some(latest(at(8_000))), ..made.clone() };
        assert_eq!(next_at(&fired, at(8_000), LATER), made.next_at);
        assert_eq!(next_at(&fired, LATER, LATER), Some(LATER));
        // A clock that was ahead has fired it.
        let ahead = Schedule { latest: Some(latest(at(80_000))), ..made.clone() };
        assert_eq!(next_at(&ahead, at(10_000), LATER), Some(at(10_000)));
        // By this clock nothing can be said: the schedule is not made yet.
        assert_eq!(next_at(&ahead, at(10_000), at(1_000)), made.next_at);
        let spec = ScheduleSpec::Every { every_ms: 2_000, anchor: at(0) };
        let moved = PutSchedule { spec, next_at: Some(at(2_000)), ..new() };
        assert_eq!(put(Some(&fired), &moved, LATER).unwrap().next_at, Some(at(8_001)));
    }

    #[test]
    fn every_policy_starts_when_nothing_is_live() {
        let mut run = Run::fresh(RunId::new(), "report".to_owned(), Json::stored("1"), NOW);
        run.state = RunState::Failed;
        for overlap in Overlap::ALL {
            assert_eq!(decided(overlap, None), Overlapping::Start);
            assert_eq!(decided(overlap, Some(&run)), Overlapping::Start);
        }
    }

    /// What is done about a time that is on time.
    fn decided(overlap: Overlap, latest: Option<&Run>) -> Overlapping {
        let schedule = put(None, &PutSchedule { overlap, ..new() }, NOW).unwrap();
        overlapping(&schedule, NOW, latest, NOW)
    }

    #[test]
    fn only_one_run_waits_behind_a_live_one() {
        let mut run = Run::fresh(RunId::new(), "report".to_owned(), Json::stored("1"), NOW);
        assert_eq!(decided(Overlap::BufferOne, Some(&run)), Overlapping::Behind);
        run.successor = Some(RunId::new());
        assert_eq!(decided(Overlap::BufferOne, Some(&run)), Overlapping::Skip);
        run.successor = None;
        run.waits_for = Some(Waits::Behind { run: RunId::new(), start_at: NOW });
        assert_eq!(decided(Overlap::BufferOne, Some(&run)), Overlapping::Skip);
        assert_eq!(decided(Overlap::CancelPrevious, Some(&run)), Overlapping::Replace);
    }

    #[test]
    fn missed_times_wait_one_behind_the_other_only_to_be_all_caught_up() {
        let mut run = Run::fresh(RunId::new(), "report".to_owned(), Json::stored("1"), NOW);
        run.waits_for = Some(Waits::Behind { run: RunId::new(), start_at: NOW });
        let missed = |catch_up, late| {
            let new = PutSchedule { overlap: Overlap::BufferOne, catch_up, ..new() };
            let schedule = put(None, &new, NOW).unwrap();
            overlapping(&schedule, NOW, Some(&run), NOW + SCHEDULE_GRACE + late)
        };
        let (on_time, late) = (Duration::ZERO, Duration::from_millis(1));
        assert_eq!(missed(CatchUp::All { max: 9 }, late), Overlapping::Behind);
        assert_eq!(missed(CatchUp::All { max: 9 }, on_time), Overlapping::Skip);
        assert_eq!(missed(CatchUp::One, late), Overlapping::Skip);
    }
}
