//! A text in every place that a payload has, and none of them in the file.

use std::collections::HashMap;
use std::sync::Mutex;

use onward::{Code, Entry, OnConflict, Overlap, Query, Retry, RunId, RunState, Waits, rusqlite};

use super::*;

const ALL: Workflow<String, String> = Workflow::named("readable-workflow");
const CHILD: Workflow<String, String> = Workflow::named("child");
const DECLINED: Workflow<String, ()> = Workflow::named("declined");
const FAILING_CHILD: Workflow<String, ()> = Workflow::named("failing-child");
const ON: Workflow<String, String> = Workflow::named("goes-on");

/// The tokens of callbacks, by their runs.
static TOKENS: Mutex<Option<HashMap<RunId, String>>> = Mutex::new(None);

async fn all(ctx: Ctx, input: String) -> Result<String, Failure> {
    assert_eq!(input, "canary input");
    ctx.log("canary line");
    let done = ctx.step("readable-step", async |_| Ok::<_, Failure>("canary result".to_owned()));
    assert_eq!(done.await?, "canary result");
    ctx.step("tried", async |step| match step.try_number() {
        1 => Err(Failure::new("canary try").details("canary try details")),
        _ => Ok("canary second try".to_owned()),
    })
    .retry(Retry::fixed(Duration::from_millis(1)))
    .await?;
    ctx.step("keyed", async |_| Ok::<_, Failure>("canary keyed".to_owned()))
        .key("readable-step-key")
        .await?;
    ctx.sqlite_transaction("transaction", |_, _| Ok::<_, Failure>("canary transaction".to_owned()))
        .await?;
    assert_eq!(ctx.signal::<String>("readable-signal").await?, "canary signal");
    let callback = ctx.callback::<String>().await?;
    let token = callback.token();
    ctx.step("ask", |step| {
        TOKENS.lock().unwrap().get_or_insert_default().insert(step.run_id(), token.to_owned());
        async { Ok::<_, Failure>(()) }
    })
    .await?;
    assert_eq!(callback.result().await?.as_deref(), Some("canary callback"));
    let said = ctx.start(CHILD, &"canary child input".to_owned()).result().await?;
    assert_eq!(said, "canary child input!");
    let failed = ctx.start(FAILING_CHILD, &"canary failing input".to_owned()).result().await;
    assert_eq!(failed.unwrap_err().message, "canary child failure");
    Ok("canary output".to_owned())
}

async fn decline(_: Ctx, _: String) -> Result<(), Failure> {
    Err(Failure::fatal("canary failure").code("readable_code").details("canary details"))
}

async fn child_fails(_: Ctx, _: String) -> Result<(), Failure> {
    Err(Failure::fatal("canary child failure"))
}

async fn go_on(ctx: Ctx, input: String) -> Result<String, Failure> {
    match input.as_str() {
        "canary first" => ctx.continue_as(ON, &"canary next".to_owned()),
        _ => Ok(input),
    }
}

pub(super) async fn worker(onward: &Onward) -> onward::Worker {
    let wrong: Workflow<u32, ()> = Workflow::named("wrong-type");
    let builder = onward.worker().serve(ALL, all).serve(CHILD, echo).serve(DECLINED, decline);
    let builder = builder.serve(FAILING_CHILD, child_fails).serve(ON, go_on).serve(ECHO, echo);
    builder.serve(wrong, async |_, _| Ok(())).start().await.unwrap()
}

