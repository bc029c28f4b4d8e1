//! Where claims look: behind what was taken, and from the head on now and then.
//!
//! What was claimed stays in the index of queued runs until a vacuum, and while somebody holds an old
//! snapshot, a dump or an analysis, each look visits all of it anew. So a worker remembers how far its
//! claims came, once a look has read too much, and its next claims look behind that. So it is with the
//! index of runs that wait for a time, through which runs come to be queued.
//!
//! Owns: the floors of each worker, and when a claim looks from the head. Never the truth about a
//! run: one that is queued before a floor, by a transaction that was open for long, is found by the
//! next look from the head. That look comes when ten times the last one's time is over, and within a second; a claim
//! that looked behind floors says when to come again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::fault::Fault;
use super::row::Columns;
use super::tx::Param;
use crate::{Timestamp, WorkerId};

/// So many times as long as a look from the head took do claims look behind their floors: a tenth of
/// the time at most is spent on the way there.
const LOOK_SHARE: u32 = 10;

/// The longest time without a look from the head: a run before the floor waits no longer for a worker
/// that has a free place.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// Pages of the index that a look may read and still be worth repeating: about two thousand entries.
/// A store that is not behind with its vacuum stays below, and its claims look from the head.
const PAGES_MAX: usize = 16;

/// Pages that a look needs to find its place, for each queue and workflow.
const PAGES_EACH: usize = 4;

/// Priorities of a queue and workflow that have a floor. A look goes into two ranges for each.
const PRIORITIES_MAX: usize = 8;

/// How long before the last look from the head a run may have been due that claims still look for: one
/// that parks with a time that is just over waits for nothing.
const DUE_BEFORE: Duration = Duration::from_secs(1);

/// Workers whose floors are kept: a process has one or a few.
const WORKERS_MAX: usize = 64;

/// The place of a run among those of its queue, workflow and priority.
type Place = (i64, Uuid);

/// By priority, the place before which nothing is queued, as far as is known.
type Floors = BTreeMap<i32, Place>;

/// A queue and a workflow.
type Pair = (String, String);

/// What the workers of a store know of the queue's head.
#[derive(Debug, Default)]
pub(super) struct Heads(Mutex<HashMap<WorkerId, Head>>);

/// What a worker knows of it.
#[derive(Debug)]
struct Head {
    floors: HashMap<Pair, Floors>,
    /// When it looked from the head.
    looked_at: Timestamp,
    /// How long claims look behind the floors after that.
    lasting: Duration,
}

impl Heads {
    /// Where a worker's claim looks at this time.
    pub(super) fn view(&self, worker: WorkerId, now: Timestamp) -> View {
        let heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let head = heads.get(&worker);
        let until = head.and_then(|head| head.until(now));
        let Some((head, until)) = head.zip(until) else { return View::default() };
        let due_from = head.looked_at.as_millis().saturating_sub(millis(DUE_BEFORE));
        let mut view = View { until: Some(until), due_from, ..View::default() };
        for (pair, floors) in &head.floors {
            ranges(floors).into_iter().for_each(|range| view.add(pair, range));
        }
        view
    }

    /// Takes note of how far a worker's look came; of nothing, if it read little.
    pub(super) fn learn(&self, worker: WorkerId, view: &View, look: Option<Look>, now: Timestamp) {
        let mut heads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(look) = look else {
            heads.remove(&worker);
            return;
        };
        if heads.len() >= WORKERS_MAX && !heads.contains_key(&worker) {
            heads.clear();
        }
        let from_head = view.until.is_none();
        let head = heads.entry(worker).or_insert_with(|| Head {
            floors: HashMap::new(),
            looked_at: now,
            lasting: Duration::ZERO,
        });
        if from_head {
            head.looked_at = now;
            head.lasting = (look.took * LOOK_SHARE).min(LOOK_EVERY_MAX);
        }
        for (pair, came) in look.pairs {
            let floors = head.floors.entry(pair).or_default();
            *floors = came.floors(std::mem::take(floors), from_head);
        }
    }

