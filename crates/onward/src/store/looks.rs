//! Looks at the keys of runs and at their ends, for people.
//!
//! Owns: [`Looks`], the plain data of its answers, and the end of a prefix. Never writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Answer;
use crate::{RunId, RunState, Timestamp};

/// A store whose keys and ends can be looked through.
///
/// Beside [`Store`](super::Store), because no run needs it. Each look walks along an index and is
/// bounded by its limit.
///
/// ```
/// use onward::store::{KeyLook, Looks, MemoryStore};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::store::Error> {
/// let store = MemoryStore::new();
/// let look = KeyLook { prefix: "order-".to_owned(), limit: 10, ..KeyLook::default() };
/// assert!(store.run_keys(look).await?.keys.is_empty());
/// # Ok(()) }
/// ```
pub trait Looks: Send + Sync {
    /// Runs that have a key, or had it, by key and then by age.
    fn run_keys(&self, look: KeyLook) -> Answer<'_, RunKeyPage>;

    /// The runs with the most suppressed starts, at most `limit`, up to `PAGE_ROWS_MAX`.
    fn top_keys(&self, limit: usize) -> Answer<'_, Vec<RunKey>>;

    /// Suppressed starts that had another input, newest first, before the one of this number: at
    /// most `limit`, up to `PAGE_ROWS_MAX`. Only those that are kept, `DUPLICATES_KEPT_MAX` for
    /// each run.
    fn key_conflicts(&self, before: Option<u64>, limit: usize) -> Answer<'_, KeyConflictPage>;

    /// Runs that were started and that ended in each minute since this time, oldest first; minutes
    /// without any are left out. Counted over the newest `SERIES_RUNS_MAX` runs and ends of each kind.
    fn minutes(&self, since: Timestamp) -> Answer<'_, Vec<Minute>>;

    /// Counts ends of one kind from one end on, so that whoever goes on from the last of them counts
    /// each once.
    ///
    /// ```
    /// use onward::store::{EndLook, Looks, MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::store::Error> {
    /// use onward::{RunId, RunState, Timestamp};
    ///
    /// let look = EndLook {
    ///     state: RunState::Failed,
    ///     after: (Timestamp::from_millis(0), RunId::from_u128(0)),
    ///     before: Timestamp::from_millis(1_000),
    ///     limit: 100,
    /// };
    /// assert_eq!(MemoryStore::new().ends(look).await?.number, 0);
    /// # Ok(()) }
    /// ```
    fn ends(&self, look: EndLook) -> Answer<'_, Ends>;
}

/// Which ends to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndLook {
    /// How the runs ended.
    pub state: RunState,
    /// Only those after this one: when a run ended, and its id.
    pub after: (Timestamp, RunId),
    /// Only those before this time.
    pub before: Timestamp,
    /// How many, up to `ENDS_COUNTED_MAX`.
    pub limit: usize,
}

/// Ends that were counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// How many.
    pub number: u64,
    /// The last of them: when the run ended, and its id.
    pub last: Option<(Timestamp, RunId)>,
    /// Whether more may follow, because the look stopped at its limit.
    pub more: bool,
}

/// What happened in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Minute {
    /// When it began, in milliseconds since 1970.
    pub at: i64,
    /// Runs that were started.
    pub started: u64,
    /// Runs that ended, however they did.
    pub ended: u64,
    /// Runs that failed.
    pub failed: u64,
}

impl Ends {
    /// What a look found, that stops at so many: the number and the last.
    pub(crate) fn of(found: Option<(u64, (Timestamp, RunId))>, most: usize) -> Self {
        let number = found.map_or(0, |(number, _)| number);
        Self { number, last: found.map(|(_, last)| last), more: number >= most as u64 }
    }
}

/// The milliseconds of a minute.
pub(crate) const MINUTE_MS: i64 = 60_000;

/// What is counted in minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Started,
    Ended(RunState),
}

/// Puts counts by the number of their minute together.
pub(crate) fn by_minute(counts: impl IntoIterator<Item = (i64, Happened, u64)>) -> Vec<Minute> {
    let mut minutes = BTreeMap::<i64, Minute>::new();
    for (number, happened, count) in counts {
        let at = number * MINUTE_MS;
        let minute = minutes.entry(number).or_insert(Minute { at, ..Minute::default() });
        match happened {
            Happened::Started => minute.started += count,
            Happened::Ended(state) => {
                minute.ended += count;
                minute.failed += if state == RunState::Failed { count } else { 0 };
            }
        }
    }
    minutes.into_values().collect()
}

/// The least id that a run of this time can have, its maker's clock being a minute behind: ids begin
/// with the time.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn least_id(since: Timestamp) -> RunId {
    let ms = since.as_millis().saturating_sub(MINUTE_MS).max(0);
    RunId::from_u128(u128::from(ms.unsigned_abs()) << 80)
}

/// Which keys to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLook {
    /// Of this workflow; of any unless set.
    pub workflow: Option<String>,
    /// What they begin with; nothing matches all.
    pub prefix: String,
    /// Only those after this one: the key and the run of the last of the page before.
    pub after: Option<(String, RunId)>,
    /// How many, up to `PAGE_ROWS_MAX`.
    pub limit: usize,
}

impl KeyLook {
    /// The key and the run after which the page begins.
    pub fn begin(&self) -> (String, RunId) {
        let first = || (self.prefix.clone(), RunId::from_u128(0));
        self.after.clone().unwrap_or_else(first)
    }

    /// What every key with the prefix is less than: the highest character there is comes after it.
    pub fn end(&self) -> String {
        format!("{}{}", self.prefix, char::MAX)
    }
}

/// The key of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunKey {
    /// The workflow.
    pub workflow: String,
    /// The key.
    pub key: String,
    /// The run that was started with it.
    pub run: RunId,
    /// Where that run stands.
    pub state: RunState,
    /// How many starts with the key were suppressed.
    pub duplicates: u64,
    /// How many of those that are kept had another input.
    pub conflicts: u64,
    /// When the run was started.
    pub created_at: Timestamp,
    /// When the key is free again, if it has a time of its own.
    pub expires_at: Option<Timestamp>,
    /// Whether the key is this run's; another may have it since, or it expired and was taken away.
    pub held: bool,
}

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunKeyPage {
    /// The keys.
    pub keys: Vec<RunKey>,
    /// Whether more follow.
    pub more: bool,
}

/// A suppressed start that had another input than the run that has its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyConflict {
    /// Its number: a later one has a higher.
    pub no: u64,
    /// When it came.
    pub at: Timestamp,
    /// From whom.
    pub caller: String,
    /// The workflow.
    pub workflow: String,
    /// The key.
    pub key: String,
    /// The run that has the key.
    pub run: RunId,
    /// Where that run stands.
    pub state: RunState,
}

/// A page of such starts, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyConflictPage {
    /// The starts.
    pub conflicts: Vec<KeyConflict>,
    /// Whether more follow.
    pub more: bool,
}