/// Fills every place that a payload can have.
pub(super) async fn fill(onward: &Onward, file: &File) {
    let start = onward.start(ALL, &"canary input".to_owned()).key("readable-key");
    let run = start.tag("readable-tag", "readable-value").await.unwrap();
    run.signal("readable-signal", "canary signal").key("readable-signal-key").await.unwrap();
    let token = || TOKENS.lock().unwrap().get_or_insert_default().get(&run.id()).cloned();
    until("a token", async || token().is_some()).await;
    let token = token().unwrap();
    onward.resolve(&token, "canary callback").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "canary output");

    let run = onward.start(DECLINED, &"canary declined".to_owned()).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert_eq!(error.failure().unwrap().message, "canary failure");
    assert_eq!(error.failure().unwrap().details.as_ref().unwrap().as_str(), "\"canary details\"");

    let run = onward.start(ON, &"canary first".to_owned()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "canary next");

    let once =
        onward.once("readable-once").run(async || Ok::<_, Failure>("canary once".to_owned())).await;
    assert_eq!(once.unwrap(), "canary once");
    let once = onward.once("readable-failed").keep_failure();
    let once = once.run(async || Err::<(), _>(Failure::fatal("canary once failure"))).await;
    assert_eq!(once.unwrap_err().failure().unwrap().message, "canary once failure");

    let schedule = onward.schedule("readable-schedule");
    let setup = schedule.clone().every(Duration::from_secs(3_600)).overlap(Overlap::Allow);
    setup.start(ECHO, &"canary schedule".to_owned()).await.unwrap();
    let run = schedule.trigger().await.unwrap().run().unwrap();
    let ended = onward.run(run).ended().await.unwrap();
    assert_eq!(ended.output.unwrap().as_str(), "\"canary schedule!\"");

    let stuck: Workflow<String, ()> = Workflow::named("wrong-type");
    let run = onward.start(stuck, &"canary stuck".to_owned()).await.unwrap();
    until("the run is stuck", async || {
        let waits = run.status().await.unwrap().waits_for;
        // It is told without the value, which is looked for below in whatever the file has.
        matches!(waits, Some(Waits::Stuck { detail, .. }) if !detail.contains("canary"))
    })
    .await;

    let mut db = file.sql();
    let tx = db.transaction().unwrap();
    let inside = onward.start(ECHO, &"canary inside".to_owned()).in_sqlite(&tx).unwrap();
    tx.commit().unwrap();
    assert_eq!(inside.result().await.unwrap(), "canary inside!");
}

