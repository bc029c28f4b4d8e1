//! When a schedule comes.
//!
//! Owns: [`Times`], from a spec to moments; `cron` has those of a pattern. Never reads a clock.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::cron::ZonedCron;
use crate::clock::millis;
use crate::limits::{DURATION_MAX, SCHEDULE_EVERY_MIN};
use crate::{Code, Error, ScheduleSpec, Timestamp};

/// The moments of a schedule: whole seconds by a cron pattern, or even distances.
#[derive(Debug)]
pub(crate) enum Times {
    Cron(Box<ZonedCron>),
    Every { every_ms: i64, anchor_ms: i64 },
}

impl Times {
    /// The times of a spec.
    pub(crate) fn of(spec: &ScheduleSpec) -> Result<Self, Error> {
        match spec {
            ScheduleSpec::Cron { cron, time_zone } => {
                Ok(Times::Cron(Box::new(ZonedCron::of(cron, time_zone)?)))
            }
            ScheduleSpec::Every { every_ms, anchor } => {
                let bounds = millis(SCHEDULE_EVERY_MIN)..=millis(DURATION_MAX);
                if !bounds.contains(every_ms) {
                    let about = format!(
                        "every {every_ms} ms is not between {SCHEDULE_EVERY_MIN:?} and 100 years"
                    );
                    return Err(Error::new(Code::InvalidSchedule).about(about));
                }
                Ok(Times::Every { every_ms: *every_ms, anchor_ms: anchor.as_millis() })
            }
        }
    }

    /// The first moment after this one. None: it does not come again.
    pub(crate) fn after(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Times::Cron(cron) => timestamp(cron.after(moment(at.as_millis().div_euclid(1_000))?)?),
            Times::Every { every_ms, anchor_ms } => {
                let steps = at.as_millis().checked_sub(*anchor_ms)?.div_euclid(*every_ms);
                let next = steps.saturating_add(1).max(0).checked_mul(*every_ms)?;
                Some(Timestamp::from_millis(anchor_ms.checked_add(next)?))
            }
        }
    }

    /// The last moment before this one.
    pub(crate) fn before(&self, at: Timestamp) -> Option<Timestamp> {
        let just_before = at.as_millis().checked_sub(1)?;
        match self {
            Times::Cron(cron) => {
                let second = just_before.div_euclid(1_000).checked_add(1)?;
                timestamp(cron.before(moment(second)?)?)
            }
            Times::Every { every_ms, anchor_ms } => {
                let steps = just_before.checked_sub(*anchor_ms)?.div_euclid(*every_ms);
                let last = (steps >= 0).then_some(steps)?.checked_mul(*every_ms)?;
                Some(Timestamp::from_millis(anchor_ms.checked_add(last)?))
            }
        }
    }

    /// The moments from one on up to another, both included.
    pub(crate) fn between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = Timestamp> + '_ {
        let first = self.after(Timestamp::from_millis(from.as_millis().saturating_sub(1)));
        let all = std::iter::successors(first, |last| self.after(*last));
        all.take_while(move |at| *at <= to)
    }

    /// The latest moments, at most `most`, from one on and before another; oldest first.
    pub(crate) fn latest(&self, most: u32, from: Timestamp, before: Timestamp) -> Vec<Timestamp> {
        let all = std::iter::successors(self.before(before), |first| self.before(*first));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut latest: Vec<_> = all.take_while(|at| *at >= from).take(most).collect();
        latest.reverse();
        latest
    }
}

impl ScheduleSpec {
    /// A moment as the clocks of the schedule's zone show it, for people. Nothing where that zone is
    /// not known; even distances have none, and are shown in UTC.
    ///
    /// ```
    /// use onward::{ScheduleSpec, Timestamp};
    ///
    /// let (cron, time_zone) = ("0 3 * * *".to_owned(), "Europe/Berlin".to_owned());
    /// let nightly = ScheduleSpec::Cron { cron, time_zone };
    /// let shown = nightly.local_time(Timestamp::from_millis(1_774_746_000_000));
    /// assert_eq!(shown.as_deref(), Some("2026-03-29 03:00:00 CEST"));
    /// ```
    pub fn local_time(&self, at: Timestamp) -> Option<String> {
        let zone = match self {
            ScheduleSpec::Cron { time_zone, .. } => TimeZone::get(time_zone).ok()?,
            ScheduleSpec::Every { .. } => TimeZone::UTC,
        };
        let time = moment(at.as_millis().div_euclid(1_000))?.to_zoned(zone);
        Some(time.strftime("%Y-%m-%d %H:%M:%S %Z").to_string())
    }
}

fn moment(second: i64) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(second).ok()
}

fn timestamp(moment: jiff::Timestamp) -> Option<Timestamp> {
    Some(Timestamp::from_millis(moment.as_millisecond()))
}

