//! `onward doctor`: each thing that can be wrong is found, and told with what to do.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Workflow};
use serde_json::Value;

use crate::place::Place;

/// How long anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

/// The findings, by the name of their check, and the exit code.
fn findings(place: &Place, args: &[&str]) -> (i32, Vec<Value>) {
    let ended = place.onward(&[&["doctor", "-o", "json"], args].concat());
    let lines = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    (ended.code, lines.collect())
}

fn of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap()
}

/// Changes the database behind everybody's back.
fn sql(place: &Place, text: &str) {
    let database = rusqlite::Connection::open(place.database()).unwrap();
    assert_ne!(database.execute(text, []).unwrap(), 0, "{text} changed nothing");
}

#[test]
fn a_healthy_store_has_nothing_to_do() {
    let place = Place::new();
    place.start(&["work"]);
    let (code, found) = findings(&place, &[]);
    assert_eq!(code, 0, "{found:?}");
    assert!(found.iter().all(|finding| finding["ok"] == true), "{found:?}");
    let runs = ["queued", "running", "stuck", "crashes", "undo"];
    for check in ["store", "schema", "clock", "leases"].into_iter().chain(runs) {
        of(&found, check);
    }
    let table = place.onward(&["doctor"]).stdout;
    assert!(table.lines().all(|line| line.starts_with("ok  ")), "{table}");
}

#[test]
fn a_store_that_is_not_there_is_a_finding() {
    let place = Place::new();
    let (code, found) = findings(&place, &[]);
    assert_eq!(code, 1);
    assert_eq!(of(&found, "store")["ok"], false);
    assert!(of(&found, "store")["found"].as_str().unwrap().contains("--store"), "{found:?}");
    assert!(of(&found, "store")["todo"].is_null(), "what was found says what to do: {found:?}");
    let (code, found) = findings(&place, &["--server", "http://127.0.0.1:1"]);
    assert_eq!((code, &of(&found, "server")["ok"]), (1, &false.into()), "{found:?}");
    assert!(!place.database().exists());
}

#[test]
fn a_newer_schema_is_a_finding() {
    let place = Place::new();
    place.start(&["work"]);
    sql(&place, "update onward_schema set version = version + 100");
    let (code, found) = findings(&place, &[]);
    assert_eq!((code, &of(&found, "schema")["ok"]), (1, &false.into()), "{found:?}");
    let said = |part: &str| of(&found, "schema")[part].as_str().unwrap().to_owned();
    let (found, todo) = (said("found"), said("todo"));
    assert!(!todo.is_empty() && !found.contains(&todo), "what to do is said once: {found} {todo}");
}

