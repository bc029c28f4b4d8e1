//! The commands over a server: the same words, the same answers as of its store.

use std::io::{Read, Write};

use onward::{Ctx, Failure, Onward, RunState, Workflow};
use serde_json::Value;

use crate::place::server::{SOON, Server};
use crate::place::{Ended, Place, text};

const DOUBLE: Workflow<u64, u64> = Workflow::named("double");

/// A store with a server over it.
struct Both {
    place: Place,
    server: Server,
}

impl Both {
    fn new() -> Self {
        let place = Place::new();
        place.start(&["double", "--input", "1", "--key", "first", "--tag", "tenant=acme"]);
        let server = Server::of(&place);
        Self { place, server }
    }

    /// Executes the program over the server.
    fn over(&self, args: &[&str]) -> Ended {
        self.with_stdin(args, "")
    }

    fn with_stdin(&self, args: &[&str], stdin: &str) -> Ended {
        let url = self.server.url();
        self.place.onward_with_stdin(&[&["--server", &url], args].concat(), stdin)
    }

    /// What it prints over the server, where that must succeed.
    fn said(&self, args: &[&str]) -> String {
        let ended = self.over(args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.stdout
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.said(&[args, &["-o", "json"]].concat())).unwrap()
    }
}

#[test]
fn a_server_says_what_its_store_says() {
    let both = Both::new();
    let place = &both.place;
    let id = place.start(&["double", "--input", "9007199254740993"]);
    place.onward(&["queues", "set", "ocr", "--concurrency", "8", "--rate", "10/1s"]);
    place.onward(&["schedules", "put", "nightly", "double", "--cron", "0 3 * * *"]);
    place.onward(&["start", "double", "--input", "2", "--key", "first"]);
    place.onward(&["signals", "send", &id, "go", "{\"n\": 9007199254740993}"]);
    for args in [
        &["runs", "list", "-o", "ids"][..],
        &["runs", "list", "-o", "ids", "--tag", "tenant=acme", "--state", "queued"],
        &["runs", "list", "-o", "ids", "--limit", "1"],
        &["runs", "list", "-o", "ids", "--parent", &id],
        &["runs", "show", &id, "-o", "ids"],
        &["runs", "log", &id],
        &["keys", "show", "double", "first", "-o", "ids"],
        &["keys", "list", "-o", "json"],
        &["keys", "top", "-o", "json"],
        &["keys", "conflicts", "-o", "json"],
        &["keys", "steps", "-o", "json"],
        &["queues", "list", "-o", "ids"],
        &["queues", "show", "ocr", "-o", "json"],
        &["schedules", "list", "-o", "json"],
        &["schedules", "show", "nightly", "-o", "json"],
        &["schedules", "next", "nightly", "-o", "ids"],
        &["workers", "list", "-o", "json"],
        &["stats", "-o", "json"],
        &["errors", "list", "-o", "json"],
        &["ops", "list", "-o", "json"],
        &["audit", "list", "-o", "json"],
    ] {
        let here = place.onward(args);
        assert_eq!(here.code, 0, "{args:?}: {}", here.stderr);
        let there = both.over(args);
        assert_eq!(there.code, 0, "{args:?}: {}", there.stderr);
        match args {
            // The server itself is a worker of its own changes.
            ["stats", ..] => assert_eq!(runs_of(&here.stdout), runs_of(&there.stdout)),
            // A list of the API does not know when a queue was set up.
            ["queues", "show", ..] => assert!(there.stdout.contains("\"concurrency\":8")),
            _ => assert_eq!(here.stdout, there.stdout, "{args:?}"),
        }
    }
    assert_eq!(both.said(&["runs", "list", "-o", "ids", "--parent", &id]), "", "it started none");
    let shown = both.said(&["runs", "show", &id]);
    assert!(shown.contains("9007199254740993"), "no digit is lost on the way: {shown}");
    assert!(shown.contains("No live worker"), "{shown}");
    assert!(shown.contains("SIGNAL, NOT TAKEN"), "{shown}");
    let (here, there) = (place.onward(&["runs", "show", &id, "-o", "json"]).stdout, {
        both.said(&["runs", "show", &id, "-o", "json"])
    });
    let (mut here, mut there): (Value, Value) =
        (serde_json::from_str(&here).unwrap(), serde_json::from_str(&there).unwrap());
    assert_eq!(here["why"]["reason"], there["why"]["reason"]);
    here["why"].take();
    there["why"].take();
    assert_eq!(here, there);
}

