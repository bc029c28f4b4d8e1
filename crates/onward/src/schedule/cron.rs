//! The moments of a cron pattern in a time zone.
//!
//! Owns: what happens where the clocks of a zone leave out an hour or show it twice. The pattern
//! itself is matched against dates and times without a zone, by a library. Never reads a clock.
//!
//! A pattern that names its times comes once for each of them: at the end of the gap if the clocks
//! leave it out, the first time if they show it twice. A pattern that repeats comes whenever the
//! clocks show one of its times.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp as Moment};

use crate::{Code, Error};

/// Changes of the clocks that a search goes past: five hundred years of them, longer than any day
/// takes to come again.
const CHANGES_MAX: u32 = 1_000;

/// A pattern that is read by the clocks of a zone.
#[derive(Debug)]
pub(crate) struct ZonedCron {
    cron: Cron,
    zone: TimeZone,
    /// Whether it has a wildcard or a step in its hours, minutes or seconds.
    repeats: bool,
}

impl ZonedCron {
    pub(super) fn of(pattern: &str, zone: &str) -> Result<Self, Error> {
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron =
            parser.parse(pattern).map_err(|source| wrong(format!("cron {pattern:?}"), source))?;
        let zone = TimeZone::get(zone).map_err(|source| wrong(format!("zone {zone:?}"), source))?;
        Ok(Self { cron, zone, repeats: repeats(pattern) })
    }

    /// The first moment after this one, which is at a whole second.
    pub(super) fn after(&self, at: Moment) -> Option<Moment> {
        if self.repeats { self.repeated_after(at) } else { self.named_after(at) }
    }

    /// The last moment before this one, which is at a whole second.
    pub(super) fn before(&self, at: Moment) -> Option<Moment> {
        if self.repeats { self.repeated_before(at) } else { self.named_before(at) }
    }

    fn named_after(&self, at: Moment) -> Option<Moment> {
        let mut time = self.zone.to_datetime(at);
        loop {
            time = self.cron.find_next_occurrence(&time, false).ok()?;
            // In an hour that comes again, later times may have come before.
            let moment = self.named(time)?;
            if moment > at {
                return Some(moment);
            }
        }
    }

    fn named_before(&self, at: Moment) -> Option<Moment> {
        // For the same reason, times that are later by the clocks: no zone goes back by more.
        let mut time =
            self.zone.to_datetime(at).checked_add(SignedDuration::from_hours(24)).ok()?;
        loop {
            time = self.cron.find_previous_occurrence(&time, false).ok()?;
            let moment = self.named(time)?;
            if moment < at {
                return Some(moment);
            }
        }
    }

    /// The moment for which a time of the clocks stands.
    fn named(&self, time: DateTime) -> Option<Moment> {
        let ambiguous = self.zone.to_ambiguous_timestamp(time);
        match ambiguous.offset() {
            AmbiguousOffset::Gap { before, .. } => self.change_by(before.to_timestamp(time).ok()?),
            _ => ambiguous.earlier().ok(),
        }
    }

    /// The last change of the clocks up to this moment.
    fn change_by(&self, at: Moment) -> Option<Moment> {
        let just_after = at.checked_add(SignedDuration::from_nanos(1)).ok()?;
        Some(self.zone.preceding(just_after).next()?.timestamp())
    }

    fn repeated_after(&self, at: Moment) -> Option<Moment> {
        let (mut from, mut inclusive) = (at, false);
        for _ in 0..CHANGES_MAX {
            // Up to the next change the clocks go evenly.
            let offset = self.zone.to_offset(from);
            let time = offset.to_datetime(from);
            let time = self.cron.find_next_occurrence(&time, inclusive).ok()?;
            let moment = offset.to_timestamp(time).ok()?;
            match self.zone.following(from).next().map(|change| change.timestamp()) {
                Some(change) if moment >= change => (from, inclusive) = (change, true),
                _ => return Some(moment),
            }
        }
        None
    }

    fn repeated_before(&self, at: Moment) -> Option<Moment> {
        let mut to = at;
        for _ in 0..CHANGES_MAX {
            let last = to.checked_sub(SignedDuration::from_secs(1)).ok()?;
            let offset = self.zone.to_offset(last);
            let time = self.cron.find_previous_occurrence(&offset.to_datetime(to), false).ok()?;
            let moment = offset.to_timestamp(time).ok()?;
            match self.change_by(last) {
                Some(change) if moment < change => to = change,
                _ => return Some(moment),
            }
        }
        None
    }
}

/// Whether a pattern has a wildcard or a step in a field that says when within the day.
fn repeats(pattern: &str) -> bool {
    let fields: Vec<_> = pattern.split_whitespace().collect();
    if let [name] = fields[..] {
        return name.eq_ignore_ascii_case("@hourly");
    }
    let within_day = &fields[..fields.len().saturating_sub(3)];
    within_day.iter().any(|field| field.contains(['*', '/', '?']))
}

