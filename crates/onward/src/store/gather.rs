//! Starts with one key that come soon after one another, and become one run.
//!
//! Owns: [`Gather`], and what a debounced or throttled start does when its key is in use; as pure
//! functions, so that every store decides alike. Never reads a store.
//!
//! A start that met a run is noted with its own id, for as long as it may be made again. One that is
//! made again is answered from that note before anybody looks at the key: meanwhile the run may have
//! begun, and a later start may have made another, whose input must not be taken for an older one. A note
//! is worth nothing once its run is gone.

use super::rules::{self, KeyMet};
use super::{NewRun, StartAt, Started, StartedHow};
use crate::clock::millis;
use crate::limits::GATHERED_KEPT;
use crate::{Run, RunId, RunState, Timestamp, Waits};

/// How starts with one key that come soon after one another become one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// The last input wins: while the run has not begun, each further start gives it its input and
    /// puts its begin off. Once it has begun, the next start makes a new run.
    Debounce {
        /// How long after the latest start the run begins.
        ms: i64,
        /// How long after the first start it begins at the latest.
        max_ms: Option<i64>,
    },
    /// The first input wins: for so long after a start, another gives the same run, whatever its
    /// input. After that the next start makes a new run.
    Throttle {
        /// How long.
        ms: i64,
    },
}

impl Gather {
    /// What a start that is gathered so, and is made for the first time, does when `run` has its key.
    pub(crate) fn met(self, run: &Run, now: Timestamp) -> KeyMet {
        // What goes on with another's work has begun, whoever executes it when: its input is not a
        // start's any more.
        let goes_on = run.continued_from.is_some() || run.forked_from.is_some();
        let begun = goes_on || run.attempt > 0 || run.state.is_final();
        match self {
            Gather::Debounce { .. } if begun => KeyMet::Fresh,
            Gather::Debounce { .. } => KeyMet::Later,
            Gather::Throttle { ms } if is_within(now, run.created_at, ms) => KeyMet::Existing,
            Gather::Throttle { .. } => KeyMet::Fresh,
        }
    }
}

/// What a gathered start that is made again is told: the run that it met, whoever has the key since.
pub(crate) fn met_before(run: RunId, created_at: Timestamp) -> Started {
    Started { run, how: StartedHow::Existing, at: created_at }
}

/// The time up to which notes about gathered starts are too old to be asked for.
pub(crate) fn over(now: Timestamp) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_sub(millis(GATHERED_KEPT)))
}

/// What a new run waits for until its time, if it waits for one.
pub(super) fn waits_at_start(new: &NewRun, waits: Waits) -> Waits {
    match new.key.as_ref().and_then(|key| key.gather) {
        Some(Gather::Debounce { .. }) => Waits::Debounce,
        _ => waits,
    }
}

/// Gives a run that has not begun the input of another start with its key, and puts its begin off:
/// from now on, but not past the longest time after it was first started. A run that waits behind
/// another keeps its place.
pub(crate) fn put_off(run: &mut Run, new: &NewRun, now: Timestamp) {
    run.input = new.input.clone();
    let Some(Gather::Debounce { ms, max_ms }) = new.key.as_ref().and_then(|key| key.gather) else {
        return;
    };
    if matches!(run.waits_for, Some(Waits::Behind { .. })) {
        return;
    }
    let later = after(now, ms);
    let start = match max_ms {
        Some(max) if is_within(now, run.created_at, max) => after(run.created_at, max).min(later),
        Some(_) => now,
        None => later,
    };
    run.deadline_at = rules::deadline(start.max(now), new.timeout_ms);
    if start > now {
        run.state = RunState::Waiting;
        run.waits_for = Some(Waits::Debounce);
        run.due_at = Some(start);
        run.notes.start_at = Some(start);
    } else if run.state == RunState::Waiting {
        rules::queue(run, now);
        run.notes.start_at = Some(now);
    }
}

