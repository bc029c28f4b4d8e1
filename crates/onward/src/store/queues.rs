//! Queues with limits: setting them up, and looking at them.
//!
//! Owns: [`Queues`], the plain data of its verbs, and the decisions that must be taken inside their
//! transactions. Never gives a run to a worker; a claim does, by what `limited` decides.

use serde::Serialize;

use super::Answer;
use super::limited::Within;
use crate::{Queue, QueueCounts, QueueLimits, QueueUse, Timestamp};

/// A store whose queues can have limits and can be paused.
///
/// Beside [`Store`](super::Store), because a run needs none of it. What is set up here holds from the
/// next claim of every process on: a claim reads it in its own transaction. A queue that nobody set
/// up costs a claim nothing.
///
/// No verb is under a lease, so none can be refused for a lost one. Each says how the queue is to be
/// from now on, so a repeat changes nothing.
///
/// ```
/// use onward::store::{MemoryStore, Queues};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::store::Error> {
/// let store = MemoryStore::new();
/// let paused = store.pause_queue("ocr".to_owned()).await?;
/// assert!(paused.paused_at.is_some());
/// assert!(!store.resume_queue("ocr".to_owned()).await?.is_limited());
/// # Ok(()) }
/// ```
pub trait Queues: Send + Sync {
    /// Gives a queue these limits, instead of those it has. A paused one stays paused. `Conflict`
    /// when `QUEUES_MAX` others are set up.
    fn put_queue(&self, put: PutQueue) -> Answer<'_, Queue>;

    /// Pauses a queue: no worker is given a run of it. What is running goes on. Again: it stays as
    /// it is. `Conflict` when `QUEUES_MAX` others are set up.
    fn pause_queue(&self, name: String) -> Answer<'_, Queue>;

    /// Lets a paused queue go on. One that is not paused stays as it is.
    fn resume_queue(&self, name: String) -> Answer<'_, Queue>;

    /// Takes all limits from a queue, and its pause; says whether it had any.
    fn clear_queue(&self, name: String) -> Answer<'_, bool>;

    /// How a queue is set up; nothing when nobody set it up.
    fn get_queue(&self, name: String) -> Answer<'_, Option<Queue>>;

    /// Queues by name, after `after`, that are set up or have runs that are queued or running: at
    /// most `limit`, up to `PAGE_ROWS_MAX`.
    fn list_queues(&self, after: Option<String>, limit: usize) -> Answer<'_, QueuePage>;

    /// What is counted in a queue, and in one lane of it; nothing when nobody set it up.
    fn queue_use(&self, name: String, lane: Option<String>) -> Answer<'_, Option<QueueUse>>;

    /// A queue that is set up, with its last lane and its grants, to import into another store; nothing when nobody
    /// set it up.
    fn export_queue(&self, name: String) -> Answer<'_, Option<WholeQueue>>;

    /// Adds a queue of another store as it is given. One of that name is left as it is.
    fn import_queue(&self, import: ImportQueue) -> Answer<'_, QueueImported>;
}

/// The limits that a queue is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutQueue {
    /// The queue.
    pub name: String,
    /// All its limits.
    pub limits: QueueLimits,
}

/// A page of queues, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueuePage {
    /// The queues.
    pub queues: Vec<QueueCounts>,
    /// Whether more follow.
    pub more: bool,
}

/// A queue with what claims keep about it: the lane whose turn was last, and the grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeQueue {
    /// The queue.
    pub queue: Queue,
    /// The lane whose turn was last; the empty name is that of runs without a lane.
    pub last_lane: Option<String>,
    /// The grants that count against its rate, oldest first.
    pub grants: Vec<Grant>,
}

impl WholeQueue {
    /// Without the grants that no longer count at this time.
    pub(crate) fn at(mut self, now: Timestamp) -> Self {
        let within = self.queue.limits.rate.map(|rate| Within::period(now, rate.period_ms));
        self.grants.retain(|grant| within.is_some_and(|within| within.contains(grant.at)));
        self
    }
}

