//! `onward queues`: limits and pauses, set and shown; and what is said about a run that they hold back.

use serde_json::Value;

use crate::place::Place;

fn done(place: &Place, args: &[&str]) -> String {
    let ended = place.onward(args);
    assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
    ended.stdout
}

fn shown(place: &Place, name: &str) -> Value {
    serde_json::from_str(&done(place, &["queues", "show", name, "-o", "json"])).unwrap()
}

#[test]
fn limits_are_set_as_they_were_typed() {
    let place = Place::new();
    let limits = ["--concurrency", "8", "--per-worker", "2", "--rate", "10/1s", "--per-lane", "1"];
    let said = done(&place, &[&["queues", "set", "ocr"], &limits[..]].concat());
    assert_eq!(said, "ocr: 8 at once, 2 per worker, 10 per 1s, 1 per lane, open\n");
    let queue = shown(&place, "ocr");
    assert_eq!(
        (&queue["limits"]["concurrency"], &queue["limits"]["per_lane"]),
        (&8.into(), &1.into())
    );
    assert_eq!(queue["limits"]["rate"]["period_ms"], 1_000);

    done(&place, &["queues", "set", "ocr", "--concurrency", "3"]);
    assert_eq!(shown(&place, "ocr")["limits"]["rate"], Value::Null, "it says all limits");
    assert_eq!(done(&place, &["queues", "clear", "ocr"]), "cleared ocr\n");
    assert_eq!(done(&place, &["queues", "clear", "ocr"]), "ocr had no limits\n");
}

#[test]
fn queues_are_printed_as_table_json_and_names() {
    let place = Place::new();
    done(&place, &["start", "scan", "--queue", "ocr", "--lane", "acme"]);
    done(&place, &["queues", "set", "mail", "--rate", "100/1m"]);
    let table = done(&place, &["queues", "list"]);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("NAME "), "{table}");
    assert!(lines[1].starts_with("mail ") && lines[1].contains("100 per 1m"), "{table}");
    assert!(lines[2].starts_with("ocr ") && lines[2].contains("no limits"), "{table}");
    assert_eq!(done(&place, &["queues", "list", "-o", "ids"]), "mail\nocr\n");
    let json = done(&place, &["queues", "list", "-o", "json"]);
    let ocr: Value = serde_json::from_str(json.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&ocr["name"], &ocr["queued"]), (&"ocr".into(), &1.into()));
}

#[test]
fn a_paused_queue_says_so() {
    let place = Place::new();
    done(&place, &["start", "scan", "--queue", "ocr"]);
    let said = done(&place, &["queues", "pause", "ocr"]);
    assert!(said.starts_with("ocr: no limits, paused "), "{said}");
    assert!(shown(&place, "ocr")["paused_at"].is_i64());
    let id = done(&place, &["runs", "list", "-o", "ids"]);
    let run = done(&place, &["runs", "show", id.trim()]);
    assert!(run.contains("Its queue \"ocr\" is paused, since "), "{run}");
    assert_eq!(done(&place, &["queues", "resume", "ocr"]), "ocr: no limits, open\n");
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let place = Place::new();
    for (args, code) in [
        (&["queues", "set", "ocr"][..], 2),
        (&["queues", "set", "ocr", "--rate", "often"], 2),
        (&["queues", "set", "ocr", "--concurrency", "0"], 2),
        (&["start", "scan", "--debounce", "5s"], 2),
        (&["start", "scan", "--from", "f.jsonl", "--key-field", "id", "--debounce", "5s"], 2),
        (&["start", "scan", "--from", "f.jsonl", "--key-field", "id", "--throttle", "5s"], 2),
    ] {
        let ended = place.onward(args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn starts_are_debounced_and_throttled_by_key() {
    let place = Place::new();
    let start = |input: &str, how: &[&str]| {
        let args = ["start", "scan", "--key", "page-7", "--input", input, "-o", "ids"];
        done(&place, &[&args[..], how].concat()).trim().to_owned()
    };
    let first = start("1", &["--debounce", "1h"]);
    assert_eq!(start("2", &["--debounce", "1h"]), first);
    let run = done(&place, &["runs", "show", &first, "-o", "json"]);
    let run: Value = serde_json::from_str(&run).unwrap();
    assert_eq!((&run["input"], &run["duplicates"]), (&2.into(), &1.into()));
    assert!(run["why"]["what"].as_str().unwrap().contains("debounced"), "{}", run["why"]);
    assert_eq!(start("3", &["--throttle", "1h"]), first);
}