fn wrong(what: String, source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Code::InvalidSchedule).about(what).because(source)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ZONES: [&str; 7] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "America/Havana",
        "Asia/Beirut",
    ];

    fn at(text: &str) -> Moment {
        text.parse().unwrap()
    }

    fn first(pattern: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let cron = ZonedCron::of(pattern, zone).unwrap();
        let all = std::iter::successors(cron.after(at(after)), |last| cron.after(*last));
        all.take(count).map(|at| at.to_string()).collect()
    }

    #[test]
    fn a_gap_at_midnight_moves_nothing_but_what_is_in_it() {
        // In Cairo the clocks go from 00:00 to 01:00 on 27 April 2029, at 22:00 UTC the day before.
        let found = first("0 2 * * *", "Africa/Cairo", "2029-04-26T00:00:00Z", 2);
        assert_eq!(found, ["2029-04-26T23:00:00Z", "2029-04-27T23:00:00Z"]);
        let found = first("30 0 * * *", "Africa/Cairo", "2029-04-26T00:00:00Z", 2);
        assert_eq!(found, ["2029-04-26T22:00:00Z", "2029-04-27T21:30:00Z"]);
    }

    #[test]
    fn several_named_times_in_one_gap_come_once() {
        let found = first("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 3);
        let expected = ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z"];
        assert_eq!(found, expected);
    }

    #[test]
    fn several_named_times_in_a_doubled_hour_come_once_each() {
        let found = first("0,30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3);
        let expected = ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"];
        assert_eq!(found, expected);
        let cron = ZonedCron::of("0,30 2 * * *", "Europe/Berlin").unwrap();
        // Within the second of the two hours.
        let back = cron.before(at("2026-10-25T01:10:00Z")).unwrap();
        assert_eq!(back, at("2026-10-25T00:30:00Z"));
    }

    #[test]
    fn a_pattern_repeats_by_its_fields_within_the_day() {
        for named in ["0 3 * * *", "0,30 2-4 * * 1", "15 0 3 * * *", "@daily"] {
            assert!(!repeats(named), "{named}");
        }
        for repeated in ["* 3 * * *", "0 */2 * * *", "*/5 0 3 * * *", "@hourly", "0 ? * * *"] {
            assert!(repeats(repeated), "{repeated}");
        }
    }

    /// A field of a pattern, within these bounds.
    fn field(least: u32, most: u32) -> impl Strategy<Value = String> {
        let number = move || least..=most;
        prop_oneof![
            Just("*".to_owned()),
            (1..=most).prop_map(|step| format!("*/{step}")),
            number().prop_map(|only| only.to_string()),
            (number(), number()).prop_map(|(a, b)| format!("{a},{b}")),
            (number(), number()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        ]
    }

    /// A full minute within a day or so of a change of the clocks, or any.
    fn near_a_change(zone: &str, start: i64, hours: i64) -> Moment {
        let zone = TimeZone::get(zone).unwrap();
        let start = Moment::from_second(start * 60).unwrap();
        let change = zone.following(start).next().map(|change| change.timestamp());
        let near = change.unwrap_or(start) - SignedDuration::from_hours(hours);
        Moment::from_second(near.as_second().div_euclid(60) * 60).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 500, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn moments_go_forward_and_the_way_back_meets_the_same(
            (minute, hour, weekday) in (field(0, 59), field(0, 23), field(0, 6)),
            zone in prop::sample::select(ZONES.to_vec()),
            start in 26_297_280_i64..36_816_480,
            hours in 0_i64..30,
        ) {
            let cron = ZonedCron::of(&format!("{minute} {hour} * * {weekday}"), zone).unwrap();
            let mut last = near_a_change(zone, start, hours);
            let mut there = Vec::new();
            for _ in 0..30 {
                let next = cron.after(last).unwrap();
                prop_assert!(next > last);
                there.push(next);
                last = next;
            }
            let mut back = vec![last];
            while back.len() < there.len() {
                back.push(cron.before(back[back.len() - 1]).unwrap());
            }
            back.reverse();
            prop_assert_eq!(there, back);
        }

        #[test]
        fn every_minute_is_one_of_them_or_not(
            (minute, hour) in (field(0, 59), field(0, 23)),
            zone in prop::sample::select(ZONES.to_vec()),
            start in 26_297_280_i64..36_816_480,
            hours in 0_i64..30,
        ) {
            let cron = ZonedCron::of(&format!("{minute} {hour} * * *"), zone).unwrap();
            let from = near_a_change(zone, start, hours);
            let minutes = || (1..=2 * 24 * 60).map(|n| from + SignedDuration::from_mins(n));
            let to = from + SignedDuration::from_hours(48);
            let shown = |at: &Moment| {
                cron.cron.is_time_matching(&cron.zone.to_datetime(*at)).unwrap()
            };
            let all = std::iter::successors(cron.after(from), |last| cron.after(*last));
            let found: Vec<_> = all.take_while(|at| *at <= to).collect();
            let matching: Vec<_> = minutes().filter(shown).collect();
            if cron.repeats {
                let (there, shown) = (found.len(), matching.len());
                prop_assert!(found == matching, "{there} moments, {shown} minutes are shown");
            } else {
                // Each is shown by the clocks, or stands for what they left out.
                let end_of_gap = |at: &Moment| cron.change_by(*at) == Some(*at);
                prop_assert!(found.iter().all(|at| shown(at) || end_of_gap(at)));
                // Whatever they show came, at that moment or when they showed it first.
                let came = |at: &Moment| {
                    let named = cron.named(cron.zone.to_datetime(*at)).unwrap();
                    named <= from || found.contains(&named)
                };
                prop_assert!(matching.iter().all(came));
            }
        }
    }
}