#[test]
fn a_run_that_nobody_serves_is_found_with_its_workflow_and_queue() {
    let place = Place::new();
    let id = place.start(&["work", "--queue", "bulk"]);
    sql(&place, "update onward_runs set created_at = created_at - 120000");
    let (code, found) = findings(&place, &[]);
    let queued = of(&found, "queued");
    assert_eq!((code, &queued["ok"]), (1, &false.into()), "{found:?}");
    assert_eq!(queued["runs"][0], id);
    for part in ["\"work\"", "\"bulk\"", "onward workers list"] {
        assert!(queued["todo"].as_str().unwrap().contains(part), "{queued}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stuck_and_crashing_runs_are_found_with_the_advice_for_their_code() {
    const WORK: Workflow<u32, u32> = Workflow::named("work");
    let place = Place::new();
    let stuck = place.start(&["work", "--input", "\"no number\""]);
    let crashing = place.start(&["other"]);
    sql(&place, "update onward_runs set crashes = 4 where workflow = 'other'");
    let onward = Onward::open(&place.url()).await.unwrap();
    let work = async |ctx: Ctx, n: u32| ctx.step("go", async |_| Ok::<_, Failure>(n)).await;
    let worker = onward.worker().serve(WORK, work).start().await.unwrap();
    let begun = Instant::now();
    let (code, found) = loop {
        let (code, found) = findings(&place, &[]);
        if of(&found, "stuck")["ok"] == false {
            break (code, found);
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
    };
    worker.shutdown().await.unwrap();
    assert_eq!(code, 1);
    let finding = of(&found, "stuck");
    assert_eq!(finding["runs"][0], stuck);
    assert!(finding["found"].as_str().unwrap().contains("type_mismatch"), "{finding}");
    assert!(finding["todo"].as_str().unwrap().contains("onward runs retry"), "{finding}");
    assert_eq!(of(&found, "crashes")["runs"][0], crashing, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_found() {
    const WORK: Workflow<u32, u32> = Workflow::named("work");
    let place = Place::new();
    place.start(&["work", "--input", "1"]);
    let onward = Onward::open(&place.url()).await.unwrap();
    let work = async |_: Ctx, n: u32| Ok::<_, Failure>(n);
    let worker = onward.worker().serve(WORK, work).start().await.unwrap();
    let (code, found) = findings(&place, &[]);
    assert_eq!(code, 0, "{found:?}");
    assert!(of(&found, "leases")["found"].as_str().unwrap().contains("1 worker up"), "{found:?}");
    // Until its next renewal the worker looks as if it had stopped renewing.
    let begun = Instant::now();
    let leases = loop {
        sql(&place, "update onward_workers set lease_until = 1");
        let (_, found) = findings(&place, &[]);
        let leases = of(&found, "leases").clone();
        if leases["ok"] == false {
            break leases;
        }
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
    };
    assert!(leases["todo"].as_str().unwrap().contains("Start a worker"), "{leases}");
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_undone_and_what_is_overdue_is_found() {
    const WORK: Workflow<u32, u32> = Workflow::named("work");
    let place = Place::new();
    let id = place.start(&["work", "--input", "1"]);
    let onward = Onward::open(&place.url()).await.unwrap();
    // As a run ends that turned back, and could not undo all of it.
    let work = async |_: Ctx, _: u32| Err::<u32, _>(Failure::fatal("left").code("undo_failed"));
    let worker = onward.worker().serve(WORK, work).start().await.unwrap();
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 1);
    worker.shutdown().await.unwrap();
    place.onward(&["schedules", "put", "nightly", "work", "--cron", "0 3 * * *"]);
    sql(&place, "update onward_schedules set next_at = 1000");
    let (code, found) = findings(&place, &[]);
    assert_eq!(code, 1);
    assert_eq!(of(&found, "undo")["runs"][0], id, "{found:?}");
    let schedules = of(&found, "schedules");
    assert!(schedules["found"].as_str().unwrap().contains("nightly"), "{schedules}");
    assert!(schedules["todo"].as_str().unwrap().contains("'schedules'"), "{schedules}");
}

/// A server whose clock is an hour behind, and that has nothing to show.
fn slow_clock() -> (String, std::thread::JoinHandle<()>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut some) = (Vec::new(), [0; 1024]);
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                let read = stream.read(&mut some).unwrap();
                head.extend_from_slice(&some[..read]);
            }
            let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
            let meta = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "store": "memory",
                "role": "read",
                "now": u64::try_from(since).unwrap() - 3_600_000,
            });
            let body = match String::from_utf8_lossy(&head).contains("/api/v1/meta") {
                true => meta.to_string(),
                false => r#"{"items":[],"next":null}"#.to_owned(),
            };
            let length = body.len();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    (url, answering)
}

#[test]
fn a_clock_that_differs_is_found() {
    let place = Place::new();
    let (url, _answering) = slow_clock();
    let (code, found) = findings(&place, &["--server", &url]);
    let clock = of(&found, "clock");
    assert_eq!((code, &clock["ok"]), (1, &false.into()), "{found:?}");
    assert!(clock["found"].as_str().unwrap().contains("ahead of the store"), "{clock}");
    assert!(clock["todo"].as_str().unwrap().contains("NTP"), "{clock}");
}
