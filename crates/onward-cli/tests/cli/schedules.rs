//! `onward schedules`: stored, shown, steered; and what is printed about them.

use serde_json::Value;

use crate::place::Place;

fn put(place: &Place, args: &[&str]) {
    let ended = place.onward(&[&["schedules", "put"], args].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

fn shown(place: &Place, name: &str) -> Value {
    let ended = place.onward(&["schedules", "show", name, "-o", "json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn a_schedule_is_stored_as_it_was_typed() {
    let place = Place::new();
    let nightly = ["nightly", "report", "--cron", "0 3 * * *", "--time-zone", "Europe/Berlin"];
    let more = ["--input", "{\"topic\": 1}", "--overlap", "buffer_one", "--catch-up", "all:7"];
    let rest = ["--queue", "bulk", "--priority", "-3", "--timeout", "1h", "--tag", "tenant=acme"];
    put(&place, &[&nightly[..], &more, &rest].concat());
    let schedule = shown(&place, "nightly");
    assert_eq!(schedule["spec"]["cron"]["cron"], "0 3 * * *");
    assert_eq!(schedule["spec"]["cron"]["time_zone"], "Europe/Berlin");
    assert_eq!((&schedule["workflow"], &schedule["queue"]), (&"report".into(), &"bulk".into()));
    assert_eq!((&schedule["input"]["topic"], &schedule["priority"]), (&1.into(), &(-3).into()));
    assert_eq!(schedule["overlap"], "buffer_one");
    assert_eq!(schedule["catch_up"]["all"]["max"], 7);
    assert_eq!((&schedule["timeout_ms"], &schedule["generation"]), (&3_600_000.into(), &1.into()));
    assert_eq!(schedule["tags"]["tenant"], "acme");
    assert_eq!(schedule["next"].as_array().unwrap().len(), 5);
    assert_eq!(schedule["next"][0], schedule["next_at"]);

    put(&place, &["nightly", "report", "--every", "2h"]);
    let changed = shown(&place, "nightly");
    assert_eq!(
        (&changed["generation"], &changed["spec"]["every"]["every_ms"]),
        (&2.into(), &7_200_000.into())
    );
}

#[test]
fn schedules_are_printed_as_table_json_and_names() {
    let place = Place::new();
    put(&place, &["b", "w", "--every", "15m"]);
    put(&place, &["a", "w", "--cron", "0 3 * * *"]);
    let table = place.onward(&["schedules", "list"]).stdout;
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("NAME "), "{table}");
    assert!(lines[1].starts_with("a ") && lines[1].contains("0 3 * * * (UTC)"), "{table}");
    assert!(lines[2].starts_with("b ") && lines[2].contains("every 15m"), "{table}");
    assert_eq!(place.onward(&["schedules", "list", "-o", "ids"]).stdout, "a\nb\n");
    let json = place.onward(&["schedules", "list", "-o", "json"]).stdout;
    let names: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"a".into(), &"b".into()));
    let shown = place.onward(&["schedules", "show", "a"]).stdout;
    for part in ["schedule", "0 3 * * * (UTC)", "overlap", "skip", "catch-up", "one", "next"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

#[test]
fn next_times_follow_each_other() {
    let place = Place::new();
    put(&place, &["hourly", "w", "--every", "1h"]);
    let next = place.onward(&["schedules", "next", "hourly", "--count", "3", "-o", "json"]);
    let at = |line: &str| serde_json::from_str::<Value>(line).unwrap()["at"].as_i64().unwrap();
    let times: Vec<_> = next.stdout.lines().map(at).collect();
    assert_eq!(times.len(), 3);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 3_600_000), "{times:?}");
    assert_eq!(place.onward(&["schedules", "next", "hourly"]).stdout.lines().count(), 5);
    put(&place, &["nightly", "w", "--cron", "0 3 * * *", "--time-zone", "Europe/Berlin"]);
    let local = place.onward(&["schedules", "next", "nightly"]).stdout;
    assert!(local.lines().all(|line| line.contains(" 03:00:00 CE")), "{local}");
}

#[test]
fn a_paused_schedule_says_so_until_it_is_resumed() {
    let place = Place::new();
    put(&place, &["hourly", "w", "--every", "1h"]);
    let paused = place.onward(&["schedules", "pause", "hourly"]);
    assert!(paused.stdout.contains("paused"), "{}", paused.stdout);
    assert!(shown(&place, "hourly")["paused_at"].is_number());
    let next = place.onward(&["schedules", "next", "hourly"]);
    assert!(next.stderr.contains("it is paused"), "{}", next.stderr);
    put(&place, &["hourly", "w", "--every", "1h", "--priority", "5"]);
    assert!(shown(&place, "hourly")["paused_at"].is_number(), "a put does not end a pause");
    assert_eq!(place.onward(&["schedules", "resume", "hourly"]).code, 0);
    assert!(shown(&place, "hourly")["paused_at"].is_null());
}

#[test]
fn a_trigger_starts_one_run_and_says_why_not_another() {
    let place = Place::new();
    put(&place, &["hourly", "w", "--every", "1h"]);
    let first = place.onward(&["schedules", "trigger", "hourly", "-o", "ids"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let second = place.onward(&["schedules", "trigger", "hourly"]);
    assert_eq!((second.code, second.stdout.as_str()), (1, ""));
    let why = format!("skipped: run {} has not ended", first.stdout.trim());
    assert!(second.stderr.contains(&why), "{}", second.stderr);
    let listed = place.onward(&["runs", "list", "--tag", "schedule=hourly", "-o", "ids"]);
    assert_eq!(listed.stdout, first.stdout);
}

#[test]
fn a_backfill_can_be_done_again() {
    let place = Place::new();
    put(&place, &["hourly", "w", "--every", "1h"]);
    let range = ["--from", "2026-01-01T00:00:00Z", "--before", "2026-01-02T00:00:00Z"];
    let backfill = [&["schedules", "backfill", "hourly"], &range[..]].concat();
    let first = place.onward(&backfill);
    assert_eq!((first.code, first.stdout.as_str()), (0, "started 24 runs, 0 existing\n"));
    let again = place.onward(&[&backfill[..], &["-o", "json"]].concat());
    let counts: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!((&counts["started"], &counts["existing"]), (&0.into(), &24.into()));
    assert_eq!(place.runs(), 24);
    let future = ["schedules", "backfill", "hourly", "--from", "2026-01-01T00:00:00Z"];
    let refused = place.onward(&[&future[..], &["--before", "2999-01-01T00:00:00Z"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.stderr);
}

#[test]
fn a_removed_schedule_is_gone_and_its_runs_stay() {
    let place = Place::new();
    put(&place, &["hourly", "w", "--every", "1h"]);
    place.onward(&["schedules", "trigger", "hourly"]);
    let removed = place.onward(&["schedules", "remove", "hourly"]);
    assert_eq!((removed.code, removed.stdout.as_str()), (0, "removed hourly\n"));
    assert_eq!(place.onward(&["schedules", "show", "hourly"]).code, 3);
    assert_eq!(place.onward(&["schedules", "remove", "hourly"]).code, 3);
    assert_eq!(place.runs(), 1);
}
