//! Looking at runs, and steering them.

use onward::{Ctx, RunId, Workflow};
use serde_json::{Value, json};

use super::stage::{Asked, DOUBLE, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";

#[tokio::test]
async fn runs_come_in_pages_newest_first() {
    let stage = Stage::open().await;
    for input in 0..5 {
        stage.post(RUNS, json!({ "input": input })).await;
    }
    let first = stage.get("/api/v1/runs?limit=3").await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 3);
    let next = first["next"].as_str().unwrap();
    let rest = stage.get(&format!("/api/v1/runs?limit=3&cursor={next}")).await.json();
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (2, &json!(null)));
    let row = &first["items"][0];
    assert!(row.get("input").is_none() && row.get("output").is_none(), "{row}");
    assert!(row["why"].as_str().unwrap().contains("No live worker"), "{row}");
    for wrong in ["limit=0", "limit=201", "limit=x", "cursor=x", "state=sleeping", "tag=x"] {
        let reply = stage.get(&format!("/api/v1/runs?{wrong}")).await;
        assert_eq!(reply.status, 400, "{wrong}: {reply:?}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn every_filter_holds_back_what_does_not_fit() {
    let stage = Stage::open().await;
    let bulk = json!({ "input": 1, "queue": "bulk", "tags": { "tenant": "a:b" } });
    let bulk = stage.keyed(RUNS, "order-1", bulk).await.json()["run"].clone();
    let plain = stage.post(RUNS, json!({ "input": 2 })).await.json()["run"].clone();
    let id = plain["id"].as_str().unwrap();
    stage.post(&format!("/api/v1/runs/{id}/cancel"), json!({})).await;
    let filters = [
        "queue=bulk",
        "key=order-1",
        "tag=tenant:a:b",
        "state=queued,running",
        "workflow=double&queue=bulk",
    ];
    for filter in filters {
        let page = stage.get(&format!("/api/v1/runs?{filter}")).await.json();
        let ids: Vec<_> = page["items"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
        assert_eq!(ids, [&bulk["id"]], "{filter}");
    }
    let none = stage.get("/api/v1/runs?created_before=1").await.json();
    assert_eq!(none["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn a_run_shows_its_history_by_rows_and_by_columns() {
    let stage = Stage::open().await.working().await;
    let run = stage.post(&format!("{RUNS}?wait_ms=20000"), json!({ "input": 4 })).await.json();
    let id = run["run"]["id"].as_str().unwrap();
    let history = stage.get(&format!("/api/v1/runs/{id}/history")).await.json();
    assert_eq!(history["items"][0]["entry"], json!({ "kind": "done", "value": 8 }));
    let timeline = stage.get(&format!("/api/v1/runs/{id}/timeline")).await.json();
    assert_eq!(
        (&timeline["steps"], &timeline["rows"]["kind"]),
        (&json!(["twice"]), &json!(["done"]))
    );
    let seq = &history["items"][0]["seq"];
    let record = stage.get(&format!("/api/v1/runs/{id}/records/{seq}")).await.json();
    assert_eq!(record, history["items"][0]);
    let none = stage.get(&format!("/api/v1/runs/{id}/records/9999")).await;
    assert_eq!((none.status, none.code().as_str()), (404, "no_such_path"));
    let steps = stage.get("/api/v1/workflows/double/steps").await.json();
    assert_eq!((&steps["sample"], &steps["items"][0]["step"]), (&json!(1), &json!("twice")));
    let stats = stage.get("/api/v1/stats").await.json();
    assert_eq!(stats["runs"]["completed"], 1);
    let series = stats["series"].as_array().unwrap();
    assert_eq!(series.len(), 60, "every minute of the hour is there");
    assert_eq!(series.iter().map(|it| it["ended"].as_i64().unwrap()).sum::<i64>(), 1, "{series:?}");
    let workflows = stage.get("/api/v1/workflows").await.json();
    assert_eq!(workflows["items"][0]["runs"], json!({ "completed": 1 }));
    stage.stop().await;
}

#[tokio::test]
async fn a_failed_run_is_grouped_and_retried() {
    let stage = Stage::open().await.working().await;
    for input in ["one", "two"] {
        stage.post(&format!("{RUNS}?wait_ms=20000"), json!({ "input": input })).await;
    }
    let errors = stage.get("/api/v1/errors?window_ms=600000").await.json();
    assert_eq!((&errors["sample"], errors["items"].as_array().unwrap().len()), (&json!(2), 1));
    let group = &errors["items"][0];
    assert_eq!((&group["code"], &group["count"]), (&json!("no_number"), &json!(2)));
    let id = group["sample_run"].as_str().unwrap();
    let retried = stage.post(&format!("/api/v1/runs/{id}/retry"), json!({})).await;
    assert_eq!(retried.status, 200, "{retried:?}");
    stage.ended(&retried.json()["run"]).await;
    let cancelled = stage.post(&format!("/api/v1/runs/{id}/cancel"), json!({})).await;
    assert_eq!((cancelled.status, cancelled.code().as_str()), (409, "run_finished"));
    stage.stop().await;
}

#[tokio::test]
async fn a_signal_with_a_key_is_delivered_once() {
    let stage = Stage::open().await;
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"].clone();
    let path = format!("/api/v1/runs/{}/signals", run["id"].as_str().unwrap());
    let body = json!({ "name": "approved", "value": true });
    let first = stage.keyed(&path, "click-1", body.clone()).await;
    assert_eq!((first.status, &first.json()["delivered"]), (202, &json!("new")));
    let again = stage.keyed(&path, "click-1", body).await;
    assert_eq!((again.status, &again.json()["delivered"]), (202, &json!("again")));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let other = stage.keyed(&path, "click-1", json!({ "name": "approved", "value": 1 })).await;
    assert_eq!((other.status, other.code().as_str()), (422, "key_conflict"));
    let both = json!({ "name": "approved", "value": true, "key": "click-2" });
    assert_eq!(stage.keyed(&path, "click-1", both).await.status, 400);
    stage.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_404_and_what_is_no_id_is_400() {
    let stage = Stage::open().await;
    let missing = stage.get("/api/v1/runs/01890a5d-ac96-774b-bcce-b302099a8057").await;
    assert_eq!((missing.status, missing.code().as_str()), (404, "run_not_found"));
    let wrong = stage.get("/api/v1/runs/seven").await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "invalid_id"));
    let nowhere = stage.get("/api/v1/nowhere").await;
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "no_such_path"));
    let method = stage.send("DELETE", "/api/v1/meta", Asked::default()).await;
    assert_eq!((method.status, method.code().as_str()), (405, "no_such_path"));
    assert_eq!(method.header("allow"), Some("GET"));
    stage.stop().await;
}

#[tokio::test]
async fn runs_are_exported_whole() {
    let stage = Stage::open().await;
    for input in 0..3 {
        stage.keyed(RUNS, &format!("=cmd,{input}"), json!({ "input": input })).await;
    }
    let csv = stage.get("/api/v1/runs.csv?workflow=double").await;
    let lines: Vec<_> = csv.text.lines().collect();
    assert_eq!(lines.len(), 4, "{}", csv.text);
    assert!(lines[0].starts_with("id,workflow,state"), "{}", lines[0]);
    assert!(lines[1].contains("\"'=cmd,2\""), "{}", lines[1]);
    let jsonl = stage.get("/api/v1/runs.jsonl?state=queued").await;
    let rows = jsonl.text.lines().map(|line| serde_json::from_str(line).unwrap());
    let keys: Vec<serde_json::Value> =
        rows.map(|row: serde_json::Value| row["key"].clone()).collect();
    assert_eq!(keys, ["=cmd,2", "=cmd,1", "=cmd,0"]);
    stage.stop().await;
}

#[tokio::test]
async fn metrics_and_probes_are_answered() {
    let stage = Stage::open().await;
    stage.keyed(RUNS, "order-7", json!({ "input": 1, "queue": "b\"ulk" })).await;
    stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await;
    let metrics = stage.get("/metrics").await.text;
    let has = |line: &str| assert!(metrics.lines().any(|it| it == line), "{line}:\n{metrics}");
    has("onward_runs{state=\"queued\"} 1");
    has("onward_queue_depth{queue=\"b\\\"ulk\"} 1");
    has("onward_idempotency_requests_total{outcome=\"first\"} 1");
    has("onward_idempotency_requests_total{outcome=\"replayed\"} 1");
    has("onward_http_requests_total{endpoint=\"start_run\",status=\"201\"} 1");
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("onward_"), "{line}");
    }
    assert_eq!(stage.get("/livez").await.text, "ok\n");
    assert_eq!(
        (stage.get("/readyz").await.status, stage.get("/readyz").await.text.as_str()),
        (200, "ok\n")
    );
    stage.stop().await;
}