fn runs_of(stats: &str) -> Value {
    serde_json::from_str::<Value>(stats).unwrap()["runs"].take()
}

#[test]
fn runs_are_started_and_steered_over_a_server() {
    let both = Both::new();
    let start = ["start", "double", "--input", "21", "--key", "order \"7\"", "-o", "ids"];
    let id = both.said(&start).trim().to_owned();
    assert_eq!(both.said(&start).trim(), id, "the same key is the same run");
    let other = both.over(&["start", "double", "--input", "22", "--key", "order \"7\""]);
    assert_eq!(other.code, 1, "{}", other.stderr);
    assert!(other.stderr.contains("key"), "{}", other.stderr);
    assert_eq!(both.json(&["runs", "show", &id])["input"], 21);

    assert!(both.said(&["runs", "pause", &id]).contains("paused"));
    assert!(both.said(&["runs", "list", "--state", "paused"]).contains(&id));
    assert!(both.said(&["runs", "resume", &id]).contains("queued"));
    let early = both.over(&["runs", "delete", &id]);
    assert_eq!(early.code, 1, "{}", early.stderr);
    assert_eq!(both.over(&["signals", "send", &id, "go", "true"]).code, 0);
    let listed = both.said(&["runs", "list", "--workflow", "double", "-o", "ids"]);
    let cancelled = both.with_stdin(&["runs", "cancel", "-", "-o", "ids"], &listed);
    assert_eq!((cancelled.code, cancelled.stdout), (0, listed.clone()), "{}", cancelled.stderr);
    let deleted = both.with_stdin(&["runs", "delete", "-", "-o", "ids"], &listed);
    assert_eq!((deleted.code, deleted.stdout), (0, listed), "{}", deleted.stderr);
    let gone = both.over(&["runs", "show", &id]);
    assert_eq!(gone.code, 3, "{}", gone.stderr);
    assert!(gone.stderr.contains(&id), "{}", gone.stderr);
}

#[test]
fn starts_are_gathered_over_a_server() {
    let both = Both::new();
    let start = |input, how| {
        both.said(&["start", "double", "--key", "page", "--input", input, how, "1h", "-o", "ids"])
    };
    let first = start("1", "--debounce");
    assert_eq!(start("2", "--debounce"), first);
    assert_eq!(both.json(&["runs", "show", first.trim()])["input"], 2, "the last one counts");
}

#[test]
fn a_file_is_started_once_over_a_server_and_bad_lines_are_named() {
    let both = Both::new();
    let file = both.place.path("items.jsonl");
    std::fs::write(&file, "{\"id\":1}\n{\"id\":2}\nnonsense\n{\"id\":3}\n").unwrap();
    let from = ["start", "work", "--from", text(&file), "--key-field", "id"];
    let first = both.over(&from);
    assert_eq!(first.stdout, "started 3 runs, 0 existing, 1 refused\n", "{}", first.stderr);
    assert!(first.stderr.contains("line 3"), "{}", first.stderr);
    let again = both.over(&from);
    assert_eq!(again.stdout, "started 0 runs, 3 existing, 1 refused\n", "{}", again.stderr);
}

