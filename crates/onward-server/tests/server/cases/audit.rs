//! What the audit says of changes of many runs.

use onward_server::{Access, Options, Role};
use serde_json::{Value, json};

use super::stage::Stage;

const OPERATIONS: &str = "/api/v1/operations";

/// The newest row.
async fn newest(stage: &Stage) -> Value {
    stage.get("/api/v1/audit?limit=1").await.json()["items"][0].clone()
}

#[tokio::test]
async fn a_dry_run_is_not_taken_for_a_change() {
    let stage = Stage::open().await;
    let body = json!({ "action": "cancel", "filter": { "queue": "bulk" }, "dry_run": true });
    assert_eq!(stage.post(OPERATIONS, body).await.status, 200);
    let row = newest(&stage).await;
    assert_eq!((&row["action"], &row["outcome"]), (&json!("begin_operation"), &json!("counted")));
    assert_eq!(row["detail"], "a dry run: nothing was changed");
    let refused = json!({ "action": "cancel", "dry_run": true });
    stage.post(OPERATIONS, refused).await;
    assert_eq!(newest(&stage).await["outcome"], "invalid_request");
    stage.stop().await;
}

#[tokio::test]
async fn the_reason_of_a_change_is_kept() {
    let stage = Stage::open().await;
    let with = |reason: &str| {
        let filter = json!({ "queue": "bulk" });
        json!({ "action": "cancel", "filter": filter, "reason": reason })
    };
    let begun = stage.post(OPERATIONS, with("the bank is back")).await.json();
    let id = begun["operation"]["id"].as_str().unwrap();
    let row = newest(&stage).await;
    assert_eq!(row["detail"], format!("Cancel as run {id}: the bank is back"));
    assert_eq!(stage.post(OPERATIONS, with(&"é".repeat(500))).await.status, 202);
    let long = stage.post(OPERATIONS, with(&"é".repeat(501))).await;
    assert_eq!((long.status, long.code().as_str()), (400, "invalid_request"));
    let nul = stage.post(OPERATIONS, with("a\0b")).await;
    assert_eq!((nul.status, nul.code().as_str()), (400, "nul_character"));
    stage.stop().await;
}

#[tokio::test]
async fn a_page_is_told_whether_payloads_are_as_they_were_stored() {
    let plain = Stage::open().await;
    assert_eq!(plain.get("/api/v1/meta").await.json()["redacts_payloads"], false);
    plain.stop().await;
    let options = Options::new(Access::Open(Role::Admin)).redact(|payload| payload.json.clone());
    let redacted = Stage::with(options).await;
    assert_eq!(redacted.get("/api/v1/meta").await.json()["redacts_payloads"], true);
    redacted.stop().await;
}
