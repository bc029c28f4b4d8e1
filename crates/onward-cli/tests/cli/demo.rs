//! The demo, for real: a worker process is killed with SIGKILL halfway.

use serde_json::Value;

use crate::place::server::Server;
use crate::place::{Place, text};

#[test]
fn the_demo_loses_nothing_and_shows_what_to_look_at_next() {
    let place = Place::new();
    let folder = place.path("demo");
    let ended = place.onward(&["demo", "--runs", "40", "--seed", "7", "--keep", text(&folder)]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.lines().last(), Some("lost 0, recorded twice 0"));
    assert!(!place.database().exists(), "the demo has a store of its own");

    // What it says to look at next is there.
    let url = format!("sqlite:{}/onward.db", folder.display());
    assert!(ended.stderr.contains(&url), "{}", ended.stderr);
    let dashboard = format!("{} dev --open --store {url}", env!("CARGO_BIN_EXE_onward"));
    let line = ended.stderr.lines().find(|line| line.trim() == dashboard);
    let typed: Vec<_> = line.unwrap_or_else(|| panic!("{}", ended.stderr)).split(' ').collect();
    let (args, port) = (&typed[typed.len() - 4..], ["--listen", "127.0.0.1:0"]);
    let mut server = Server::start(place.command(&[args, &port].concat()));
    let (status, runs) = server.get("/api/v1/runs?state=completed&limit=200");
    assert_eq!(status, 200, "{runs}");
    assert_eq!(runs.matches("\"index-attachment\"").count(), 40, "{runs}");
    server.child.kill().unwrap();
    let told = ended.stderr.lines().find(|line| line.contains("interrupted by the kill")).unwrap();
    let id = told.trim().split(' ').nth(1).unwrap();
    let shown = place.onward(&["--store", &url, "runs", "show", id]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("update index"), "{}", shown.stdout);
    let watched = place.onward(&["--store", &url, "runs", "watch", id]);
    assert_eq!(watched.code, 0, "{}", watched.stderr);
    assert!(watched.stdout.lines().last().unwrap().starts_with("completed"), "{}", watched.stdout);

    // A second demo does not mix with the first.
    assert_eq!(place.onward(&["demo", "--keep", text(&folder)]).code, 2);
}

#[test]
fn the_demo_counts_in_json_too() {
    let place = Place::new();
    let folder = place.path("demo");
    let ended = place.onward(&["demo", "--runs", "12", "-o", "json", "--keep", text(&folder)]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["completed"], 12);
    assert_eq!(found["skipped"], 1);
    assert_eq!(found["documents"], 11);
    assert_eq!(found["steps"], 11 * 3 + 1);
    assert_eq!(found["lost"], Value::Array(Vec::new()));
}

#[test]
fn the_demo_refuses_a_store_and_says_what_to_use() {
    let place = Place::new();
    for args in [["demo", "--store", "sqlite:mine.db"], ["--store", "sqlite:mine.db", "demo"]] {
        let ended = place.onward(&args);
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("--keep DIR"), "{}", ended.stderr);
        assert!(!place.path("mine.db").exists(), "{args:?} created a database");
    }
    assert!(!place.onward(&["demo", "--help"]).stdout.contains("--store"));
}