/// When a debounced start lets its run begin, if it makes a new one.
pub(crate) fn first_start(ms: i64, max_ms: Option<i64>) -> StartAt {
    StartAt::After(max_ms.map_or(ms, |max| max.min(ms)))
}

/// Whether a time that lasts so long from `begin` on is not over. One that begins further ahead than it
/// lasts was begun before the clock was set back, and would last for as long.
fn is_within(now: Timestamp, begin: Timestamp, ms: i64) -> bool {
    now < after(begin, ms) && begin <= after(now, ms)
}

fn after(time: Timestamp, ms: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis().saturating_add(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewKey;
    use crate::{Json, OnConflict};
    use std::collections::BTreeMap;

    const AT: fn(i64) -> Timestamp = Timestamp::from_millis;

    fn run() -> Run {
        Run::fresh(RunId::new(), "index".to_owned(), Json::stored("1"), AT(1_000))
    }

    fn start(gather: Gather) -> NewRun {
        let input = Json::stored("2");
        NewRun {
            id: RunId::new(),
            workflow: "index".to_owned(),
            queue: "default".to_owned(),
            lane: None,
            priority: 0,
            key: Some(NewKey {
                key: "k".to_owned(),
                fingerprint: input.fingerprint(),
                ttl_ms: None,
                on_conflict: OnConflict::Existing,
                gather: Some(gather),
            }),
            input,
            start_at: StartAt::Now,
            timeout_ms: None,
            tags: BTreeMap::new(),
            caller: String::new(),
            parent: None,
            claimant: None,
        }
    }

    #[test]
    fn a_debounced_run_is_put_off_until_it_has_begun() {
        let debounce = Gather::Debounce { ms: 500, max_ms: None };
        let mut run = run();
        assert_eq!(debounce.met(&run, AT(1_100)), KeyMet::Later);
        put_off(&mut run, &start(debounce), AT(1_100));
        assert_eq!((run.due_at, run.input.as_str()), (Some(AT(1_600)), "2"));
        assert_eq!(run.notes.start_at, run.due_at);
        assert_eq!(run.waits_for, Some(Waits::Debounce));
        run.attempt = 1;
        assert_eq!(debounce.met(&run, AT(1_100)), KeyMet::Fresh);
    }

    #[test]
    fn a_debounced_run_is_not_put_off_past_its_longest_time() {
        let debounce = Gather::Debounce { ms: 500, max_ms: Some(800) };
        let mut run = run();
        put_off(&mut run, &start(debounce), AT(1_400));
        assert_eq!((run.state, run.due_at), (RunState::Waiting, Some(AT(1_800))));
        put_off(&mut run, &start(debounce), AT(1_900));
        assert_eq!((run.state, run.due_at, run.wakes), (RunState::Queued, Some(AT(1_900)), 1));
        put_off(&mut run, &start(debounce), AT(2_000));
        assert_eq!((run.due_at, run.wakes), (Some(AT(1_900)), 1), "it keeps its place");
        assert_eq!(run.notes.start_at, run.due_at);
    }

    #[test]
    fn a_time_that_is_further_ahead_than_it_lasts_is_over() {
        let throttle = Gather::Throttle { ms: 500 };
        assert_eq!(throttle.met(&run(), AT(500)), KeyMet::Existing);
        assert_eq!(throttle.met(&run(), AT(499)), KeyMet::Fresh);
        let debounce = Gather::Debounce { ms: 500, max_ms: Some(800) };
        for (now, begins) in [(200, 700), (199, 199)] {
            let mut run = run();
            run.state = RunState::Waiting;
            put_off(&mut run, &start(debounce), AT(now));
            assert_eq!(run.due_at, Some(AT(begins)));
        }
    }

    #[test]
    fn a_throttled_start_meets_the_run_until_its_time_is_over() {
        let throttle = Gather::Throttle { ms: 500 };
        assert_eq!(throttle.met(&run(), AT(1_499)), KeyMet::Existing);
        assert_eq!(throttle.met(&run(), AT(1_500)), KeyMet::Fresh);
    }
}
