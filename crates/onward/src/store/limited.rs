//! What a claim may take from a queue that is limited.
//!
//! Owns: how many runs, by each of the limits, and which, where lanes take turns; for the stores whose
//! transactions are in this process. Postgres decides the same in `sql/claim_limited.sql`. Never
//! takes a run, and never reads anything but through [`Site`].

use std::collections::HashMap;

use crate::limits::{LANES_LOOK_MAX, LANES_LOOK_PAUSE, SUSPECTS_LOOK_MAX};
use crate::store::ClaimMode;
use crate::{Queue, Timestamp};

/// A queue that is set up, and the lane whose turn was last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) queue: Queue,
    pub(crate) last_lane: Option<String>,
}

/// What runs are given within a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) count: u64,
    /// When the first of them was.
    pub(crate) first_at: Option<Timestamp>,
}

/// The time whose grants count against a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Within {
    /// What was granted then has left the period.
    pub(crate) after: Timestamp,
    /// What was granted later than this was granted before the clock was set back, by more than the
    /// period: it would count for as long.
    pub(crate) until: Timestamp,
}

impl Within {
    pub(crate) fn period(now: Timestamp, period_ms: i64) -> Self {
        let at = |ms: i64| Timestamp::from_millis(now.as_millis().saturating_add(ms));
        Self { after: at(-period_ms), until: at(period_ms) }
    }

    pub(crate) fn contains(self, at: Timestamp) -> bool {
        self.after < at && at <= self.until
    }
}

/// What a claim sees of a queue, in its transaction. The runs are those that it may take but for the
/// limits: of workflows that it serves, and not kept off its build.
pub(crate) trait Site {
    /// A queued run.
    type Run: Clone;
    /// Why something cannot be seen.
    type Fault;

    /// The lane of a run.
    fn lane_of(run: &Self::Run) -> Option<&str>;

    /// Runs that are running, and those of them that the claim's worker has.
    fn running(&mut self) -> Result<(u64, u64), Self::Fault>;

    /// Runs of a lane that are running.
    fn lane_running(&mut self, lane: &str) -> Result<u64, Self::Fault>;

    /// What was granted within a time.
    fn granted(&mut self, within: Within) -> Result<Granted, Self::Fault>;

    /// The first queued runs in the order of claims, whatever their lanes.
    fn first(&mut self, mode: ClaimMode, limit: usize) -> Result<Vec<Self::Run>, Self::Fault>;

    /// As `first`, but only those that are kept off some build, in ordinary mode.
    fn first_kept(&mut self, limit: usize) -> Result<Vec<Self::Run>, Self::Fault>;

    /// The next lane that has queued runs, by name. Runs without a lane are those of the lane with
    /// the empty name.
    fn lane_after(&mut self, lane: Option<&str>) -> Result<Option<String>, Self::Fault>;

    /// The first queued runs of a lane: those that have begun, then by priority, then longest due.
    fn lane_first(&mut self, lane: &str, limit: usize) -> Result<Vec<Self::Run>, Self::Fault>;
}

/// What a claim takes from a queue.
#[derive(Clone, Debug)]
pub(crate) struct Choice<R> {
    /// The runs, in turn.
    pub(crate) runs: Vec<R>,
    /// When to look again, if a time alone can change the answer.
    pub(crate) look_at: Option<Timestamp>,
    /// The lane after which the next claim looks, when this one gave up looking there.
    pub(crate) cut_at: Option<String>,
}

impl<R> Choice<R> {
    fn nothing(look_at: Option<Timestamp>) -> Self {
        Self { runs: Vec::new(), look_at, cut_at: None }
    }
}

/// Chooses up to `limit` runs of a queue.
pub(crate) fn choose<S: Site>(
    site: &mut S,
    limited: &Limited,
    mode: ClaimMode,
    limit: usize,
    now: Timestamp,
) -> Result<Choice<S::Run>, S::Fault> {
    if limited.queue.paused_at.is_some() {
        return Ok(Choice::nothing(None));
    }
    let (room, look_at) = room(site, limited, now)?;
    let limit = limit.min(room);
    if limit == 0 {
        return Ok(Choice::nothing(look_at));
    }
    let Some(per_lane) = limited.queue.limits.per_lane else {
        return Ok(Choice { runs: site.first(mode, limit)?, ..Choice::nothing(look_at) });
    };
    let mut lanes = Lanes { site, per_lane: u64::from(per_lane), free: HashMap::new() };
    match mode {
        ClaimMode::Suspect => {
            let first = lanes.site.first(mode, SUSPECTS_LOOK_MAX)?;
            Ok(Choice { runs: lanes.fitting(first, limit)?, ..Choice::nothing(look_at) })
        }
        ClaimMode::Ordinary => {
            let mut choice = lanes.in_turn(limited.last_lane.as_deref(), limit, now)?;
            let rest = limit - choice.runs.len();
            if rest > 0 {
                let kept = lanes.site.first_kept(SUSPECTS_LOOK_MAX)?;
                choice.runs.extend(lanes.fitting(kept, rest)?);
            }
            Ok(choice)
        }
    }
}

