//! Queues over HTTP: what is in them, their limits, and their pause.

use serde_json::json;

use super::stage::{Asked, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";
const BULK: &str = "/api/v1/queues/bulk";

#[tokio::test]
async fn a_queue_is_limited_paused_and_resumed() {
    let stage = Stage::open().await;
    let run = stage.post(RUNS, json!({ "input": 1, "queue": "bulk", "lane": "acme" })).await.json();
    assert_eq!(run["run"]["lane"], "acme");
    let body = Some(json!({ "concurrency": 2, "rate": { "count": 10, "period_ms": 1_000 } }));
    let put = stage.send("PUT", BULK, Asked { body, ..Asked::default() }).await;
    assert_eq!(put.status, 200, "{put:?}");
    let limits = put.json()["limits"].clone();
    assert_eq!((&limits["concurrency"], &limits["rate"]["count"]), (&json!(2), &json!(10)));
    let paused = stage.post(&format!("{BULK}/pause"), json!({})).await.json();
    assert!(paused["paused_at"].is_i64(), "{paused}");
    let path = format!("/api/v1/runs/{}", run["run"]["id"].as_str().unwrap());
    assert_eq!(stage.get(&path).await.json()["why"]["code"], "queue_paused");
    let list = stage.get("/api/v1/queues").await.json();
    let bulk = list["items"].as_array().unwrap().iter().find(|it| it["name"] == "bulk").unwrap();
    assert_eq!((&bulk["queued"], bulk["paused_at"].is_i64()), (&json!(1), true));
    assert_eq!(bulk["oldest_due_at"], run["run"]["due_at"]);
    let resumed = stage.post(&format!("{BULK}/resume"), json!({})).await.json();
    assert!(resumed["paused_at"].is_null(), "{resumed}");
    let body = Some(json!({ "concurrency": 0 }));
    let none = stage.send("PUT", BULK, Asked { body, ..Asked::default() }).await;
    assert_eq!((none.status, none.code().as_str()), (400, "invalid_option"));
    stage.stop().await;
}

#[tokio::test]
async fn a_queue_is_cleared_in_one_call() {
    let stage = Stage::open().await;
    let body = Some(json!({ "concurrency": 2 }));
    stage.send("PUT", BULK, Asked { body, ..Asked::default() }).await;
    stage.post(&format!("{BULK}/pause"), json!({})).await;
    let cleared = stage.send("DELETE", BULK, Asked::default()).await.json();
    assert_eq!(cleared["cleared"], true);
    assert!(cleared["queue"]["paused_at"].is_null(), "{cleared}");
    assert!(cleared["queue"]["limits"]["concurrency"].is_null(), "{cleared}");
    let again = stage.send("DELETE", BULK, Asked::default()).await.json();
    assert_eq!(again["cleared"], false, "it had none any more");
    stage.stop().await;
}

/// Otherwise a queue would look served that nobody of the user's serves.
#[tokio::test]
async fn the_queue_of_the_server_itself_is_not_among_the_queues() {
    let stage = Stage::open().await.working().await;
    let list = stage.get("/api/v1/queues").await.json();
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["default"], "{list}");
    assert_eq!(list["items"][0]["served_by"], 1);
    stage.stop().await;
}

#[tokio::test]
async fn every_queue_is_in_the_metrics() {
    let stage = Stage::open().await;
    for number in 0..120 {
        stage.post(RUNS, json!({ "queue": format!("queue-{number}") })).await;
    }
    let page = stage.get("/metrics").await.text;
    let late = page.lines().filter(|line| line.starts_with("onward_queue_oldest_due_seconds{"));
    assert_eq!(late.count(), 120, "{page}");
    stage.stop().await;
}