    /// Forgets a worker that is gone.
    pub(super) fn forget(&self, worker: WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
    }
}

impl Head {
    /// Until when claims look behind the floors, if they do at this time.
    fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.looked_at.as_millis().saturating_add(millis(self.lasting));
        let until = Timestamp::from_millis(until);
        // A clock that went back says nothing about how long ago it was.
        (!self.floors.is_empty() && self.looked_at <= now && now < until).then_some(until)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Runs with a priority between two, at a place or behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    high: i32,
    low: i32,
    place: Place,
}

/// The place before all others.
const FIRST: Place = (i64::MIN, Uuid::nil());

/// All that is not before a floor, in the order of claims.
fn ranges(floors: &Floors) -> Vec<Range> {
    let mut ranges = Vec::with_capacity(2 * floors.len() + 1);
    let mut high = Some(i32::MAX);
    for (&priority, &place) in floors.iter().rev() {
        if let Some(high) = high.filter(|high| *high > priority) {
            ranges.push(Range { high, low: priority + 1, place: FIRST });
        }
        ranges.push(Range { high: priority, low: priority, place });
        high = priority.checked_sub(1);
    }
    ranges.extend(high.map(|high| Range { high, low: i32::MIN, place: FIRST }));
    ranges
}

/// Where one claim looks: behind floors, as arrays for its statement, or from the head on.
#[derive(Debug)]
pub(super) struct View {
    /// When the next look from the head is due, if this is none.
    pub(super) until: Option<Timestamp>,
    /// Runs that wait for a time before this were woken.
    due_from: i64,
    queues: Vec<String>,
    workflows: Vec<String>,
    highs: Vec<i32>,
    lows: Vec<i32>,
    due_ats: Vec<i64>,
    ids: Vec<Uuid>,
}

impl Default for View {
    /// From the head on.
    fn default() -> Self {
        Self {
            until: None,
            due_from: i64::MIN,
            queues: Vec::new(),
            workflows: Vec::new(),
            highs: Vec::new(),
            lows: Vec::new(),
            due_ats: Vec::new(),
            ids: Vec::new(),
        }
    }
}

impl View {
    fn add(&mut self, pair: &Pair, range: Range) {
        self.queues.push(pair.0.clone());
        self.workflows.push(pair.1.clone());
        self.highs.push(range.high);
        self.lows.push(range.low);
        self.due_ats.push(range.place.0);
        self.ids.push(range.place.1);
    }

    pub(super) fn params(&self) -> [Param<'_>; 7] {
        [
            (&self.due_from, Type::INT8),
            (&self.queues, Type::TEXT_ARRAY),
            (&self.workflows, Type::TEXT_ARRAY),
            (&self.highs, Type::INT4_ARRAY),
            (&self.lows, Type::INT4_ARRAY),
            (&self.due_ats, Type::INT8_ARRAY),
            (&self.ids, Type::UUID_ARRAY),
        ]
    }

    /// The pages past which it is worth to remember how far the look came.
    pub(super) fn pages_max(&self, pairs: usize, limit: usize) -> usize {
        match self.until {
            // A floor that is not moved on falls behind.
            Some(_) => 0,
            // What it takes is read too: more than this many entries fit on a page.
            None => PAGES_MAX + pairs * PAGES_EACH + limit / 16,
        }
    }
}

/// What a look found, and how long it took.
#[derive(Debug)]
pub(super) struct Look {
    took: Duration,
    pairs: HashMap<Pair, Came>,
}

/// How far a look came in one queue and workflow.
#[derive(Debug, Default)]
struct Came {
    /// The last that was taken, by priority.
    taken: Floors,
    /// The first that it left, or the last that it took where more may be behind it; nothing where
    /// no run is left.
    edge: Option<(i32, Place)>,
}