#[test]
fn queues_and_schedules_are_changed_over_a_server() {
    let both = Both::new();
    assert!(both.said(&["queues", "set", "a/b", "--concurrency", "2"]).contains("2 at once"));
    assert!(both.said(&["queues", "pause", "a/b"]).contains("paused"));
    assert_eq!(both.said(&["queues", "clear", "a/b"]), "cleared a/b\n");
    assert_eq!(both.said(&["queues", "clear", "a/b"]), "a/b had no limits\n");

    let put = ["schedules", "put", "hourly", "double", "--every", "1h", "--input", "7"];
    assert!(both.said(&[&put[..], &["--lane", "acme"]].concat()).contains("every 1h"));
    let kept = both.json(&["schedules", "show", "hourly"]);
    assert_eq!(kept["lane"], "acme");
    assert_eq!((&kept["input"], &kept["workflow"]), (&7.into(), &"double".into()));
    let times = both.said(&["schedules", "next", "hourly", "--count", "50", "-o", "ids"]);
    assert_eq!(times.lines().count(), 50, "{times}");
    assert!(both.said(&["schedules", "pause", "hourly"]).contains("paused"));
    assert_eq!(both.over(&["schedules", "resume", "hourly"]).code, 0);
    assert_eq!(both.over(&["schedules", "trigger", "hourly"]).code, 0);
    let past = ["--from", "2026-01-01T00:00:00Z", "--before", "2026-01-01T05:00:00Z"];
    let filled = both.said(&[&["schedules", "backfill", "hourly"][..], &past].concat());
    assert_eq!(filled, "started 5 runs, 0 existing\n");
    assert_eq!(both.said(&["schedules", "remove", "hourly"]), "removed hourly\n");
    assert_eq!(both.over(&["schedules", "show", "hourly"]).code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_alike_is_retried_at_once_and_by_an_operation() {
    let both = Both::new();
    let onward = Onward::open(&both.place.url()).await.unwrap();
    let fail = async |ctx: Ctx, n: u64| {
        ctx.step("try", async |_| Err::<u64, _>(Failure::fatal(format!("no {n}").as_str()))).await
    };
    let worker = onward.worker().serve(DOUBLE, fail).start().await.unwrap();
    let id = both.said(&["start", "double", "--input", "5", "-o", "ids"]).trim().to_owned();
    assert_eq!(both.over(&["runs", "watch", &id]).code, 1);
    let first = both.place.onward(&["keys", "show", "double", "first", "-o", "ids"]).stdout;
    assert_eq!(both.over(&["runs", "watch", first.trim()]).code, 1);
    let workers = both.said(&["workers", "list", "-o", "ids"]);
    let of_double = workers.lines().filter(|id| {
        both.said(&["workers", "show", id]).lines().any(|line| line.ends_with("  double"))
    });
    assert_eq!(of_double.count(), 1, "{workers}");
    let flows = both.said(&["workflows", "list"]);
    assert!(flows.contains("double"), "{flows}");
    let steps = both.json(&["workflows", "steps", "double"]);
    assert_eq!(steps["step"], "try");
    worker.shutdown().await.unwrap();

    let groups = both.said(&["errors", "list", "-o", "ids"]);
    assert_eq!(groups.lines().count(), 1, "both failed alike: {groups}");
    let group = groups.trim();
    let unasked = both.over(&["errors", "retry", group]);
    assert_eq!(unasked.code, 2, "{}", unasked.stderr);
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    let retried = both.said(&["errors", "retry", group, "--yes", "-o", "ids"]);
    assert_eq!(retried.lines().count(), 2, "{retried}");
    assert_eq!(both.over(&["errors", "retry", group, "--yes"]).code, 3, "none is failed any more");

    let cancel = ["ops", "start", "cancel", "--workflow", "double", "--reason", "enough"];
    let dry = both.said(&[&cancel[..], &["--dry-run"]].concat());
    assert_eq!(dry, "would cancel up to 2 matching runs\n");
    let ended = both.over(&[&cancel[..], &["--yes", "--wait", "-o", "json"]].concat());
    assert!(!ended.stderr.contains("onward serve"), "a server carries it out: {}", ended.stderr);
    let done: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&done["state"], &done["done"]), (&"done".into(), &2.into()), "{done}");
    let op = done["id"].as_str().unwrap();
    assert_eq!(both.json(&["ops", "show", op])["reason"], "enough");
    assert_eq!(both.said(&["ops", "list", "-o", "ids"]), format!("{op}\n"));
    let many = both.said(&["runs", "retry", "--all-matching", "--state", "failed", "--dry-run"]);
    assert_eq!(many, "would retry up to 0 matching runs\n");
    let audit = both.said(&["audit", "list"]);
    assert!(audit.contains("begin_operation"), "{audit}");
}