/// How many runs of a queue were given to workers at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// When.
    pub at: Timestamp,
    /// How many.
    pub count: u64,
}

/// A queue of another store to add.
#[derive(Clone, Debug)]
pub struct ImportQueue {
    /// The queue.
    pub whole: WholeQueue,
    /// Whether to look only.
    pub dry_run: bool,
}

/// What came of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueImported {
    /// It was added, or would be.
    New,
    /// It was there, and the same.
    There,
    /// It was there, and is set up otherwise.
    Differs,
}

/// What becomes of a queue's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It stays.
    None,
    /// It becomes this.
    Save(Queue),
    /// It goes, since nothing is set up any more.
    Remove,
}

/// Gives a queue these limits.
pub(crate) fn put(old: Option<&Queue>, put: &PutQueue, now: Timestamp) -> Change {
    change(old, &put.name, now, |queue| queue.limits = put.limits)
}

/// Pauses a queue.
pub(crate) fn pause(old: Option<&Queue>, name: &str, now: Timestamp) -> Change {
    change(old, name, now, |queue| queue.paused_at = queue.paused_at.or(Some(now)))
}

/// Lets a queue go on.
pub(crate) fn resume(old: Option<&Queue>, name: &str, now: Timestamp) -> Change {
    change(old, name, now, |queue| queue.paused_at = None)
}

fn change(old: Option<&Queue>, name: &str, now: Timestamp, set: impl FnOnce(&mut Queue)) -> Change {
    let mut queue = old.cloned().unwrap_or_else(|| Queue::named(name));
    let before = queue.clone();
    set(&mut queue);
    queue.changed_at = if queue == before { before.changed_at } else { Some(now) };
    match (old, queue.is_limited()) {
        (None, false) => Change::None,
        (Some(_), false) => Change::Remove,
        (Some(_), true) if queue == before => Change::None,
        (_, true) => Change::Save(queue),
    }
}

impl Change {
    /// The queue as it is after this change.
    pub(crate) fn after(&self, old: Option<Queue>, name: &str) -> Queue {
        match self {
            Change::None => old.unwrap_or_else(|| Queue::named(name)),
            Change::Save(queue) => queue.clone(),
            Change::Remove => Queue::named(name),
        }
    }
}

/// A queue whose row cannot be read: paused, since its limits may be any, so that the others are served. Its
/// limits can be set anew, and then it can be resumed.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn unreadable(name: String, why: &dyn std::fmt::Display) -> Queue {
    tracing::warn!(queue = name, error = %why, "a queue cannot be read, and counts as paused");
    Queue { paused_at: Some(Timestamp::from_millis(0)), ..Queue::named(name) }
}

/// The earlier of two times, of those that are there.
pub(crate) fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[test]
    fn a_queue_with_nothing_set_up_has_no_row() {
        assert_eq!(resume(None, "ocr", NOW), Change::None);
        let Change::Save(paused) = pause(None, "ocr", NOW) else { panic!("it is saved") };
        assert_eq!((paused.paused_at, paused.changed_at), (Some(NOW), Some(NOW)));
        assert_eq!(pause(Some(&paused), "ocr", Timestamp::from_millis(2_000)), Change::None);
        assert_eq!(resume(Some(&paused), "ocr", NOW), Change::Remove);
    }

    #[test]
    fn limits_and_pause_leave_each_other_alone() {
        let limits = QueueLimits { concurrency: Some(2), ..QueueLimits::default() };
        let put_two = PutQueue { name: "ocr".to_owned(), limits };
        let Change::Save(queue) = put(None, &put_two, NOW) else { panic!("it is saved") };
        let Change::Save(paused) = pause(Some(&queue), "ocr", NOW) else { panic!("it is saved") };
        assert_eq!((paused.limits, paused.paused_at), (limits, Some(NOW)));
        let none = PutQueue { limits: QueueLimits::default(), ..put_two };
        let Change::Save(still) = put(Some(&paused), &none, NOW) else { panic!("it is saved") };
        assert_eq!((still.limits.is_none(), still.paused_at), (true, Some(NOW)));
    }
}