impl Look {
    /// Reads what the database says, of a claim for so many runs.
    pub(super) fn read(columns: &mut Columns<'_>, is_full: bool) -> Result<Option<Self>, Fault> {
        let took: Option<i64> = columns.take()?;
        let queues: Option<Vec<String>> = columns.take()?;
        let workflows: Option<Vec<String>> = columns.take()?;
        let priorities: Option<Vec<i32>> = columns.take()?;
        let due_ats: Option<Vec<i64>> = columns.take()?;
        let ids: Option<Vec<Uuid>> = columns.take()?;
        let taken: Option<Vec<bool>> = columns.take()?;
        let Some(took) = took else { return Ok(None) };
        let pairs = queues.unwrap_or_default().into_iter().zip(workflows.unwrap_or_default());
        let places = due_ats.unwrap_or_default().into_iter().zip(ids.unwrap_or_default());
        let seen = priorities.unwrap_or_default().into_iter().zip(places);
        let seen = pairs.zip(seen).zip(taken.unwrap_or_default());
        let mut look = Self {
            took: Duration::from_micros(u64::try_from(took).unwrap_or_default()),
            pairs: HashMap::new(),
        };
        for ((pair, (priority, place)), is_taken) in seen {
            look.pairs.entry(pair).or_default().add(priority, place, is_taken);
        }
        if is_full {
            look.pairs.values_mut().for_each(Came::stop_at_last);
        }
        Ok(Some(look))
    }
}

impl Came {
    fn add(&mut self, priority: i32, place: Place, is_taken: bool) {
        if is_taken {
            self.taken.insert(priority, place);
        } else {
            self.edge = Some((priority, place));
        }
    }

    /// A look that found as many as it may take did not see what is behind the last.
    fn stop_at_last(&mut self) {
        let last = self.taken.first_key_value();
        self.edge = self.edge.or(last.map(|(priority, place)| (*priority, *place)));
    }