#[test]
fn an_operation_that_was_begun_without_a_server_is_carried_out_by_the_next() {
    let place = Place::new();
    let id = place.start(&["double", "--input", "1"]);
    let begun = place.onward(&["ops", "start", "cancel", &id, "--yes", "-o", "ids"]);
    assert_eq!(begun.code, 0, "{}", begun.stderr);
    assert!(begun.stderr.contains("onward serve"), "{}", begun.stderr);
    let op = begun.stdout.trim();
    let _server = Server::of(&place);
    let waited = place.onward(&["runs", "watch", op]);
    assert_eq!(waited.code, 0, "{}", waited.stderr);
    let shown = place.onward(&["ops", "show", op]);
    assert!(shown.stdout.contains("done") && shown.stdout.contains("1 of 1"), "{}", shown.stdout);
    let run = place.onward(&["runs", "list", "--state", "cancelled", "-o", "ids"]);
    assert_eq!(run.stdout, format!("{id}\n"));
    let late = place.onward(&["ops", "abort", op]);
    assert_eq!(late.code, 1, "{}", late.stderr);
}

#[test]
fn an_operation_that_has_ended_does_not_stop_the_abort_of_others() {
    let place = Place::new();
    let id = place.start(&["double", "--input", "1"]);
    let begin = || {
        let begun = place.onward(&["ops", "start", "cancel", &id, "--yes", "-o", "ids"]);
        begun.stdout.trim().to_owned()
    };
    let (one, two) = (begin(), begin());
    assert_eq!(place.onward(&["ops", "abort", &one]).code, 0);
    place.onward(&["runs", "delete", &one]);
    let both = place.onward(&["ops", "abort", &one, &two, "-o", "ids"]);
    assert_eq!(both.stdout.trim(), two, "{}", both.stderr);
    assert!(both.code != 0 && both.stderr.contains(&one), "{}", both.stderr);
}

