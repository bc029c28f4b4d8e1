//! Changes of many runs, which are runs of their own.

use std::time::Instant;

use onward::{Ctx, Failure, Filter, Workflow};
use onward_server::{Access, Options, Role};
use serde_json::{Value, json};

use super::stage::{Asked, DOUBLE, SOON, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";
const OPERATIONS: &str = "/api/v1/operations";

/// Waits until the operation is not running any more.
async fn ended(stage: &Stage, id: &Value) -> Value {
    let (path, begun) = (format!("{OPERATIONS}/{}", id.as_str().unwrap()), Instant::now());
    loop {
        let operation = stage.get(&path).await.json();
        if operation["state"] != "running" {
            return operation;
        }
        assert!(begun.elapsed() < SOON, "{operation}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_run_of_a_filter_is_changed_and_counted() {
    let stage = Stage::open().await;
    for input in 0..250 {
        stage.post(RUNS, json!({ "input": input, "queue": "bulk" })).await;
    }
    stage.post(RUNS, json!({ "input": 0 })).await;
    let filter = json!({ "queue": "bulk", "state": ["queued"] });
    let dry = json!({ "action": "cancel", "filter": filter, "dry_run": true });
    let dry = stage.post(OPERATIONS, dry).await;
    assert_eq!((dry.status, dry.json()), (200, json!({ "matched": 250, "more": false })));
    let body = json!({ "action": "cancel", "filter": filter, "reason": "a mistake" });
    let begun = stage.keyed(OPERATIONS, "bulk-1", body.clone()).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    let id = begun.json()["operation"]["id"].clone();
    assert_eq!(begun.header("idempotent-replayed"), None);
    let again = stage.keyed(OPERATIONS, "bulk-1", body).await;
    assert_eq!(again.json()["operation"]["id"], id, "the same key is the same change");
    assert_eq!((again.status, again.header("idempotent-replayed")), (202, Some("true")));
    for other in [
        json!({ "action": "pause", "filter": filter, "reason": "a mistake" }),
        json!({ "action": "cancel", "filter": {}, "reason": "a mistake" }),
        json!({ "action": "cancel", "filter": filter, "reason": "another" }),
    ] {
        let refused = stage.keyed(OPERATIONS, "bulk-1", other).await;
        assert_eq!((refused.status, refused.code().as_str()), (422, "key_conflict"));
    }
    let done = ended(&stage, &id).await;
    assert_eq!(
        (&done["state"], &done["done"], &done["matched"]),
        (&json!("done"), &json!(250), &json!(250))
    );
    assert_eq!((&done["by"], &done["reason"]), (&json!("anyone"), &json!("a mistake")));
    let left = stage.get("/api/v1/runs?state=queued").await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1, "the other queue is left alone");
    let list = stage.get(OPERATIONS).await.json();
    assert_eq!(list["items"][0]["id"], id);
    stage.stop().await;
}

#[tokio::test]
async fn named_runs_are_changed_and_what_does_not_fit_is_skipped() {
    let stage = Stage::open().await.working().await;
    let mut ids = Vec::new();
    for input in [json!("x"), json!(1)] {
        let reply = stage.post(&format!("{RUNS}?wait_ms=20000"), json!({ "input": input })).await;
        ids.push(reply.json()["run"]["id"].clone());
    }
    ids.push(json!("01890a5d-ac96-774b-bcce-b302099a8057"));
    let begun = stage.post(OPERATIONS, json!({ "action": "retry", "ids": ids })).await;
    let done = ended(&stage, &begun.json()["operation"]["id"]).await;
    let counts = ["matched", "done", "skipped", "failed"].map(|name| done[name].as_u64().unwrap());
    assert_eq!(counts, [3, 1, 2, 0], "{done}");
    stage.stop().await;
}

#[tokio::test]
async fn a_change_of_nothing_in_particular_is_refused() {
    let stage = Stage::open().await;
    let bodies = [
        json!({ "action": "cancel" }),
        json!({ "action": "cancel", "filter": {}, "ids": ["01890a5d-ac96-774b-bcce-b302099a8057"] }),
        json!({ "action": "cancel", "filter": { "stat": ["failed"] } }),
        json!({ "action": "burn", "filter": {} }),
    ];
    for body in bodies {
        let reply = stage.post(OPERATIONS, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{body}");
    }
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"]["id"].clone();
    let other = stage.get(&format!("{OPERATIONS}/{}", run.as_str().unwrap())).await;
    assert_eq!((other.status, other.code().as_str()), (404, "run_not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn an_operation_that_has_ended_cannot_be_aborted() {
    let stage = Stage::open().await;
    stage.post(RUNS, json!({ "input": 1 })).await;
    let body = json!({ "action": "cancel", "filter": { "workflow": "double" } });
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    let done = ended(&stage, &begun["id"]).await;
    assert_eq!(done["state"], "done");
    let path = format!("{OPERATIONS}/{}/abort", begun["id"].as_str().unwrap());
    let late = stage.send("POST", &path, Asked::default()).await;
    assert_eq!((late.status, late.code().as_str()), (409, "run_finished"));
    stage.stop().await;
}

#[tokio::test]
async fn a_mounted_router_executes_operations() {
    let stage = Stage::mounted().await;
    stage.post(RUNS, json!({ "input": 1 })).await;
    let body = json!({ "action": "cancel", "filter": { "workflow": "double" } });
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    let done = ended(&stage, &begun["id"]).await;
    assert_eq!((&done["state"], &done["done"]), (&json!("done"), &json!(1)));
    stage.stop().await;
}

#[tokio::test]
async fn a_server_that_only_answers_leaves_an_operation_to_others() {
    let options = Options::new(Access::Open(Role::Admin)).only_answers();
    let stage = Stage::with(options).await;
    stage.post(RUNS, json!({ "input": 1 })).await;
    let body = json!({ "action": "cancel", "filter": { "workflow": "double" } });
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    assert_eq!(stage.onward.stats().await.unwrap().workers, [], "it has no worker");
    let stage = stage.succeeded().await;
    assert_eq!(ended(&stage, &begun["id"]).await["done"], json!(1));
    stage.stop().await;
}

#[tokio::test]
async fn an_operation_goes_on_at_the_server_after_the_one_that_took_it() {
    let stage = Stage::open().await;
    // So that the first one takes it, and does not begin.
    let queue = stage.onward.queue("onward-operations");
    queue.pause().await.unwrap();
    stage.post(RUNS, json!({ "input": 1 })).await;
    let body = json!({ "action": "cancel", "filter": { "workflow": "double" } });
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    assert_eq!(begun["state"], "running");
    let stage = stage.succeeded().await;
    queue.resume().await.unwrap();
    let done = ended(&stage, &begun["id"]).await;
    assert_eq!((&done["state"], &done["done"]), (&json!("done"), &json!(1)));
    stage.stop().await;
}

#[tokio::test]
async fn an_operation_is_aborted_before_it_begins() {
    let stage = Stage::open().await;
    stage.onward.queue("onward-operations").pause().await.unwrap();
    let body = json!({ "action": "cancel", "filter": { "workflow": "double" } });
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    let path = format!("{OPERATIONS}/{}/abort", begun["id"].as_str().unwrap());
    let aborted = stage.send("POST", &path, Asked::default()).await;
    assert_eq!((aborted.status, &aborted.json()["state"]), (200, &json!("aborted")));
    stage.stop().await;
}

#[tokio::test]
async fn an_operation_is_started_in_no_other_way() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    stage.as_bearer(&tokens[1]);
    let start =
        stage.post("/api/v1/workflows/onward-operation/runs", json!({ "input": null })).await;
    assert_eq!((start.status, start.code().as_str()), (403, "forbidden"));
    let spec = json!({ "every": { "every_ms": 60_000, "anchor": 0 } });
    let body = Some(json!({ "workflow": "onward-operation", "spec": spec }));
    let schedule =
        stage.send("PUT", "/api/v1/schedules/x", Asked { body, ..Asked::default() }).await;
    assert_eq!((schedule.status, schedule.code().as_str()), (403, "forbidden"));
    let foreign = onward::Workflow::<(), ()>::named("onward-operation");
    let run = stage.onward.start(foreign, &()).await.unwrap().id();
    assert_eq!(stage.get(OPERATIONS).await.json()["items"], json!([]));
    assert_eq!(stage.get(&format!("{OPERATIONS}/{run}")).await.status, 404);
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"]["id"].clone();
    let begun = stage.post(OPERATIONS, json!({ "action": "pause", "ids": [run] })).await.json();
    let id = begun["operation"]["id"].as_str().unwrap();
    assert_eq!(ended(&stage, &begun["operation"]["id"]).await["done"], json!(1));
    let input =
        json!({ "action": "delete", "filter": {}, "ids": [], "by": "root", "reason": null });
    // Whoever may delete says so at its own place, too.
    for token in &tokens[1..] {
        stage.as_bearer(token);
        let body = json!({ "from_step": "choose", "input": input });
        let fork = stage.post(&format!("/api/v1/runs/{id}/fork"), body).await;
        assert_eq!((fork.status, fork.code().as_str()), (403, "forbidden"));
    }
    assert_eq!(stage.get(OPERATIONS).await.json()["items"].as_array().unwrap().len(), 1);
    stage.stop().await;
}

/// A change of many runs that has failed, as one does that its worker cannot finish.
async fn failed(stage: &Stage, action: &str) -> String {
    const BROKEN: Workflow<Value, ()> = Workflow::named("onward-operation");
    let failing = async |_: Ctx, _: Value| Err::<(), _>(Failure::fatal("no"));
    let worker = stage.onward.worker().queues(["elsewhere"]).serve(BROKEN, failing);
    let worker = worker.start().await.unwrap();
    let input = json!({
        "action": action, "filter": { "workflow": "double" }, "ids": [], "by": "root", "reason": null,
    });
    let run = stage.onward.start(BROKEN, &input).queue("elsewhere").await.unwrap();
    run.ended().await.unwrap();
    worker.shutdown().await.unwrap();
    run.id().to_string()
}

#[tokio::test]
async fn only_an_admin_lets_a_deletion_go_on() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    let (deletes, cancels) = (failed(&stage, "delete").await, failed(&stage, "cancel").await);
    stage.as_bearer(&tokens[1]);
    let retry = |id: &str| format!("/api/v1/runs/{id}/retry");
    let refused = stage.post(&retry(&deletes), json!({})).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
    let resume = stage.post(&format!("/api/v1/runs/{deletes}/resume"), json!({})).await;
    assert_eq!((resume.status, resume.code().as_str()), (403, "forbidden"));
    // Among many it is left alone, whoever asks.
    let many = json!({ "action": "retry", "ids": [&deletes] });
    let begun = stage.post(OPERATIONS, many).await.json()["operation"].clone();
    let done = ended(&stage, &begun["id"]).await;
    let counts = ["matched", "done", "skipped", "failed"].map(|name| done[name].as_u64().unwrap());
    assert_eq!(counts, [1, 0, 1, 0], "{done}");
    let left = stage.get(&format!("/api/v1/runs/{deletes}")).await.json();
    assert_eq!(left["run"]["state"], "failed");
    assert_eq!(stage.post(&retry(&cancels), json!({})).await.status, 200);
    stage.as_bearer(&tokens[2]);
    assert_eq!(stage.post(&retry(&deletes), json!({})).await.status, 200);
    stage.stop().await;
}

#[tokio::test]
async fn only_an_admin_deletes_many() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    stage.as_bearer(&tokens[1]);
    for input in 0..3 {
        stage.post(RUNS, json!({ "input": input })).await;
    }
    let filter = json!({ "workflow": "double" });
    let cancel = stage.post(OPERATIONS, json!({ "action": "cancel", "filter": filter })).await;
    ended(&stage, &cancel.json()["operation"]["id"]).await;
    stage.post(RUNS, json!({ "input": 3 })).await;
    let body = json!({ "action": "delete", "filter": filter });
    let refused = stage.post(OPERATIONS, body.clone()).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
    stage.as_bearer(&tokens[2]);
    let begun = stage.post(OPERATIONS, body).await;
    let done = ended(&stage, &begun.json()["operation"]["id"]).await;
    assert_eq!((&done["done"], &done["skipped"]), (&json!(3), &json!(1)), "{done}");
    let left = stage.get("/api/v1/runs?workflow=double").await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    stage.stop().await;
}

#[tokio::test]
async fn paused_runs_are_resumed_and_stuck_ones_retried_whatever_else_waits() {
    let stage = Stage::open().await.working().await;
    stage.onward.queue("bulk").pause().await.unwrap();
    let start = async |input: Value, queue: &str| {
        let run = stage.post(RUNS, json!({ "input": input, "queue": queue })).await;
        run.json()["run"]["id"].as_str().unwrap().to_owned()
    };
    let (paused, queued) = (start(json!(1), "bulk").await, start(json!(2), "bulk").await);
    stage.post(&format!("/api/v1/runs/{paused}/pause"), json!({})).await;
    let body = json!({ "action": "resume", "filter": { "state": ["paused", "stuck"] } });
    let dry = json!({ "action": "resume", "filter": body["filter"], "dry_run": true });
    assert_eq!(stage.post(OPERATIONS, dry).await.json(), json!({ "matched": 1, "more": false }));
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    assert_eq!(begun["filter"]["state"], json!(["paused", "stuck"]));
    let done = ended(&stage, &begun["id"]).await;
    let counts = ["matched", "done", "skipped"].map(|name| done[name].as_u64().unwrap());
    assert_eq!(counts, [1, 1, 0], "{done}");
    for id in [paused, queued] {
        let run = stage.get(&format!("/api/v1/runs/{id}")).await.json()["run"].clone();
        assert_eq!((&run["state"], &run["paused_at"]), (&json!("queued"), &Value::Null));
    }
    let other = json!({ "action": "retry", "filter": { "state": ["sleepy"] } });
    let refused = stage.post(OPERATIONS, other).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_request"));
    assert!(refused.text.contains("is not a state of a run"), "{}", refused.text);
    stage.stop().await;
}

#[tokio::test]
async fn a_pace_is_kept_with_the_change_and_belongs_to_it() {
    let stage = Stage::open().await;
    stage.post(RUNS, json!({ "input": 1 })).await;
    let body = |pace: Value| json!({ "action": "cancel", "filter": { "workflow": "double" }, "pace": pace });
    for wrong in [json!(0), json!(-1), json!("5")] {
        let refused = stage.post(OPERATIONS, body(wrong)).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_request"));
    }
    let begun = stage.keyed(OPERATIONS, "paced", body(json!(50))).await.json()["operation"].clone();
    assert_eq!(begun["pace"], 50);
    let other = stage.keyed(OPERATIONS, "paced", body(json!(5))).await;
    assert_eq!((other.status, other.code().as_str()), (422, "key_conflict"));
    let done = ended(&stage, &begun["id"]).await;
    assert_eq!((&done["done"], &done["pace"]), (&json!(1), &json!(50)));
    stage.stop().await;
}

/// The operation as soon as it has changed some runs.
async fn under_way(stage: &Stage, id: &Value) -> Value {
    let (path, begun) = (format!("{OPERATIONS}/{}", id.as_str().unwrap()), Instant::now());
    loop {
        let operation = stage.get(&path).await.json();
        if operation["done"].as_u64() > Some(0) {
            return operation;
        }
        assert!(begun.elapsed() < SOON, "{operation}");
    }
}

#[tokio::test]
async fn an_operation_says_how_far_it_is_and_is_aborted_between_two_pages() {
    const ALL: u64 = 2_000;
    let stage = Stage::open().await;
    stage.onward.start_many(DOUBLE, (0..ALL).map(|n| json!(n))).await.unwrap();
    let body = json!({ "action": "cancel", "filter": { "workflow": "double" } });
    let begun = stage.post(OPERATIONS, body).await.json()["operation"].clone();
    assert_eq!((&begun["expected"], &begun["expected_more"]), (&json!(ALL), &json!(false)));
    let some = under_way(&stage, &begun["id"]).await;
    let (done, matched) = (some["done"].as_u64().unwrap(), some["matched"].as_u64().unwrap());
    assert!(done < ALL && matched < ALL, "{some}");
    assert_eq!(some["expected"], ALL, "it is measured by the count at its beginning");
    let path = format!("{OPERATIONS}/{}/abort", begun["id"].as_str().unwrap());
    assert_eq!(stage.send("POST", &path, Asked::default()).await.status, 200);
    let ended = ended(&stage, &begun["id"]).await;
    assert_eq!(ended["state"], "aborted", "{ended}");
    let done = ended["done"].as_u64().unwrap();
    let filter = Filter {
        states: vec![onward::RunState::Cancelled],
        workflow: Some("double".to_owned()),
        ..Filter::default()
    };
    let would = stage.onward.matching(filter).delete().dry_run().await.unwrap();
    assert!((done..=done + 200).contains(&would.matched), "{} of {ended}", would.matched);
    assert!(would.matched < ALL, "it was aborted");
    stage.stop().await;
}

#[tokio::test]
async fn the_children_of_a_run_are_changed_and_no_others() {
    const FAMILY: Workflow<Value, Value> = Workflow::named("family");
    let stage = Stage::open().await;
    let worker = stage.onward.worker().serve(FAMILY, async |ctx: Ctx, input: Value| {
        for child in 0..2 {
            ctx.start(DOUBLE, &json!(child)).detached().await?;
        }
        Ok(input)
    });
    let worker = worker.start().await.unwrap();
    let path = "/api/v1/workflows/family/runs?wait_ms=20000";
    let mut parents = Vec::new();
    for input in 0..2 {
        parents.push(stage.post(path, json!({ "input": input })).await.json()["run"]["id"].clone());
    }
    let filter = json!({ "parent": parents[0], "state": ["queued"] });
    let dry = json!({ "action": "cancel", "filter": filter, "dry_run": true });
    assert_eq!(stage.post(OPERATIONS, dry).await.json()["matched"], 2);
    let begun = stage.post(OPERATIONS, json!({ "action": "cancel", "filter": filter })).await;
    let done = ended(&stage, &begun.json()["operation"]["id"]).await;
    assert_eq!((&done["done"], &done["filter"]["parent"]), (&json!(2), &parents[0]), "{done}");
    for (parent, state) in parents.iter().zip(["cancelled", "queued"]) {
        let path = format!("/api/v1/runs?parent={}", parent.as_str().unwrap());
        let children = stage.get(&path).await.json();
        let states: Vec<_> =
            children["items"].as_array().unwrap().iter().map(|run| &run["state"]).collect();
        assert_eq!(states, [state, state]);
    }
    let unread = json!({ "action": "cancel", "filter": { "parent": "nonsense" } });
    assert_eq!(stage.post(OPERATIONS, unread).await.code(), "invalid_request");
    worker.shutdown().await.unwrap();
    stage.stop().await;
}
