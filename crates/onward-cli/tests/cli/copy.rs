//! `onward copy`: refused while somebody is at work, interruptible, and nothing is lost.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onward::RunId;
use onward::tokio_postgres::{self, NoTls};
use serde_json::Value;

use crate::place::{Ended, Place, text};

/// Enough that a copy is met halfway.
const ITEMS: usize = 20_000;

/// How long anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(30);

/// The store that is copied into.
fn large(place: &Place) -> String {
    format!("sqlite:{}", place.path("large.db").display())
}

/// A schema of a test's own on the tests' Postgres to copy into, dropped at its end.
pub(crate) struct Schema(String);

impl Schema {
    pub(crate) fn new() -> Self {
        Self(format!("test_{:032x}", RunId::new().as_u128()))
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?schema={}", postgres(), self.0)
    }
}

impl Drop for Schema {
    /// On a thread of its own: a test that ends may be panicking.
    fn drop(&mut self) {
        let sql = format!("set lock_timeout = '5s'; drop schema if exists {} cascade", self.0);
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let (client, connection) =
                    tokio_postgres::connect(&postgres(), NoTls).await.unwrap();
                tokio::spawn(connection);
                client.batch_execute(&sql).await.unwrap();
            });
        });
        let _ = dropped.join();
    }
}

/// The URL of the tests' Postgres.
fn postgres() -> String {
    std::env::var("ONWARD_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "ONWARD_TEST_POSTGRES is not set: run ./scripts/test, or scripts/postgres cargo test …"
        )
    })
}

fn copy(place: &Place, more: &[&str]) -> Ended {
    copy_into(&large(place), place, more)
}

fn copy_into(to: &str, place: &Place, more: &[&str]) -> Ended {
    place.onward(&[&["copy", "--from", &place.url(), "--to", to], more].concat())
}

/// Executes a command on the copy.
fn on_copy(place: &Place, args: &[&str]) -> Ended {
    on_store(&large(place), place, args)
}

fn on_store(store: &str, place: &Place, args: &[&str]) -> Ended {
    place.onward(&[&["--store", store], args].concat())
}

