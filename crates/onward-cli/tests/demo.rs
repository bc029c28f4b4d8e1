//! The demo, for real: a worker process is killed with SIGKILL halfway.

mod place;

use place::{Place, text};
use serde_json::Value;

#[test]
fn the_demo_loses_nothing_and_shows_what_to_look_at_next() {
    let place = Place::new();
    let folder = place.path("demo");
    let ended = place.onward(&["demo", "--runs", "40", "--seed", "7", "--keep", text(&folder)]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.lines().last(), Some("lost 0, recorded twice 0"));
    assert!(ended.stdout.contains("40  of 40: 36 indexed, 4 skipped"), "{}", ended.stdout);
    assert!(ended.stderr.contains("killed with SIGKILL at"), "{}", ended.stderr);
    assert!(ended.stderr.contains("ended at 40 of 40"), "{}", ended.stderr);
    assert!(ended.stderr.contains("is left in place"), "{}", ended.stderr);
    assert!(ended.stderr.contains("seed 7"), "{}", ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    assert!(!place.database().exists(), "the demo has a store of its own");

    // What it says to look at next is there.
    let url = format!("sqlite:{}/onward.db", folder.display());
    assert!(ended.stderr.contains(&url), "{}", ended.stderr);
    let show = ended.stderr.lines().find(|line| line.contains("runs show")).unwrap();
    assert!(show.contains(&format!(" --store {url} runs show ")), "{show}");
    let id = show.split(' ').next_back().unwrap();
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