    /// The floors after this look. Above the edge nothing is queued, wherever that was before. Below
    /// it a look from the head saw nothing, and what was queued there before a floor must not wait for
    /// ever: it starts over.
    fn floors(self, before: Floors, from_head: bool) -> Floors {
        let mut floors = before;
        for (priority, place) in self.taken {
            let floor = floors.entry(priority).or_insert(place);
            *floor = (*floor).max(place);
        }
        if let Some((edge, place)) = self.edge {
            floors.retain(|priority, _| *priority >= edge || !from_head);
            floors.insert(edge, place);
        }
        while floors.len() > PRIORITIES_MAX {
            floors.pop_first();
        }
        floors
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A queue with one workflow: its runs in the order of claims.
    #[derive(Default)]
    struct Queue(BTreeSet<(std::cmp::Reverse<i32>, Place)>);

    fn place(due_at: i64) -> Place {
        (due_at, Uuid::nil())
    }

    impl Queue {
        fn add(&mut self, priority: i32, due_at: i64) {
            self.0.insert((std::cmp::Reverse(priority), place(due_at)));
        }

        /// What a claim with these floors looks at, in the order of claims.
        fn seen(&self, floors: &Floors) -> Vec<(i32, Place)> {
            let runs = |range: &Range| {
                let Range { high, low, place } = *range;
                let fits = move |(priority, at): &(i32, Place)| {
                    (low..=high).contains(priority) && *at >= place
                };
                self.0
                    .iter()
                    .map(|(priority, at)| (priority.0, *at))
                    .filter(fits)
                    .collect::<Vec<_>>()
            };
            ranges(floors).iter().flat_map(runs).collect()
        }

        /// Takes what a claim takes, and says how far it came.
        fn take(&mut self, floors: &Floors, limit: usize) -> Came {
            let mut came = Came::default();
            for (place_no, (priority, at)) in
                self.seen(floors).into_iter().take(limit + 1).enumerate()
            {
                if place_no < limit {
                    self.0.remove(&(std::cmp::Reverse(priority), at));
                    came.add(priority, at, true);
                } else if came.edge.is_none() {
                    // Half of the looks do not see the first that they leave.
                    if at.0 % 2 == 0 {
                        came.add(priority, at, false);
                    } else {
                        came.stop_at_last();
                    }
                }
            }
            came
        }
    }

    proptest! {
        /// Ranges come in the order of claims, and leave out nothing but what is before a floor.
        #[test]
        fn ranges_leave_out_only_what_is_before_a_floor(
            floors in proptest::collection::btree_map(
                prop_oneof![-2..3, Just(i32::MIN), Just(i32::MAX)], (0..5_i64).prop_map(place), 0..6),
        ) {
            let mut queue = Queue::default();
            for priority in [i32::MIN, -3, -2, -1, 0, 1, 2, 3, i32::MAX] {
                (0..6).for_each(|due_at| queue.add(priority, due_at));
            }
            let before = |(priority, at): &(i32, Place)| {
                floors.get(priority).is_some_and(|floor| at < floor)
            };
            let all: Vec<_> = queue.seen(&Floors::new());
            let expected: Vec<_> = all.into_iter().filter(|run| !before(run)).collect();
            prop_assert_eq!(queue.seen(&floors), expected);
        }

        /// Whatever came late, and wherever it was queued: after a look from the head, what is left is
        /// not before a floor. So nothing waits for more than one such look in the order of claims.
        #[test]
        fn after_a_look_from_the_head_nothing_is_before_a_floor(
            story in proptest::collection::vec(
                (proptest::collection::vec((-2..3_i32, 0..20_i64), 0..8), 1..6_usize, any::<bool>()),
                1..20),
        ) {
            let (mut queue, mut floors) = (Queue::default(), Floors::new());
            for (late, limit, from_head) in story {
                late.into_iter().for_each(|(priority, due_at)| queue.add(priority, due_at));
                let view = if from_head { Floors::new() } else { floors.clone() };
                let seen_before = queue.seen(&view);
                let came = queue.take(&view, limit);
                floors = came.floors(floors, from_head);
                if from_head {
                    prop_assert_eq!(queue.seen(&floors), queue.seen(&Floors::new()));
                } else {
                    let left: Vec<_> = seen_before.into_iter().skip(limit).collect();
                    prop_assert_eq!(queue.seen(&floors), left);
                }
            }
        }
    }

    #[test]
    fn claims_look_from_the_head_again_in_time_and_after_a_clock_that_went_back() {
        let (heads, worker) = (Heads::default(), WorkerId::new());
        let at = Timestamp::from_millis;
        let look = |took_ms| {
            let came = Came { taken: Floors::from([(0, place(1))]), edge: None };
            let pair = ("default".to_owned(), "index".to_owned());
            Look { took: Duration::from_millis(took_ms), pairs: HashMap::from([(pair, came)]) }
        };
        let view = heads.view(worker, at(1_000));
        assert_eq!(view.until, None);
        heads.learn(worker, &view, Some(look(5)), at(1_000));
        assert_eq!(heads.view(worker, at(1_049)).until, Some(at(1_050)));
        assert_eq!(heads.view(worker, at(1_050)).until, None);
        assert_eq!(heads.view(worker, at(999)).until, None);
        // A look that took long comes again after a second all the same.
        heads.learn(worker, &View::default(), Some(look(5_000)), at(2_000));
        let view = heads.view(worker, at(2_999));
        assert_eq!(view.until, Some(at(3_000)));
        // A look behind the floors does not put it off.
        heads.learn(worker, &view, Some(look(5_000)), at(2_999));
        assert_eq!(heads.view(worker, at(3_000)).until, None);
        // One that read little ends it.
        heads.learn(worker, &View::default(), None, at(3_000));
        assert_eq!(heads.view(worker, at(3_000)).until, None);
    }
}
