//! What is due of a schedule, and what is left for later.
//!
//! Owns: which times a run is started for, by the catch-up policy, as a pure function. Never reads a
//! store or a clock.

use super::Times;
use super::times::earlier;
use crate::limits::{COMMIT_BYTES_MAX, SCHEDULE_FIRE_MAX, SCHEDULE_GRACE};
use crate::{CatchUp, Schedule, Timestamp};

/// What to do about a schedule at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The times to start runs for, in order.
    pub(super) fire: Vec<Timestamp>,
    /// The next time after them.
    pub(super) next_at: Option<Timestamp>,
}

/// What to do about a schedule whose next time has come.
///
/// A time that came within the grace is on time, and is fired whatever the policy. Older ones were
/// missed. `One` fires none of them beside one that is on time: that is the one run for all.
pub(super) fn plan(schedule: &Schedule, times: &Times, seen_at: Timestamp, now: Timestamp) -> Plan {
    let late_before = earlier(now, SCHEDULE_GRACE);
    let on_time: Vec<_> = times.between(seen_at.max(late_before), now).collect();
    let mut fire = match schedule.catch_up {
        CatchUp::Skip => Vec::new(),
        CatchUp::One if !on_time.is_empty() => Vec::new(),
        CatchUp::One => times.latest(1, seen_at, late_before),
        CatchUp::All { max } => times.latest(max, seen_at, late_before),
    };
    fire.extend(on_time);
    let most = most_at_once(schedule);
    if fire.len() > most {
        let rest = fire.split_off(most);
        return Plan { fire, next_at: rest.first().copied() };
    }
    Plan { fire, next_at: times.after(now) }
}

/// How many runs are started in one transaction: large inputs add up.
fn most_at_once(schedule: &Schedule) -> usize {
    (COMMIT_BYTES_MAX / schedule.input.as_str().len().max(1)).clamp(1, SCHEDULE_FIRE_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Json, Overlap, ScheduleSpec};

    /// A minute.
    const EVERY: i64 = 60_000;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(minute * EVERY)
    }

    fn schedule(catch_up: CatchUp) -> (Schedule, Times) {
        let spec = ScheduleSpec::Every { every_ms: EVERY, anchor: at(0) };
        let times = Times::of(&spec).unwrap();
        let schedule = Schedule {
            name: "nightly".to_owned(),
            spec,
            workflow: "report".to_owned(),
            input: Json::stored("1"),
            queue: "default".to_owned(),
            lane: None,
            priority: 0,
            timeout_ms: None,
            tags: BTreeMap::new(),
            overlap: Overlap::Skip,
            catch_up,
            generation: 1,
            created_at: at(0),
            changed_at: at(0),
            paused_at: None,
            next_at: None,
            latest: None,
        };
        (schedule, times)
    }

    fn planned(catch_up: CatchUp, seen: Timestamp, now: Timestamp) -> (Vec<i64>, Option<i64>) {
        let (schedule, times) = schedule(catch_up);
        let plan = plan(&schedule, &times, seen, now);
        let minute = |at: Timestamp| at.as_millis() / EVERY;
        (plan.fire.into_iter().map(minute).collect(), plan.next_at.map(minute))
    }

    const ALL: [CatchUp; 3] = [CatchUp::Skip, CatchUp::One, CatchUp::All { max: 3 }];

    #[test]
    fn what_is_on_time_is_fired_whatever_the_policy() {
        for catch_up in ALL {
            assert_eq!(planned(catch_up, at(7), at(7)), (vec![7], Some(8)));
            assert_eq!(planned(catch_up, at(7), at(7) + SCHEDULE_GRACE), (vec![7], Some(8)));
        }
    }

    #[test]
    fn what_was_missed_is_fired_by_the_policy() {
        // Times 1 to 9 were missed, and no other is on time.
        let now = at(9) + SCHEDULE_GRACE * 2;
        assert_eq!(planned(CatchUp::Skip, at(1), now), (vec![], Some(10)));
        assert_eq!(planned(CatchUp::One, at(1), now), (vec![9], Some(10)));
        assert_eq!(planned(CatchUp::All { max: 3 }, at(1), now), (vec![7, 8, 9], Some(10)));
        let few = planned(CatchUp::All { max: 30 }, at(7), now);
        assert_eq!(few, (vec![7, 8, 9], Some(10)), "nothing before the next time");
    }

    #[test]
    fn one_run_that_is_on_time_is_the_one_for_all() {
        assert_eq!(planned(CatchUp::Skip, at(1), at(10)), (vec![10], Some(11)));
        assert_eq!(planned(CatchUp::One, at(1), at(10)), (vec![10], Some(11)));
        let all = planned(CatchUp::All { max: 3 }, at(1), at(10));
        assert_eq!(all, (vec![7, 8, 9, 10], Some(11)));
    }

    #[test]
    fn many_are_fired_in_parts_and_none_is_left_out() {
        let max = 250;
        let now = at(1_000) + SCHEDULE_GRACE * 2;
        let (mut seen, mut fired) = (at(1), Vec::new());
        loop {
            let (part, next) = planned(CatchUp::All { max }, seen, now);
            assert!(part.len() <= SCHEDULE_FIRE_MAX);
            fired.extend(part);
            seen = at(next.unwrap());
            if seen > now {
                break;
            }
        }
        assert_eq!(fired, (751..=1_000).collect::<Vec<_>>());
    }

    #[test]
    fn large_inputs_are_started_one_by_one() {
        let (mut schedule, times) = schedule(CatchUp::All { max: 9 });
        schedule.input = Json::stored("x".repeat(COMMIT_BYTES_MAX));
        let plan = plan(&schedule, &times, at(1), at(5));
        assert_eq!((plan.fire, plan.next_at), (vec![at(1)], Some(at(2))));
    }
}