#[tokio::test]
async fn a_run_is_deleted_when_it_has_ended() {
    let stage = Stage::open().await;
    let run = stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await.json()["run"].clone();
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let early = stage.send("DELETE", &path, Asked::default()).await;
    assert_eq!((early.status, early.code().as_str()), (409, "run_not_ended"));
    stage.post(&format!("{path}/cancel"), json!({})).await;
    let deleted = stage.send("DELETE", &path, Asked::default()).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    let again = stage.send("DELETE", &path, Asked::default()).await;
    assert_eq!((again.status, again.code().as_str()), (404, "run_not_found"));
    assert_eq!(stage.get("/api/v1/keys").await.json()["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn a_pause_names_who_asked_for_it() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    stage.as_bearer(&tokens[1]);
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"].clone();
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let paused = stage.post(&format!("{path}/pause"), json!({})).await;
    assert_eq!(paused.json()["run"]["paused_by"], "operate", "{paused:?}");
    let why = stage.get(&path).await.json()["why"]["text"].clone();
    assert!(why.as_str().unwrap().contains("by operate"), "{why}");
    let nobody = stage.post(&format!("/api/v1/runs/{}/pause", RunId::new()), json!({})).await;
    assert_eq!((nobody.status, nobody.code().as_str()), (404, "run_not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn a_run_is_paused_and_resumed() {
    let stage = Stage::open().await;
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"].clone();
    let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
    let paused = stage.post(&format!("{path}/pause"), json!({})).await;
    assert_eq!((paused.status, paused.json()["run"]["paused_at"].is_i64()), (200, true));
    assert_eq!(stage.get(&path).await.json()["why"]["code"], "paused");
    let resumed = stage.post(&format!("{path}/resume"), json!({})).await;
    assert!(resumed.json()["run"]["paused_at"].is_null(), "{resumed:?}");
    stage.post(&format!("{path}/cancel"), json!({})).await;
    let late = stage.post(&format!("{path}/pause"), json!({})).await;
    assert_eq!((late.status, late.code().as_str()), (409, "run_finished"));
    stage.stop().await;
}

/// Each name has a queue of its own, and its own keys.
#[tokio::test]
async fn a_key_of_a_signal_is_one_of_its_name() {
    let stage = Stage::open().await;
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"].clone();
    let path = format!("/api/v1/runs/{}/signals", run["id"].as_str().unwrap());
    for name in ["approved", "rejected"] {
        let first = stage.keyed(&path, "click-1", json!({ "name": name })).await;
        assert_eq!((first.status, &first.json()["delivered"]), (202, &json!("new")), "{name}");
        let again = stage.keyed(&path, "click-1", json!({ "name": name })).await;
        assert_eq!((again.status, &again.json()["delivered"]), (202, &json!("again")), "{name}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_fork_happens_once_for_its_idempotency_key() {
    let stage = Stage::open().await.working().await;
    let run = stage.post(&format!("{RUNS}?wait_ms=20000"), json!({ "input": 4 })).await.json();
    let path = format!("/api/v1/runs/{}/fork", run["run"]["id"].as_str().unwrap());
    let body = json!({ "from_step": "twice", "input": 5 });
    let first = stage.keyed(&path, "fork-1", body.clone()).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None), "{first:?}");
    stage.ended(&first.json()["run"]).await;
    let again = stage.keyed(&path, "fork-1", body.clone()).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.json()["run"]["id"], first.json()["run"]["id"]);
    for other in [json!({ "from_step": "twice", "input": 6 }), json!({ "from_step": "twice" })] {
        let refused = stage.keyed(&path, "fork-1", other).await;
        assert_eq!((refused.status, refused.code().as_str()), (422, "key_conflict"));
        assert_eq!(refused.json()["run_id"], first.json()["run"]["id"], "it names the run");
    }
    let both = json!({ "from_step": "twice", "key": "fork-2" });
    assert_eq!(stage.keyed(&path, "fork-1", both).await.code(), "invalid_request");
    stage.stop().await;
}

#[tokio::test]
async fn a_run_is_forked_with_another_input() {
    let stage = Stage::open().await.working().await;
    let run = stage.post(&format!("{RUNS}?wait_ms=20000"), json!({ "input": 4 })).await.json();
    let path = format!("/api/v1/runs/{}", run["run"]["id"].as_str().unwrap());
    let body = json!({ "from_step": "twice", "input": 5, "key": "fork-1" });
    let forked = stage.post(&format!("{path}/fork"), body.clone()).await;
    assert_eq!(forked.status, 201, "{forked:?}");
    assert_eq!(forked.json()["run"]["forked_from"], run["run"]["id"]);
    stage.ended(&forked.json()["run"]).await;
    let place = forked.header("location").unwrap();
    assert_eq!(stage.get(place).await.json()["run"]["output"], 10);
    let again = stage.post(&format!("{path}/fork"), body).await;
    assert_eq!((again.status, again.code().as_str()), (409, "key_taken"));
    let nowhere = stage.post(&format!("{path}/fork"), json!({ "from_step": "thrice" })).await;
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "step_not_found"));
    let log = stage.get(&format!("{path}/log")).await.json();
    assert_eq!(log["items"], json!([]));
    stage.stop().await;
}

#[tokio::test]
async fn a_timeline_tells_the_delay_from_the_queue() {
    let stage = Stage::open().await;
    let timeline = async |body: Value| {
        let run = stage.post(RUNS, body).await.json()["run"].clone();
        let path = format!("/api/v1/runs/{}/timeline", run["id"].as_str().unwrap());
        (run["created_at"].as_i64().unwrap(), stage.get(&path).await.json())
    };
    let (from, delayed) = timeline(json!({ "input": 1, "delay_ms": 60_000 })).await;
    assert_eq!(delayed["delay"], json!({ "from": from, "to": from + 60_000 }));
    assert_eq!(delayed["queue"], json!([]));
    let (from, at_once) = timeline(json!({ "input": 1 })).await;
    assert_eq!((&at_once["delay"], &at_once["queue"][0]["from"]), (&json!(null), &json!(from)));
    stage.stop().await;
}

#[tokio::test]
async fn the_children_of_a_run_are_listed() {
    const FAMILY: Workflow<Value, Value> = Workflow::named("family");
    let stage = Stage::open().await;
    let worker = stage.onward.worker().serve(FAMILY, async |ctx: Ctx, input: Value| {
        ctx.start(DOUBLE, &input).detached().await?;
        Ok(input)
    });
    let worker = worker.start().await.unwrap();
    let path = "/api/v1/workflows/family/runs?wait_ms=20000";
    let parent = stage.post(path, json!({ "input": 1 })).await.json()["run"]["id"].clone();
    let children = format!("/api/v1/runs?parent={}", parent.as_str().unwrap());
    let listed = stage.get(&children).await.json();
    let [child] = &listed["items"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&child["workflow"], &child["parent"]["run"]), (&json!("double"), &parent));
    let unread = stage.get("/api/v1/runs?parent=nonsense").await;
    assert_eq!((unread.status, unread.code().as_str()), (400, "invalid_id"));
    worker.shutdown().await.unwrap();
    stage.stop().await;
}

/// Otherwise nobody would be told that no worker is up.
#[tokio::test]
async fn the_worker_of_the_server_itself_is_not_among_the_workers() {
    let stage = Stage::open().await;
    assert_eq!(stage.get("/api/v1/workers").await.json()["items"], json!([]));
    assert_eq!(stage.onward.stats().await.unwrap().workers.len(), 1, "it has one");
    assert_eq!(stage.get("/api/v1/stats").await.json()["workers"], json!([]));
    let metrics = stage.get("/metrics").await.text;
    assert!(!metrics.contains("onward_workers{"), "{metrics}");
    stage.stop().await;
    let stage = Stage::open().await.working().await;
    let workers = stage.get("/api/v1/workers").await.json();
    let [worker] = &workers["items"].as_array().unwrap()[..] else { panic!("{workers}") };
    assert_eq!(worker["workflows"], json!(["double"]));
    stage.stop().await;
}
