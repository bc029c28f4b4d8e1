//! `onward start --from`: idempotent, interruptible, and strict about bad lines.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::{Ended, Place, text};

const ITEMS: usize = 40_000;

#[test]
fn a_backfill_done_twice_gives_no_duplicate() {
    let place = Place::new();
    let file = place.items(1_200);
    let args = ["start", "w", "--from", text(&file), "--key-field", "id", "--tag", "import=7"];
    let first = place.onward(&args);
    assert_eq!(first.stdout, "started 1200 runs, 0 existing, 0 refused\n", "{}", first.stderr);
    assert_eq!(first.code, 0);
    let second = place.onward(&[&args[..], &["-o", "json"]].concat());
    let wanted = r#"{"started":0,"existing":1200,"refused":0,"complete":true}"#;
    assert_eq!(second.stdout.trim(), wanted);
    assert_eq!(place.runs(), 1_200);
}

#[test]
fn bad_lines_are_refused_by_number_and_the_others_are_started() {
    let place = Place::new();
    let lines =
        "{\"id\":1}\n\nnot json\n{\"name\":\"no id\"}\n{\"id\":\"b\"}\n{\"id\":1,\"x\":2}\n";
    let args = ["start", "w", "--from", "-", "--key-field", "id"];
    let ended = place.onward_with_stdin(&args, lines);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(ended.stdout, "started 2 runs, 0 existing, 3 refused\n");
    assert!(ended.stderr.contains("line 3: not JSON"), "{}", ended.stderr);
    assert!(ended.stderr.contains("line 4: it has no field \"id\""), "{}", ended.stderr);
    assert!(ended.stderr.contains("line 6: key_conflict"), "{}", ended.stderr);
    assert_eq!(place.runs(), 2);
}

#[test]
fn keys_may_be_deep_in_a_line() {
    let place = Place::new();
    let args = ["start", "w", "--from", "-", "--key-field", "file.id"];
    let ended = place.onward_with_stdin(&args, "{\"file\":{\"id\":7}}\n");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(place.onward(&["keys", "show", "w", "7"]).code, 0);
}

#[test]
fn an_interrupted_backfill_goes_on_where_it_was() {
    let place = Place::new();
    let file = place.items(ITEMS);
    let child = begin(&place, text(&file));
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let ended: Ended = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("interrupted"), "{}", ended.stderr);
    finish(&place, text(&file));
}

#[test]
fn a_killed_backfill_goes_on_where_it_was() {
    let place = Place::new();
    let file = place.items(ITEMS);
    let mut child = begin(&place, text(&file));
    child.kill().unwrap();
    child.wait().unwrap();
    finish(&place, text(&file));
}

/// Begins a backfill and returns when some of it is there.
fn begin(place: &Place, file: &str) -> Child {
    let mut command = place.command(&["start", "w", "--from", file, "--key-field", "id"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while place.onward(&["runs", "list", "--limit", "1", "-o", "ids"]).stdout.is_empty() {
        assert!(Instant::now() < deadline, "nothing was started");
    }
    child
}

/// Does it again to its end: some were there, the others are new, and none is there twice.
fn finish(place: &Place, file: &str) {
    let before = place.runs();
    assert!(0 < before && before < ITEMS, "{before} of {ITEMS} when it was interrupted");
    let ended = place.onward(&["start", "w", "--from", file, "--key-field", "id"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let new = ITEMS - before;
    assert_eq!(ended.stdout, format!("started {new} runs, {before} existing, 0 refused\n"));
    assert_eq!(place.runs(), ITEMS);
}