/// Gives the runs that were chosen of a queue, in turn, the places that they have among those of other queues:
/// the first in turn has the earliest of their places. By its own place, the only run of a light lane would be
/// the last of them all, and cut off.
pub(crate) fn in_places<R, P: Ord>(runs: Vec<R>, place: impl Fn(&R) -> P) -> Vec<(P, R)> {
    let mut places: Vec<P> = runs.iter().map(place).collect();
    places.sort_unstable();
    places.into_iter().zip(runs).collect()
}

/// How many runs the limits of the whole queue leave room for, and when the rate leaves more.
fn room<S: Site>(
    site: &mut S,
    limited: &Limited,
    now: Timestamp,
) -> Result<(usize, Option<Timestamp>), S::Fault> {
    let limits = limited.queue.limits;
    let mut room = u64::MAX;
    if limits.concurrency.is_some() || limits.per_worker.is_some() {
        let (running, held) = site.running()?;
        let left = |limit: Option<u32>, used| {
            limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(used))
        };
        room = left(limits.concurrency, running).min(left(limits.per_worker, held));
    }
    let mut look_at = None;
    if let Some(rate) = limits.rate {
        let granted = site.granted(Within::period(now, rate.period_ms))?;
        let left = u64::from(rate.count).saturating_sub(granted.count);
        if left == 0 {
            look_at = granted.first_at.map(|first| rate_end(first, rate.period_ms));
        }
        room = room.min(left);
    }
    Ok((usize::try_from(room).unwrap_or(usize::MAX), look_at))
}

/// When a grant leaves the period that counts.
pub(crate) fn rate_end(granted_at: Timestamp, period_ms: i64) -> Timestamp {
    Timestamp::from_millis(granted_at.as_millis().saturating_add(period_ms))
}

/// The lanes of a queue, and the room that is left in each that was looked at.
struct Lanes<'s, S: Site> {
    site: &'s mut S,
    per_lane: u64,
    free: HashMap<String, usize>,
}

impl<S: Site> Lanes<'_, S> {
    /// How many more runs of a lane may be running. Runs without a lane are not limited.
    fn free(&mut self, lane: &str) -> Result<usize, S::Fault> {
        if lane.is_empty() {
            return Ok(usize::MAX);
        }
        if let Some(free) = self.free.get(lane) {
            return Ok(*free);
        }
        let running = self.site.lane_running(lane)?;
        let free = usize::try_from(self.per_lane.saturating_sub(running)).unwrap_or(usize::MAX);
        self.free.insert(lane.to_owned(), free);
        Ok(free)
    }

    fn take(&mut self, lane: &str) {
        if let Some(free) = self.free.get_mut(lane) {
            *free = free.saturating_sub(1);
        }
    }

    /// Those of these runs whose lanes have room, in their order.
    fn fitting(&mut self, runs: Vec<S::Run>, limit: usize) -> Result<Vec<S::Run>, S::Fault> {
        let mut fitting = Vec::new();
        for run in runs {
            let lane = S::lane_of(&run).unwrap_or_default().to_owned();
            if fitting.len() < limit && self.free(&lane)? > 0 {
                self.take(&lane);
                fitting.push(run);
            }
        }
        Ok(fitting)
    }

    /// One run of each lane that has room, from the lane after `last` on and around; then a second
    /// one of each, and so on.
    fn in_turn(
        &mut self,
        last: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Choice<S::Run>, S::Fault> {
        let (open, cut_at) = self.open_after(last, limit)?;
        let mut queues: Vec<Vec<S::Run>> = vec![Vec::new(); open.len()];
        let mut runs = Vec::new();
        for round in 0.. {
            let before = runs.len();
            for (lane, found) in open.iter().zip(&mut queues) {
                if runs.len() == limit || self.free(lane)? == 0 {
                    continue;
                }
                if round == found.len() {
                    *found = self.site.lane_first(lane, limit.min(2 * round + 1))?;
                }
                if let Some(run) = found.get(round) {
                    self.take(lane);
                    runs.push(run.clone());
                }
            }
            if runs.len() == before {
                break;
            }
        }
        let look_at = cut_at.is_some().then(|| now + LANES_LOOK_PAUSE);
        Ok(Choice { runs, look_at, cut_at })
    }

    /// Lanes that have room, from the one after `last` on and around; as many as are needed to give
    /// each a run. One that gave up looking says where.
    fn open_after(
        &mut self,
        last: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), S::Fault> {
        let mut open = Vec::new();
        let mut at = last.map(str::to_owned);
        let mut around = last.is_none();
        for _ in 0..LANES_LOOK_MAX {
            let mut next = self.site.lane_after(at.as_deref())?;
            if next.is_none() && !around {
                around = true;
                next = self.site.lane_after(None)?;
            }
            let past = |lane: &String| around && last.is_some_and(|last| lane.as_str() > last);
            let Some(lane) = next.filter(|lane| !past(lane)) else {
                return Ok((open, None));
            };
            if self.free(&lane)? > 0 {
                open.push(lane.clone());
            }
            if open.len() == limit {
                return Ok((open, None));
            }
            at = Some(lane);
        }
        let cut_at = if open.is_empty() { at } else { None };
        Ok((open, cut_at))
    }
}