/// The moment that is this much earlier.
pub(super) fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(millis(by)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    fn cron(pattern: &str, zone: &str) -> Times {
        let (cron, time_zone) = (pattern.to_owned(), zone.to_owned());
        Times::of(&ScheduleSpec::Cron { cron, time_zone }).unwrap()
    }

    fn first(times: &Times, after: &str, count: usize) -> Vec<String> {
        let all = std::iter::successors(times.after(at(after)), |last| times.after(*last));
        all.take(count).map(|at| at.to_string().replace(".000Z", "Z")).collect()
    }

    #[test]
    fn a_pattern_is_read_by_the_clocks_of_its_zone() {
        let nightly = cron("0 3 * * *", "Europe/Berlin");
        let winter = first(&nightly, "2026-01-10T12:00:00Z", 2);
        assert_eq!(winter, ["2026-01-11T02:00:00Z", "2026-01-12T02:00:00Z"]);
        assert_eq!(first(&nightly, "2026-07-10T12:00:00Z", 1), ["2026-07-11T01:00:00Z"]);
        assert_eq!(
            first(&cron("0 3 * * *", "UTC"), "2026-07-10T12:00:00Z", 1),
            ["2026-07-11T03:00:00Z"]
        );
    }

    #[test]
    fn a_pattern_of_six_fields_begins_with_seconds() {
        let times = cron("*/20 * * * * *", "UTC");
        let found = first(&times, "2026-01-10T12:00:00.500Z", 3);
        let expected = ["2026-01-10T12:00:20Z", "2026-01-10T12:00:40Z", "2026-01-10T12:01:00Z"];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_time_in_the_hour_that_is_left_out_comes_after_the_gap() {
        // In Berlin the clocks go from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
        let times = cron("30 2 * * *", "Europe/Berlin");
        let found = first(&times, "2026-03-27T12:00:00Z", 3);
        let expected = ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_time_that_repeats_is_not_moved_out_of_the_gap() {
        let times = cron("*/30 * * * *", "Europe/Berlin");
        let found = first(&times, "2026-03-29T00:00:00Z", 4);
        let expected = [
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z",
            "2026-03-29T02:00:00Z",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_time_in_the_hour_that_comes_twice_comes_once() {
        // In Berlin the clocks go from 03:00 back to 02:00 on 25 October 2026, at 01:00 UTC.
        let times = cron("30 2 * * *", "Europe/Berlin");
        let found = first(&times, "2026-10-24T12:00:00Z", 2);
        assert_eq!(found, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        assert_eq!(times.before(at("2026-10-25T12:00:00Z")), Some(at("2026-10-25T00:30:00Z")));
    }

    #[test]
    fn a_time_that_repeats_comes_in_both_hours() {
        let times = cron("*/30 * * * *", "Europe/Berlin");
        let found = first(&times, "2026-10-24T23:59:59Z", 5);
        let expected = [
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_way_back_meets_the_same_moments() {
        let zones =
            ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tehran"];
        let patterns = [
            "30 2 * * *",
            "*/30 * * * *",
            "0 0 * * 0",
            "15 1,2,3 * * *",
            "0 0 31 * *",
            "0 2 * * *",
        ];
        for (zone, pattern) in zones.iter().flat_map(|z| patterns.iter().map(move |p| (z, p))) {
            let times = cron(pattern, zone);
            let (from, to) = (at("2026-01-01T00:00:00Z"), at("2026-12-31T00:00:00Z"));
            let there: Vec<_> = times.between(from, to).collect();
            let back = times.latest(u32::MAX, from, to + Duration::from_secs(1));
            assert_eq!(there, back, "{pattern} in {zone}");
            assert!(there.windows(2).all(|pair| pair[0] < pair[1]), "{pattern} in {zone}");
        }
    }

    #[test]
    fn even_distances_are_counted_from_the_anchor() {
        let anchor = at("2026-01-01T00:10:00Z");
        let times = Times::of(&ScheduleSpec::Every { every_ms: 3_600_000, anchor }).unwrap();
        let found = first(&times, "2025-12-24T00:00:00Z", 2);
        assert_eq!(found, ["2026-01-01T00:10:00Z", "2026-01-01T01:10:00Z"]);
        assert_eq!(first(&times, "2026-01-01T01:10:00Z", 1), ["2026-01-01T02:10:00Z"]);
        assert_eq!(times.before(anchor), None);
        assert_eq!(times.before(at("2026-01-01T01:10:00.001Z")), Some(at("2026-01-01T01:10:00Z")));
        assert_eq!(times.before(at("2026-01-01T01:10:00Z")), Some(anchor));
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let cron = |cron: &str, time_zone: &str| ScheduleSpec::Cron {
            cron: cron.to_owned(),
            time_zone: time_zone.to_owned(),
        };
        let every = |every_ms| ScheduleSpec::Every { every_ms, anchor: at("2026-01-01T00:00:00Z") };
        let wrong = [
            cron("0 3 * *", "UTC"),
            cron("0 0 3 * * * 2026", "UTC"),
            cron("99 3 * * *", "UTC"),
            cron("0 3 * * *", "Europe/Atlantis"),
            every(0),
            every(-5),
            every(999),
        ];
        for spec in wrong {
            let error = Times::of(&spec).unwrap_err();
            assert_eq!(error.code(), Code::InvalidSchedule, "{spec}");
        }
    }

    #[test]
    fn a_day_that_never_comes_is_none() {
        assert_eq!(cron("0 0 30 2 *", "UTC").after(at("2026-01-01T00:00:00Z")), None);
    }
}