/// Whose worker is gone is told alike, whoever is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_nobody_serves_is_known_over_a_server() {
    let both = Both::new();
    let id = both.place.start(&["triple", "--input", "1"]);
    let shown = both.json(&["runs", "show", &id]);
    assert_eq!(shown["why"]["unserved"], true, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_failed_runs_than_are_looked_through_are_told() {
    let place = Place::new();
    let onward = Onward::open(&place.url()).await.unwrap();
    onward.start_many(DOUBLE, 0..2_001).await.unwrap();
    let fail = async |_: Ctx, _: u64| Err::<u64, _>(Failure::fatal("no"));
    let worker = onward.worker().serve(DOUBLE, fail).start().await.unwrap();
    let begun = std::time::Instant::now();
    while onward.stats().await.unwrap().runs.get(&RunState::Failed) != Some(&2_001) {
        assert!(begun.elapsed() < SOON, "they do not fail");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    worker.shutdown().await.unwrap();
    let group = place.onward(&["errors", "list", "-o", "ids"]).stdout;
    let asked = place.onward(&["errors", "retry", group.trim()]);
    assert!(asked.stderr.contains("newest 2000 failed runs"), "{}", asked.stderr);
    assert!(asked.stderr.contains("would retry 2000 runs"), "{}", asked.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_and_paused_runs_are_changed_over_a_server_at_a_pace() {
    let both = Both::new();
    let onward = Onward::open(&both.place.url()).await.unwrap();
    let wait = async |ctx: Ctx, _: u64| ctx.signal::<u64>("go").await;
    let worker = onward.worker().serve(DOUBLE, wait).start().await.unwrap();
    let stuck = both.said(&["start", "double", "--input", "\"no number\"", "-o", "ids"]);
    let begun = std::time::Instant::now();
    while both.said(&["runs", "list", "--state", "stuck", "-o", "ids"]) != stuck {
        assert!(begun.elapsed() < SOON, "it is not stuck");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    worker.shutdown().await.unwrap();
    let all = ["--all-matching", "--pace", "50"];
    let dry = both.said(&[&["runs", "retry", "--state", "stuck", "--dry-run"], &all[..]].concat());
    assert_eq!(dry, "would retry up to 1 matching run\n", "the first one only waits");
    let retry = [&["runs", "retry", "--state", "stuck", "--yes"], &all[..]].concat();
    let done = both.json(&retry);
    assert_eq!((&done["done"], &done["matched"]), (&1.into(), &1.into()), "{done}");
    assert_eq!(done["pace"], 50);
    assert_eq!(both.said(&["runs", "list", "--state", "stuck", "-o", "ids"]), "");

    both.said(&["runs", "pause", stuck.trim()]);
    let resume = ["ops", "start", "resume", "--state", "paused", "--pace", "9", "--yes", "--wait"];
    assert_eq!(both.json(&resume)["done"], 1);
    assert_eq!(both.said(&["runs", "list", "--state", "paused", "-o", "ids"]), "");
}

#[test]
fn a_server_prunes_after_a_question_and_as_often_as_there_is_more() {
    let both = Both::new();
    let first = both.said(&["runs", "list", "-o", "ids"]);
    both.said(&["runs", "cancel", first.trim()]);
    let prune = ["prune", "--older-than", "0s"];
    assert_eq!(both.said(&[&prune[..], &["--dry-run"]].concat()), "would delete 1 run\n");
    let unasked = both.over(&prune);
    assert_eq!(unasked.code, 2, "{}", unasked.stderr);
    assert!(unasked.stderr.contains("--yes"), "{}", unasked.stderr);
    let pruned = both.json(&[&prune[..], &["--state", "cancelled", "--yes"]].concat());
    assert_eq!(pruned, serde_json::json!({ "runs": 1, "dry_run": false }));
    assert_eq!(both.place.runs(), 0);
    assert_eq!(both.said(&prune), "deleted 0 runs\n", "there is nothing to ask");
    let audit = both.said(&["audit", "list"]);
    assert!(audit.contains("prune_runs"), "{audit}");
}

/// A server whose time is over before the last run answers that there is more.
#[test]
fn a_prune_goes_on_where_a_server_had_no_more_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = [
        r#"{"version":"0","store":"memory","role":"admin","now":0}"#,
        r#"{"runs":3,"more":true}"#,
        r#"{"runs":2,"more":false}"#,
    ];
    let answering = std::thread::spawn(move || {
        answers.map(|body| {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut asked, mut some) = (String::new(), [0; 4096]);
            let is_whole = |asked: &str| {
                asked.ends_with('}') || asked.starts_with("GET") && asked.ends_with("\r\n\r\n")
            };
            while !is_whole(&asked) {
                let bytes = stream.read(&mut some).unwrap();
                asked.push_str(std::str::from_utf8(&some[..bytes]).unwrap());
            }
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
            asked
        })
    });
    let args = ["--server", &url, "prune", "--older-than", "1h", "--yes"];
    let ended = Place::new().onward(&args);
    assert_eq!(ended.stdout, "deleted 5 runs\n", "{}", ended.stderr);
    let asked = answering.join().unwrap();
    assert!(asked[2].starts_with("POST /api/v1/prune "), "{}", asked[2]);
}