fn texts(db: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut all = db.prepare(sql).unwrap();
    all.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_payload_is_in_the_file_and_everything_else_is() {
    let file = File::new();
    let open = Onward::open(&file.url()).codec(Compression::new().bytes_min(40));
    let onward = open.codec(Encryption::new(ring(&[1]))).await.unwrap();
    let worker = worker(&onward).await;
    fill(&onward, &file).await;
    worker.shutdown().await.unwrap();

    let bytes = file.bytes();
    assert!(!holds(&bytes, "canary"), "a payload is readable in the file");
    for text in ["readable-workflow", "readable-key", "readable-tag", "readable-value"] {
        assert!(holds(&bytes, text), "{text}");
    }
    let db = file.sql();
    let has = |sql: &str, text: &str| {
        let all = texts(&db, sql);
        assert!(all.iter().any(|found| found == text), "{text} in {all:?}");
    };
    has("select step from onward_records", "readable-step");
    has("select kind from onward_records", "try_failed");
    has("select name from onward_signals", "readable-signal");
    has("select key from onward_signals", "=readable-signal-key");
    has("select key from onward_step_keys", "readable-step-key");
    has("select key from onward_step_keys", "readable-once");
    has("select name from onward_schedules", "readable-schedule");
    has("select failure ->> 'code' from onward_outputs where failure is not null", "readable_code");
    let message = "select failure ->> 'message' from onward_outputs where failure is not null";
    has(message, "encrypted with key \"k1\"");
    let timed = "select id from onward_runs where created_at > 0 and due_at is null";
    assert!(db.prepare(timed).unwrap().exists(()).unwrap());
    everything_comes_back(&onward).await;
}

/// Every canary is there for whoever has the key.
async fn everything_comes_back(onward: &Onward) {
    let mut found = String::new();
    for run in onward.list(Query::default()).await.unwrap().runs {
        found.push_str(&serde_json::to_string(&run).unwrap());
        for record in onward.run(run.id).history().await.unwrap() {
            if let Entry::Done(json) | Entry::Arrived(json) = &record.entry {
                found.push_str(json.as_str());
            }
            let failure = record.entry.failure().map(serde_json::to_string);
            found.push_str(&failure.map_or(String::new(), Result::unwrap));
        }
        for line in onward.run(run.id).log().await.unwrap() {
            found.push_str(&line.text);
        }
    }
    for text in [
        "input",
        "line",
        "result",
        "try",
        "try details",
        "second try",
        "keyed",
        "transaction",
        "signal",
        "callback",
        "child input",
        "failing input",
        "child failure",
        "output",
        "declined",
        "failure",
        "details",
        "first",
        "next",
        "schedule",
        "stuck",
        "inside",
    ] {
        assert!(found.contains(&format!("canary {text}")), "{text}");
    }
    let key = onward.step_key("readable-once").await.unwrap().unwrap();
    assert_eq!(key.result.unwrap().as_str(), "\"canary once\"");
    let schedule = onward.schedule("readable-schedule").status().await.unwrap();
    assert_eq!(schedule.input.as_str(), "\"canary schedule\"");
}

#[tokio::test]
async fn a_fingerprint_gives_nothing_away_and_compares_all_the_same() {
    let file = File::new();
    let onward = Onward::open(&file.url()).codec(Encryption::new(ring(&[1]))).await.unwrap();
    let yes = "yes".to_owned();
    let run = onward.start(ECHO, &yes).key("vote-7").await.unwrap();
    let again = onward.start(ECHO, &yes).key("vote-7").await.unwrap();
    assert_eq!(again.id(), run.id());
    let other = onward.start(ECHO, &"no".to_owned()).key("vote-7").await.unwrap_err();
    assert_eq!(other.code(), Code::KeyConflict);
    let stored: Vec<u8> = {
        let db = file.sql();
        db.query_row("select fingerprint from onward_keys", (), |row| row.get(0)).unwrap()
    };
    let guessed = onward::Json::of(&yes).unwrap().fingerprint();
    assert_ne!(stored, guessed.0, "anybody could try the few inputs there are");
}

#[tokio::test]
async fn a_key_that_was_used_before_there_was_a_codec_is_still_the_same() {
    let file = File::new();
    let (yes, no) = ("yes".to_owned(), "no".to_owned());
    let before = Onward::open(&file.url()).await.unwrap();
    let run = before.start(ECHO, &yes).key("vote-7").await.unwrap();
    run.signal("paid", &1).key("payment-1").await.unwrap();
    before.once("mail").fingerprint(&yes).run(async || Ok::<_, Failure>(1)).await.unwrap();
    let onward = Onward::open(&file.url()).codec(Encryption::new(ring(&[1]))).await.unwrap();
    assert_eq!(onward.start(ECHO, &yes).key("vote-7").await.unwrap().id(), run.id());
    let retry = onward.start(ECHO, &yes).key("vote-7").on_conflict(OnConflict::RetryFailed);
    assert_eq!(retry.await.unwrap().id(), run.id());
    let other = onward.start(ECHO, &no).key("vote-7").await.unwrap_err();
    assert_eq!(other.code(), Code::KeyConflict);
    let run = onward.run(run.id());
    run.signal("paid", &1).key("payment-1").await.unwrap();
    assert_eq!(run.status().await.unwrap().signals, 1);
    let other = run.signal("paid", &2).key("payment-1").await.unwrap_err();
    assert_eq!(other.code(), Code::KeyConflict);
    let once = onward.once("mail").fingerprint(&yes).run(async || Ok::<_, Failure>(2)).await;
    assert_eq!(once.unwrap(), 1);
}

#[tokio::test]
async fn a_run_that_was_stored_plainly_goes_on_under_a_codec() {
    let file = File::new();
    let before = Onward::open(&file.url()).await.unwrap();
    let run = before.start(ECHO, &"plain".to_owned()).await.unwrap();
    let onward = Onward::open(&file.url()).codec(Encryption::new(ring(&[1]))).await.unwrap();
    let worker = onward.worker().serve(ECHO, echo).start().await.unwrap();
    let ended = onward.run(run.id()).ended().await.unwrap();
    assert_eq!((ended.state, ended.output.unwrap().as_str()), (RunState::Completed, "\"plain!\""));
    worker.shutdown().await.unwrap();
    let outputs = texts(&file.sql(), "select output from onward_outputs");
    assert!(outputs[0].contains("xchacha20poly1305"), "{outputs:?}");
}

#[tokio::test]
async fn what_looks_like_an_envelope_is_a_payload_like_any_other() {
    const VALUE: Workflow<serde_json::Value, serde_json::Value> = Workflow::named("value");
    let store: Arc<dyn Store> = Arc::new(onward::store::MemoryStore::new());
    for coding in [coding(&[1]), Coding::new().and(Arc::new(Compression::new()))] {
        let store = CodedStore::around(Arc::clone(&store), coding);
        let onward = Onward::with_store(Arc::new(store));
        let worker = onward.worker().serve(VALUE, async |_, input| {
            let details = Failure::fatal("kept").details(&input);
            if input["fails"] == true { Err(details) } else { Ok(input) }
        });
        let worker = worker.start().await.unwrap();
        let input: serde_json::Value =
            serde_json::from_str(r#"{"$onward":1,"layers":[],"data":"MQ=="}"#).unwrap();
        let run = onward.start(VALUE, &input).await.unwrap();
        assert_eq!(run.result().await.unwrap(), input);
        let input: serde_json::Value =
            serde_json::from_str(r#"{"$onward":1,"fails":true}"#).unwrap();
        let run = onward.start(VALUE, &input).await.unwrap();
        let error = run.result().await.unwrap_err();
        let failure = error.failure().unwrap();
        assert_eq!(failure.message, "kept");
        assert_eq!(failure.details.as_ref().unwrap().as_str(), input.to_string());
        worker.shutdown().await.unwrap();
    }
}
