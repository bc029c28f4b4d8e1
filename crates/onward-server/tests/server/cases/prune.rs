//! Runs that ended long ago are deleted.

use onward_server::{Access, Options, Role};
use serde_json::json;

use super::stage::Stage;

const PRUNE: &str = "/api/v1/prune";
const RUNS: &str = "/api/v1/workflows/double/runs";

/// The ids of three runs: the first two are cancelled.
async fn three(stage: &Stage) -> Vec<String> {
    let mut ids = Vec::new();
    for input in 0..3 {
        let run = stage.post(RUNS, json!({ "input": input })).await.json();
        ids.push(run["run"]["id"].as_str().unwrap().to_owned());
    }
    for id in &ids[..2] {
        assert_eq!(stage.post(&format!("/api/v1/runs/{id}/cancel"), json!({})).await.status, 200);
    }
    ids
}

#[tokio::test]
async fn what_ended_long_ago_is_counted_and_then_deleted() {
    let stage = Stage::open().await;
    let ids = three(&stage).await;
    let dry = stage.post(PRUNE, json!({ "older_than_ms": 0, "dry_run": true })).await;
    assert_eq!((dry.status, dry.json()), (200, json!({ "runs": 2, "more": false })));
    let audit = stage.get("/api/v1/audit?limit=1").await.json()["items"][0].clone();
    assert_eq!((&audit["action"], &audit["outcome"]), (&json!("prune_runs"), &json!("counted")));
    for (body, runs) in [
        (json!({ "older_than_ms": 3_600_000 }), 0),
        (json!({ "older_than_ms": 0, "state": ["completed", "failed"] }), 0),
        (json!({ "older_than_ms": 0, "state": ["cancelled"] }), 2),
        (json!({ "older_than_ms": 0 }), 0),
    ] {
        let pruned = stage.post(PRUNE, body.clone()).await.json();
        assert_eq!(pruned, json!({ "runs": runs, "more": false }), "{body}");
    }
    let left = stage.get("/api/v1/runs").await.json();
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    assert_eq!(left["items"][0]["id"], ids[2].as_str(), "it has not ended");
    let audit = stage.get("/api/v1/audit?limit=2").await.json()["items"][1].clone();
    assert_eq!((&audit["who"], &audit["outcome"]), (&json!("anyone"), &json!("ok")));
    assert_eq!(audit["detail"], "2 runs that ended at least 0 s ago: cancelled");
    stage.stop().await;
}

#[tokio::test]
async fn a_run_that_has_not_ended_is_not_asked_for() {
    let stage = Stage::open().await;
    three(&stage).await;
    for body in [
        json!({}),
        json!({ "older_than_ms": -1 }),
        json!({ "older_than_ms": 0, "state": ["queued"] }),
        json!({ "older_than_ms": 0, "states": ["failed"] }),
    ] {
        let refused = stage.post(PRUNE, body.clone()).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_request"), "{body}");
    }
    assert_eq!(stage.get("/api/v1/runs").await.json()["items"].as_array().unwrap().len(), 3);
    stage.stop().await;
    let shows = Stage::with(Options::new(Access::Open(Role::Admin)).read_only()).await;
    assert_eq!(shows.post(PRUNE, json!({ "older_than_ms": 0 })).await.status, 403);
    shows.stop().await;
}
