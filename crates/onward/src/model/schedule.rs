//! A schedule as it stands in the store.
//!
//! Owns: [`Schedule`], when it comes, its two policies, and the names of its runs. Never computes a
//! time.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schedules")]
use crate::Key;
use crate::{Code, Error, Json, Run, Timestamp};

/// The tag that names the schedule of a run.
pub(crate) const SCHEDULE_TAG: &str = "schedule";

/// The tag that says which time of its schedule a run is for.
pub(crate) const SCHEDULED_AT_TAG: &str = "scheduled_at";

/// The first part of the key of a run that a schedule started.
const KEY_PREFIX: &str = "schedule";

/// When a schedule comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleSpec {
    /// At the times that a cron pattern describes, by the clocks of a time zone.
    Cron {
        /// The pattern: minute, hour, day, month and weekday, with seconds before them if there are
        /// six fields.
        cron: String,
        /// The name of the zone, as `Europe/Berlin`.
        time_zone: String,
    },
    /// At even distances from some time on.
    Every {
        /// The distance, in milliseconds.
        every_ms: i64,
        /// The first time. The others are counted from it.
        anchor: Timestamp,
    },
}

impl fmt::Display for ScheduleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleSpec::Cron { cron, time_zone } => write!(f, "{cron} ({time_zone})"),
            ScheduleSpec::Every { every_ms, anchor } => {
                let every = Duration::from_millis(u64::try_from(*every_ms).unwrap_or(0));
                write!(f, "every {}", humantime::format_duration(every))?;
                if anchor.as_millis() == 0 { Ok(()) } else { write!(f, " from {anchor}") }
            }
        }
    }
}

/// What a schedule does when its time comes while its latest run has not ended.
///
/// ```
/// use onward::Overlap;
///
/// assert_eq!("buffer_one".parse::<Overlap>()?, Overlap::BufferOne);
/// assert_eq!(Overlap::default(), Overlap::Skip);
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Start nothing this time.
    #[default]
    Skip,
    /// Start a run beside it.
    Allow,
    /// Ask it to end, and start a run behind it.
    CancelPrevious,
    /// Start a run that waits for its end. While one waits, further times are skipped.
    BufferOne,
}

impl Overlap {
    /// Every policy.
    pub const ALL: [Overlap; 4] =
        [Overlap::Skip, Overlap::Allow, Overlap::CancelPrevious, Overlap::BufferOne];

    /// The name, as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overlap::Skip => "skip",
            Overlap::Allow => "allow",
            Overlap::CancelPrevious => "cancel_previous",
            Overlap::BufferOne => "buffer_one",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Overlap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|overlap| overlap.as_str() == text);
        known.ok_or_else(|| unknown("overlap policy", text))
    }
}

/// What a schedule does about times that passed while no worker was up to see them.
///
/// ```
/// use onward::CatchUp;
///
/// assert_eq!("all:24".parse::<CatchUp>()?, CatchUp::All { max: 24 });
/// assert_eq!(CatchUp::default(), CatchUp::One);
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Start nothing for them.
    Skip,
    /// Start one run for all of them: for the latest.
    #[default]
    One,
    /// Start a run for each of them, oldest first, but no more than the latest `max`.
    All {
        /// How many, up to [`SCHEDULE_CATCH_UP_MAX`](crate::limits::SCHEDULE_CATCH_UP_MAX).
        max: u32,
    },
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatchUp::Skip => f.pad("skip"),
            CatchUp::One => f.pad("one"),
            CatchUp::All { max } => f.pad(&format!("all:{max}")),
        }
    }
}

impl FromStr for CatchUp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "skip" => Ok(CatchUp::Skip),
            "one" => Ok(CatchUp::One),
            _ => {
                let max = text.strip_prefix("all:").and_then(|max| max.parse().ok());
                let max = max.ok_or_else(|| unknown("catch-up policy", text))?;
                Ok(CatchUp::All { max })
            }
        }
    }
}

fn unknown(what: &str, text: &str) -> Error {
    Error::new(Code::InvalidOption).about(format!("no {what} {text:?}"))
}

