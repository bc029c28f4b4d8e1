//! The commands beside a worker that is at work in another process.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Worker, Workflow};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::place::Place;

const WORK: Workflow<u32, u32> = Workflow::named("work");

/// How long anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_prints_each_step_when_it_is_recorded() {
    let place = Place::new();
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let onward = Onward::open(&place.url()).await.unwrap();
    let work = move |ctx: Ctx, n: u32| {
        let held = Arc::clone(&held);
        async move {
            let one = ctx.step("first", async |_| Ok::<_, Failure>(n + 1)).await?;
            ctx.step("second", async |_| {
                held.acquire().await.map_err(Failure::new)?.forget();
                Ok::<_, Failure>(one + 1)
            })
            .await
        }
    };
    let id = place.start(&["work", "--input", "40"]);
    let mut watch = place.command(&["runs", "watch", &id, "-o", "json"]);
    let mut child = watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = lines_of(child.stdout.take().unwrap());
    let next = || lines.recv_timeout(PATIENCE).unwrap();
    let worker = onward.worker().serve(WORK, work).start().await.unwrap();

    let first = next();
    assert_eq!(first["run"], id.as_str());
    assert_eq!(first["record"]["step"], "first");
    // The second step waits for this, so the first line came before the run ended.
    assert_eq!(child.try_wait().unwrap(), None);
    gate.add_permits(1);
    assert_eq!(next()["record"]["step"], "second");
    let run = next();
    assert_eq!((&run["state"], &run["output"]), (&"completed".into(), &42.into()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_is_retried_and_goes_on_from_the_step_that_failed() {
    let place = Place::new();
    let mended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&mended);
    let work = move |ctx: Ctx, n: u32| {
        let seen = Arc::clone(&seen);
        async move {
            let one = ctx.step("good", async |_| Ok::<_, Failure>(n + 1)).await?;
            ctx.step("bad", async |_| match seen.load(Ordering::SeqCst) {
                true => Ok(one + 1),
                false => Err(Failure::fatal("not yet").code("not_yet")),
            })
            .await
        }
    };
    let onward = Onward::open(&place.url()).await.unwrap();
    let worker = onward.worker().serve(WORK, work).start().await.unwrap();
    let id = place.start(&["work", "--input", "40"]);
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 1);
    let failed = place.onward(&["runs", "list", "--state", "failed", "-o", "ids"]);
    assert_eq!(failed.stdout, format!("{id}\n"));

    mended.store(true, Ordering::SeqCst);
    let retried = place.onward_with_stdin(&["runs", "retry", "-", "-o", "ids"], &failed.stdout);
    assert_eq!((retried.code, retried.stdout), (0, format!("{id}\n")), "{}", retried.stderr);
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 0);
    let run = shown(&place, &id);
    assert_eq!((&run["state"], &run["output"]), (&"completed".into(), &42.into()));
    let good = |record: &&Value| record["step"] == "good";
    assert_eq!(run["history"].as_array().unwrap().iter().filter(good).count(), 1);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_undone_and_what_is_left_is_shown() {
    let place = Place::new();
    let work = async |ctx: Ctx, n: u32| {
        let reserve = ctx.step("reserve", async |_| Ok::<_, Failure>(n));
        reserve.undo(async |_: u32, _| Ok::<_, Failure>(())).await?;
        let charge = ctx.step("charge", async |_| Ok::<_, Failure>(n));
        charge.undo(async |_: u32, _| Err::<(), _>(Failure::fatal("account closed"))).await?;
        Err(Failure::fatal("sold out"))
    };
    let worker = serve(&place, work).await;
    let id = place.start(&["work", "--input", "1"]);
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 1);
    let told = place.onward(&["runs", "show", &id]).stdout;
    for (name, said) in
        [("undone", "reserve"), ("not undone", "charge"), ("failure", "undo_failed")]
    {
        let line = told.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
        assert!(line.is_some_and(|line| line.contains(said)), "{name}: {told}");
    }
    assert!(told.contains("account closed") && told.contains("$undo/reserve"), "{told}");
    let run = shown(&place, &id);
    assert_eq!(run["undoing"]["left"], serde_json::json!(["charge"]));
    assert_eq!(run["failure"]["details"]["left_undone"][0]["step"], "charge");
    let refused = place.onward(&["runs", "retry", &id]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("run_undone"), "{}", refused.stderr);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_is_answered_once_from_the_command_line() {
    let place = Place::new();
    let worker = serve(&place, async |ctx: Ctx, n: u32| {
        let callback = ctx.callback::<u32>().await?;
        ctx.set_tag("token", &callback.token())?;
        Ok(n + callback.result().await?.unwrap_or_default())
    })
    .await;
    let id = place.start(&["work", "--input", "40"]);
    let begun = Instant::now();
    let token = loop {
        if let Some(token) = shown(&place, &id)["tags"]["token"].as_str() {
            break token.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "it shows no token");
    };
    let guess = place.onward(&["signals", "resolve", "0000.1.guess", "2"]);
    assert_eq!(guess.code, 1, "{}", guess.stderr);
    assert!(guess.stderr.contains("callback_unknown"), "{}", guess.stderr);
    // As `echo` or an editor leaves it, with an end of line.
    let line = format!("{token}\n");
    let answered = place.onward_with_stdin(&["signals", "resolve", "-", "2"], &line);
    assert_eq!((answered.code, answered.stderr.trim()), (0, "answered"));
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 0);
    assert_eq!(shown(&place, &id)["output"], 42);
    let again = place.onward(&["signals", "resolve", &token, "2"]);
    assert_eq!(again.code, 0, "the same again: {}", again.stderr);
    let other = place.onward(&["signals", "resolve", &token, "3"]);
    assert_eq!(other.code, 1, "{}", other.stderr);
    assert!(other.stderr.contains("callback_used"), "{}", other.stderr);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_ended_is_not_cancelled() {
    let place = Place::new();
    let worker = serve(&place, async |_, n: u32| Ok(n)).await;
    let id = place.start(&["work", "--input", "1"]);
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 0);
    let refused = place.onward(&["runs", "cancel", &id]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("run_finished"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    assert_eq!(shown(&place, &id)["state"], "completed");
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleep_shows_no_duration() {
    let place = Place::new();
    let worker = serve(&place, async |ctx: Ctx, n: u32| {
        ctx.sleep(Duration::from_millis(10)).await;
        Ok(n)
    })
    .await;
    let id = place.start(&["work", "--input", "1"]);
    assert_eq!(place.onward(&["runs", "watch", &id]).code, 0);
    let table = place.onward(&["runs", "show", &id]).stdout;
    let row = table.lines().find(|line| line.starts_with("$sleep")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells, ["$sleep", "1", "1", "-", "timer", "fired"]);
    worker.shutdown().await.unwrap();
}

#[test]
fn a_start_says_which_file_it_made_and_that_nobody_serves_it() {
    let place = Place::new();
    let first = place.onward(&["start", "nobody-serves-this"]);
    let created = format!("created {}\n", place.database().display());
    assert!(first.stderr.starts_with(&created), "{}", first.stderr);
    assert!(first.stderr.contains("note: No live worker serves workflow"), "{}", first.stderr);
    let second = place.onward(&["start", "nobody-serves-this", "--delay", "2h"]);
    assert_eq!(second.stderr, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_without_a_terminal_says_why_a_run_does_not_run_when_that_changes() {
    let place = Place::new();
    let worker = serve(&place, async |ctx: Ctx, n: u32| {
        ctx.sleep(Duration::from_secs(7_200)).await;
        Ok(n)
    })
    .await;
    let id = place.start(&["work", "--input", "1"]);
    until(|| shown(&place, &id)["state"] == "waiting");
    worker.shutdown().await.unwrap();
    let mut watch = place.command(&["runs", "watch", &id]);
    let watch = watch.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // Long enough for the seconds that are left to change.
    std::thread::sleep(Duration::from_millis(1_500));

    let ended = place.onward(&["runs", "cancel", &id]);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "it ends at once");
    let said = String::from_utf8(watch.wait_with_output().unwrap().stderr).unwrap();
    let timer = said.lines().filter(|line| line.starts_with("It waits for the timer"));
    assert_eq!(timer.count(), 1, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_does_not_end_a_run_at_once_says_when_it_will() {
    let place = Place::new();
    let worker = serve(&place, async |ctx: Ctx, n: u32| {
        ctx.step("endless", async |_| std::future::pending::<Result<u32, Failure>>().await).await?;
        Ok(n)
    })
    .await;
    let id = place.start(&["work", "--input", "1"]);
    until(|| shown(&place, &id)["why"]["reason"] == "running");
    let asked = place.onward(&["runs", "cancel", &id]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    assert!(
        asked.stderr.contains(&format!("run {id}: It is asked to end, and")),
        "{}",
        asked.stderr
    );
    until(|| shown(&place, &id)["state"] == "cancelled");
    worker.shutdown().await.unwrap();
}

#[test]
fn show_says_why_a_run_is_not_running_that_nobody_serves() {
    let place = Place::new();
    let id = place.start(&["nobody-serves-this"]);
    let table = place.onward(&["runs", "show", &id]).stdout;
    assert!(table.contains("No live worker serves workflow \"nobody-serves-this\""), "{table}");
    let run = shown(&place, &id);
    assert_eq!(run["why"]["reason"], "no_worker");
    assert_eq!(run["history"], Value::Array(Vec::new()));
}

#[test]
fn show_says_why_a_run_is_not_running_before_its_start_time() {
    let place = Place::new();
    let id = place.start(&["work", "--delay", "2h"]);
    let table = place.onward(&["runs", "show", &id]).stdout;
    assert!(table.contains("It waits for its start time, until"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn show_says_why_a_run_is_not_running_before_a_timer() {
    let place = Place::new();
    let worker = serve(&place, async |ctx: Ctx, n: u32| {
        ctx.sleep(Duration::from_secs(7_200)).await;
        Ok(n)
    })
    .await;
    let id = place.start(&["work", "--input", "1"]);
    until(|| shown(&place, &id)["state"] == "waiting");
    let table = place.onward(&["runs", "show", &id]).stdout;
    assert!(table.contains("It waits for the timer"), "{table}");
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn show_says_why_a_run_is_not_running_when_it_is_stuck() {
    let place = Place::new();
    let worker = serve(&place, async |_, n: u32| Ok(n)).await;
    let id = place.start(&["work", "--input", "\"no number\""]);
    until(|| shown(&place, &id)["why"]["reason"] == "stuck");
    let table = place.onward(&["runs", "show", &id]).stdout;
    assert!(table.contains("It is stuck (type_mismatch)"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("state") && line.contains("stuck,")));

    // Among the waiting ones it is told apart, also where it is on a later page.
    let later: Vec<_> = (0..3).map(|_| place.start(&["work", "--delay", "2h"])).collect();
    let listed = |args: &[&str]| place.onward(&[&["runs", "list"], args].concat()).stdout;
    assert_eq!(listed(&["--state", "stuck", "-o", "ids"]), format!("{id}\n"));
    assert_eq!(listed(&["--state", "stuck", "-o", "ids", "--limit", "1"]), format!("{id}\n"));
    let table = listed(&["--state", "stuck"]);
    assert_eq!(table.lines().count(), 2, "{table}");
    assert!(table.contains(&format!("{id}  stuck ")), "{table}");
    let both = listed(&["--state", "stuck", "--state", "waiting", "-o", "ids"]);
    assert_eq!(both.lines().count(), 1 + later.len());
    assert_eq!(listed(&["--state", "stuck", "--state", "failed", "-o", "ids"]).lines().count(), 1);
    worker.shutdown().await.unwrap();
}

#[test]
fn show_says_why_a_run_is_not_running_whose_worker_was_killed() {
    let place = Place::new();
    let input = r#"{"id": 1, "channel": "premium-1"}"#;
    let held = place.start(&["index-attachment", "--input", input]);
    // A service that never answers, so that the run is held for as long as the worker lives.
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    // A lease short enough to wait for its end.
    let mut worker = place.demo_worker(&service, Duration::from_secs(1));
    until(|| shown(&place, &held)["why"]["reason"] == "running");
    worker.kill().unwrap();
    worker.wait().unwrap();
    let queued = place.start(&["index-attachment", "--input", input]);

    until(|| shown(&place, &held)["why"]["reason"] == "worker_gone");
    let table = place.onward(&["runs", "show", &held]).stdout;
    assert!(table.contains("The worker that held it is gone, and no live worker"), "{table}");
    let doctor = place.onward(&["doctor"]);
    assert_eq!(doctor.code, 1, "{}", doctor.stdout);
    let found = "NO  running    1 run whose worker is gone, and no live worker serves it";
    assert!(doctor.stdout.contains(found) && doctor.stdout.contains(&held), "{}", doctor.stdout);
    let asked = place.onward(&["runs", "cancel", &held]).stderr;
    let ends = format!(
        "run {held}: It is asked to end, and ends when a worker takes it up. No live worker serves"
    );
    assert!(asked.contains(&ends), "{asked}");
    let table = place.onward(&["runs", "show", &queued]).stdout;
    assert!(table.contains("No live worker serves workflow \"index-attachment\""), "{table}");
}

async fn serve<F, Fut>(place: &Place, function: F) -> Worker
where
    F: Fn(Ctx, u32) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    let onward = Onward::open(&place.url()).await.unwrap();
    onward.worker().serve(WORK, function).start().await.unwrap()
}

/// The lines that a program prints, each when it is printed.
fn lines_of(stdout: ChildStdout) -> Receiver<Value> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            tell.send(serde_json::from_str(&line.unwrap()).unwrap()).unwrap();
        }
    });
    told
}

fn shown(place: &Place, id: &str) -> Value {
    let ended = place.onward(&["runs", "show", id, "-o", "json"]);
    serde_json::from_str(&ended.stdout).unwrap()
}

fn until(mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it does not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}