fn shown(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

#[test]
fn runs_keys_and_tags_are_in_the_copy() {
    let place = Place::new();
    let queued = place.start(&["w", "--key", "k", "--input", "1", "--tag", "tenant=acme"]);
    place.start(&["w", "--key", "k", "--input", "1"]);
    let cancelled = place.start(&["w"]);
    place.onward(&["runs", "cancel", &cancelled]);
    place.start(&["w", "--delay", "2h"]);

    let first = copy(&place, &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let lines: Vec<_> = first.stdout.lines().collect();
    assert_eq!(lines[0], "copied 3 runs, 0 existing");
    assert_eq!(lines[1], "  1 queued, 1 waiting, 1 cancelled");
    assert!(lines[2].starts_with("  0 records, 1 key, 1 suppressed start, "), "{}", lines[2]);
    assert_eq!(lines[3], "nothing lost: 3 runs compared, the same in both stores");
    assert!(first.stderr.contains("never again on the source"), "{}", first.stderr);

    for args in [
        &["runs", "list", "-o", "json"][..],
        &["runs", "show", &queued, "-o", "json"],
        &["keys", "show", "w", "k", "-o", "json"],
        &["runs", "list", "-o", "ids", "--tag", "tenant=acme"],
    ] {
        assert_eq!(on_copy(&place, args).stdout, place.onward(args).stdout, "{args:?}");
    }
    let again = copy(&place, &["-o", "json"]);
    let report = shown(&again);
    assert_eq!((&report["copied"], &report["existing"]), (&0.into(), &3.into()));
    assert_eq!((&report["verified"], &report["dry_run"]), (&true.into(), &false.into()));
    assert_eq!(report["runs"]["queued"], 1);
}

#[test]
fn a_dry_run_counts_and_creates_nothing() {
    let place = Place::new();
    place.start(&["w", "--key", "k"]);
    let dry = copy(&place, &["--dry-run"]);
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(dry.stdout.starts_with("would copy 1 run, 0 existing\n"), "{}", dry.stdout);
    assert!(!dry.stdout.contains("nothing lost"), "{}", dry.stdout);
    assert!(!place.path("large.db").exists());
    copy(&place, &[]);
    let dry = shown(&copy(&place, &["--dry-run", "-o", "json"]));
    assert_eq!((&dry["copied"], &dry["existing"]), (&0.into(), &1.into()));
    assert_eq!((&dry["verified"], &dry["dry_run"]), (&false.into(), &true.into()));
}

/// Tables in a database of the application's must not come about silently; and a password stands in many
/// a URL.
#[test]
fn a_start_says_where_it_made_the_tables_of_a_store() {
    let (place, schema) = (Place::new(), Schema::new());
    let url = schema.url().replacen("onward@", "onward:pa55-word@", 1);
    let first = on_store(&url, &place, &["start", "w"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let (_, address) =
        postgres().split_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let made =
        format!("created the tables of a store: postgres at {address}, schema {}\n", schema.0);
    assert!(first.stderr.contains(&made), "{}", first.stderr);
    assert!(!first.stderr.contains("pa55-word"), "{}", first.stderr);
    let second = on_store(&url, &place, &["start", "w"]);
    assert!(!second.stderr.contains("created"), "{}", second.stderr);
}

#[test]
fn a_dry_run_into_a_database_without_a_schema_counts_and_creates_nothing() {
    let to = format!("{}?schema=nobody_made_this_one", postgres());
    let place = Place::new();
    place.start(&["w", "--key", "k"]);
    let from = place.url();
    for _ in 0..2 {
        let dry = place.onward(&["copy", "--from", &from, "--to", &to, "--dry-run"]);
        assert_eq!(dry.code, 0, "{}", dry.stderr);
        assert!(dry.stdout.starts_with("would copy 1 run, 0 existing\n"), "{}", dry.stdout);
    }
    let looked = place.onward(&["--store", &to, "runs", "list"]);
    assert_eq!(looked.code, 4, "{}", looked.stderr);
    assert!(looked.stderr.contains("schema_missing"), "{}", looked.stderr);
}

#[test]
fn wrong_usage_is_exit_2_and_a_missing_source_is_exit_4() {
    let place = Place::new();
    let missing = copy(&place, &[]);
    assert_eq!(missing.code, 4, "{}", missing.stderr);
    assert!(missing.stderr.contains("--from"), "{}", missing.stderr);
    place.start(&["w"]);
    let url = place.url();
    for args in [
        &["copy", "--from", &url][..],
        &["copy", "--from", &url, "--to", &url],
        &["copy", "--from", &url, "--to", "sqlite:./onward.db"],
        &["copy", "--from", &url, "--to", "memory:"],
        &["copy", "--from", &url, "--to", "sqlite:large.db", "-o", "ids"],
        &["--store", &url, "copy", "--from", &url, "--to", "sqlite:large.db"],
    ] {
        let ended = place.onward(args);
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(!place.path("large.db").exists(), "{args:?}");
    }
}

#[test]
fn a_run_that_differs_and_a_key_that_is_taken_are_named() {
    let place = Place::new();
    let id = place.start(&["w", "--key", "k"]);
    copy(&place, &[]);
    place.onward(&["runs", "cancel", &id]);
    let differs = copy(&place, &[]);
    assert_eq!((differs.code, differs.stdout.as_str()), (1, ""));
    assert!(differs.stderr.contains(&format!("copy_conflict (run {id})")), "{}", differs.stderr);

    let place = Place::new();
    let here = place.start(&["w", "--key", "k"]);
    let there = on_copy(&place, &["start", "w", "--key", "k", "-o", "ids"]).stdout;
    let taken = copy(&place, &[]);
    assert_eq!(taken.code, 1);
    for part in [&here, there.trim(), "\"k\"", "\"w\""] {
        assert!(taken.stderr.contains(part), "{part} in {}", taken.stderr);
    }
}

#[test]
fn a_live_worker_is_named_and_a_killed_ones_run_is_queued_in_the_copy() {
    let place = Place::new();
    refuses_a_live_worker_and_takes_back_from_a_killed_one(&place, &large(&place));
}

#[test]
fn a_live_worker_is_named_and_a_killed_ones_run_is_queued_in_the_copy_in_postgres() {
    let schema = Schema::new();
    refuses_a_live_worker_and_takes_back_from_a_killed_one(&Place::new(), &schema.url());
}

fn refuses_a_live_worker_and_takes_back_from_a_killed_one(place: &Place, to: &str) {
    let input = r#"{"id": 1, "channel": "premium-1"}"#;
    let held = place.start(&["index-attachment", "--input", input]);
    // A service that never answers, so that the run is held for as long as the worker lives.
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut worker = start_worker(place, &service);
    let state = || shown(&place.onward(&["runs", "show", &held, "-o", "json"]))["state"].clone();
    until(|| state() == "running");

    let refused = copy_into(to, place, &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("store_served"), "{}", refused.stderr);
    assert!(refused.stderr.contains(&worker.id().to_string()), "{}", refused.stderr);
    assert!(refused.stderr.contains("serves the source, holds 1 run"), "{}", refused.stderr);
    let listed = on_store(to, place, &["runs", "list", "-o", "ids"]);
    assert_eq!((listed.code, listed.stdout.as_str()), (0, ""), "{}", listed.stderr);

    // Its lease lasts for minutes, but on this machine it is known to be dead at once.
    worker.kill().unwrap();
    worker.wait().unwrap();
    let copied = copy_into(to, place, &["-o", "json"]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    assert_eq!(shown(&copied)["taken_back"], 1);
    let run = shown(&on_store(to, place, &["runs", "show", &held, "-o", "json"]));
    assert_eq!((&run["state"], &run["attempt"]), (&"queued".into(), &1.into()));
    assert_eq!(state(), "running", "the source is not changed");
    assert_eq!(shown(&copy_into(to, place, &["-o", "json"]))["existing"], 1);
}

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let place = full();
    let to = large(&place);
    let child = begin(&to, &place);
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let ended: Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted; what was copied stays"), "{}", ended.stderr);
    finish(&to, &place);
}

#[test]
fn a_killed_copy_goes_on_where_it_was() {
    let place = full();
    goes_on_after_a_kill(&place, &large(&place));
}

#[test]
fn a_killed_copy_into_postgres_goes_on_where_it_was() {
    let schema = Schema::new();
    goes_on_after_a_kill(&full(), &schema.url());
}

fn goes_on_after_a_kill(place: &Place, to: &str) {
    let mut child = begin(to, place);
    child.kill().unwrap();
    child.wait().unwrap();
    finish(to, place);
}

#[test]
fn the_help_says_what_the_operator_must_do() {
    let help = Place::new().onward(&["copy", "--help"]).stdout;
    for part in ["stop every worker and every program", "goes on", "nothing is lost", "dead worker"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
}

/// A store with many runs.
fn full() -> Place {
    let place = Place::new();
    let file = place.items(ITEMS);
    let started = place.onward(&["start", "w", "--from", text(&file), "--key-field", "id"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    place
}

/// Begins a copy and returns when some of it is there.
fn begin(to: &str, place: &Place) -> Child {
    let mut command = place.command(&["copy", "--from", &place.url(), "--to", to]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let list = ["runs", "list", "--limit", "1", "-o", "ids"];
    until(|| !on_store(to, place, &list).stdout.is_empty());
    child
}

/// Copies again to the end: some were there, the others are new, and none is there twice.
fn finish(to: &str, place: &Place) {
    let counted = || on_store(to, place, &["runs", "list", "-o", "ids"]).stdout.lines().count();
    let before = counted();
    assert!(0 < before && before < ITEMS, "{before} of {ITEMS} when it was interrupted");
    let report = shown(&copy_into(to, place, &["-o", "json"]));
    let existing = usize::try_from(report["existing"].as_u64().unwrap()).unwrap();
    // A server may still commit the batch whose client was killed.
    assert!((before..ITEMS).contains(&existing), "{existing} existing, {before} were seen");
    assert_eq!(report["copied"], ITEMS - existing);
    assert_eq!((&report["keys"], &report["verified"]), (&ITEMS.into(), &true.into()));
    assert_eq!(counted(), ITEMS);
}

/// A worker process of the demo, with a lease that outlasts the test.
fn start_worker(place: &Place, service: &TcpListener) -> Child {
    place.demo_worker(service, Duration::from_secs(600))
}

fn until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it does not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn schedules_are_in_the_copy_and_one_that_differs_stops_it() {
    let place = Place::new();
    let put = |every: &str| {
        let put = ["schedules", "put", "hourly", "w", "--every", every, "--tag", "tenant=acme"];
        assert_eq!(place.onward(&put).code, 0);
    };
    put("1h");
    assert_eq!(place.onward(&["schedules", "trigger", "hourly"]).code, 0);
    assert_eq!(place.onward(&["schedules", "pause", "hourly"]).code, 0);
    let first = copy(&place, &[]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stdout.contains("\n  1 schedule\n"), "{}", first.stdout);
    let show = ["schedules", "list", "-o", "json"];
    assert_eq!(on_copy(&place, &show).stdout, place.onward(&show).stdout);
    let again = copy(&place, &["-o", "json"]);
    assert_eq!((shown(&again)["schedules"].as_u64(), again.code), (Some(1), 0));

    put("2h");
    let refused = copy(&place, &[]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("copy_conflict"), "{}", refused.stderr);
    assert!(refused.stderr.contains("schedule \"hourly\""), "{}", refused.stderr);
}