/// A schedule as it stands in the store: a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
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
    /// The labels of the runs, besides `schedule` and `scheduled_at`.
    pub tags: BTreeMap<String, String>,
    /// What happens when the latest run has not ended.
    pub overlap: Overlap,
    /// What happens about missed times.
    pub catch_up: CatchUp,
    /// Raised by each change of its times, its workflow or its input; part of the runs' keys.
    pub generation: u32,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When it was last changed by a caller.
    pub changed_at: Timestamp,
    /// When it was paused.
    pub paused_at: Option<Timestamp>,
    /// Its next time that nothing was done about. `None`: there is none.
    pub next_at: Option<Timestamp>,
    /// The latest run that it started.
    pub latest: Option<LatestRun>,
}

/// The latest run of a schedule, by its key: whichever run has that key, so that a run which goes
/// on as another counts as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatestRun {
    /// The time that it is for.
    pub at: Timestamp,
    /// The workflow.
    pub workflow: String,
    /// The key.
    pub key: String,
}

/// The key of the run for this time of a schedule.
#[cfg(feature = "schedules")]
pub(crate) fn occurrence_key(name: &str, at: Timestamp) -> Key {
    Key::of([KEY_PREFIX, name, &at.to_string()])
}

/// The key of the run that somebody asked for at this time.
#[cfg(feature = "schedules")]
pub(crate) fn trigger_key(name: &str, at: Timestamp, nonce: &str) -> Key {
    Key::of([KEY_PREFIX, name, &at.to_string(), nonce])
}

/// The time that a run is for, if a schedule started it, or a run that it was forked from or goes on for.
///
/// The key says it of the run that the schedule started and of those that go on for it. A fork has a key
/// of its own or none, and the tags of the run that it was forked from.
pub(crate) fn time_of(run: &Run) -> Option<Timestamp> {
    let is_derived = run.forked_from.is_some() || run.continued_from.is_some();
    let is_of_schedule = is_derived && run.tags.contains_key(SCHEDULE_TAG);
    scheduled_at(run.key.as_deref()).or_else(|| {
        let time = run.tags.get(SCHEDULED_AT_TAG).filter(|_| is_of_schedule)?;
        humantime::parse_rfc3339(time).ok().map(Timestamp::from)
    })
}

/// The time that a run with this key is for, if a schedule started it.
pub(crate) fn scheduled_at(key: Option<&str>) -> Option<Timestamp> {
    let mut parts = key?.split('/');
    let (prefix, _name) = (parts.next()?, parts.next()?);
    // A key may have the schedule's generation before the time: then it is an older one.
    let time = parts.take(2).find_map(|part| humantime::parse_rfc3339(part).ok())?;
    (prefix == KEY_PREFIX).then(|| Timestamp::from(time))
}

#[cfg(all(test, feature = "schedules"))]
mod tests {
    use super::*;
    use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};

    const AT: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_run_knows_its_time_by_its_key() {
        let key = occurrence_key("nightly/report", AT);
        assert_eq!(key.as_str(), "schedule/nightly%2Freport/2023-11-14T22:13:20.000Z");
        assert_eq!(scheduled_at(Some(key.as_str())), Some(AT));
        assert_eq!(scheduled_at(Some(trigger_key("a", AT, "x").as_str())), Some(AT));
        assert_eq!(scheduled_at(Some("schedule/a/1/2023-11-14T22:13:20.000Z")), Some(AT));
        for other in ["order-7", "schedule/a/soon", "other/a/2023-11-14T22:13:20.000Z"] {
            assert_eq!(scheduled_at(Some(other)), None);
        }
        assert_eq!(scheduled_at(None), None);
    }

    #[test]
    fn the_longest_name_makes_a_key_that_is_taken() {
        let key = trigger_key(&"/".repeat(NAME_BYTES_MAX), AT, &"0".repeat(32));
        assert!(key.as_str().len() <= KEY_BYTES_MAX);
    }

    #[test]
    fn policies_are_read_as_they_are_shown() {
        for overlap in Overlap::ALL {
            assert_eq!(overlap.to_string().parse::<Overlap>().unwrap(), overlap);
        }
        for catch_up in [CatchUp::Skip, CatchUp::One, CatchUp::All { max: 7 }] {
            assert_eq!(catch_up.to_string().parse::<CatchUp>().unwrap(), catch_up);
        }
        for wrong in ["all", "all:", "all:-1", "two"] {
            assert!(wrong.parse::<CatchUp>().is_err());
        }
    }
}
