//! Schedules over HTTP.

use serde_json::json;

use super::stage::{Asked, Stage};

const NIGHTLY: &str = "/api/v1/schedules/nightly";

#[tokio::test]
async fn a_schedule_is_put_steered_and_removed() {
    let stage = Stage::open().await;
    let body = json!({
        "workflow": "double",
        "spec": { "cron": { "cron": "0 3 * * *", "time_zone": "Europe/Berlin" } },
        "input": 1,
        "catch_up": { "all": { "max": 7 } },
    });
    let put = stage.send("PUT", NIGHTLY, Asked { body: Some(body), ..Asked::default() }).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(put.json()["next"].as_array().unwrap().len(), 5);
    let list = stage.get("/api/v1/schedules").await.json();
    assert_eq!(list["items"][0]["name"], "nightly");
    let more = stage.get(&format!("{NIGHTLY}?times=12")).await.json();
    assert_eq!(more["next"].as_array().unwrap().len(), 12);
    for wrong in ["0", "101", "x"] {
        let refused = stage.get(&format!("{NIGHTLY}?times={wrong}")).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_request"), "{wrong}");
    }
    let paused = stage.post(&format!("{NIGHTLY}/pause"), json!({})).await.json();
    assert!(paused["paused_at"].is_i64(), "{paused}");
    let resumed = stage.post(&format!("{NIGHTLY}/resume"), json!({})).await.json();
    assert!(resumed["paused_at"].is_null(), "{resumed}");
    let triggered = stage.post(&format!("{NIGHTLY}/trigger"), json!({})).await.json();
    assert_eq!(triggered["how"], "started");
    let now = stage.get("/api/v1/meta").await.json()["now"].as_i64().unwrap();
    let body = json!({ "from": now - 3 * 24 * 60 * 60 * 1000, "before": now });
    let backfilled = stage.post(&format!("{NIGHTLY}/backfill"), body).await.json();
    assert_eq!(backfilled["started"], 3);
    let removed = stage.send("DELETE", NIGHTLY, Asked::default()).await;
    assert_eq!(removed.json(), json!({ "removed": true }));
    let gone = stage.get(NIGHTLY).await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "schedule_not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn a_schedule_that_never_comes_is_refused() {
    let stage = Stage::open().await;
    let specs = [
        json!({ "cron": { "cron": "61 3 * * *", "time_zone": "UTC" } }),
        json!({ "cron": { "cron": "0 3 * * *", "time_zone": "Mars/Olympus" } }),
        json!({ "every": { "every_ms": -1, "anchor": 0 } }),
    ];
    for spec in specs {
        let body = Some(json!({ "workflow": "double", "spec": spec }));
        let reply = stage.send("PUT", NIGHTLY, Asked { body, ..Asked::default() }).await;
        assert_eq!(reply.status, 400, "{spec}: {reply:?}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_trigger_with_a_key_starts_one_run() {
    let stage = Stage::open().await;
    let body = json!({
        "workflow": "double",
        "spec": { "every": { "every_ms": 86_400_000, "anchor": 0 } },
        "overlap": "allow",
    });
    stage.send("PUT", NIGHTLY, Asked { body: Some(body), ..Asked::default() }).await;
    let path = format!("{NIGHTLY}/trigger");
    let first = stage.keyed(&path, "now-1", json!({})).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (200, None));
    let again = stage.keyed(&path, "now-1", json!({})).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.json()["run"], first.json()["run"]);
    let other = stage.keyed(&path, "now-2", json!({})).await;
    assert_ne!(other.json()["run"], first.json()["run"], "another key is another request");
    let latest = stage.get(NIGHTLY).await.json()["latest"].clone();
    stage.keyed(&path, "now-1", json!({})).await;
    let after = stage.get(NIGHTLY).await.json()["latest"].clone();
    assert!(!latest.is_null() && latest == after, "the repeat is not the latest: {after}");
    let runs = stage.get("/api/v1/runs?workflow=double").await.json();
    assert_eq!(runs["items"].as_array().unwrap().len(), 2);
    let nowhere = stage.keyed("/api/v1/schedules/none/trigger", "now-1", json!({})).await;
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "schedule_not_found"));
    stage.stop().await;
}

/// The answer that was lost, whatever came of the first request and has changed since.
#[tokio::test]
async fn a_trigger_with_a_key_replays_its_first_answer() {
    let stage = Stage::open().await;
    let trigger = format!("{NIGHTLY}/trigger");
    let policies =
        [("skip", "skipped"), ("buffer_one", "buffered"), ("cancel_previous", "replaced")];
    for (overlap, how) in policies {
        let body = json!({
            "workflow": "double",
            "spec": { "every": { "every_ms": 86_400_000, "anchor": 0 } },
            "overlap": overlap,
        });
        let put = stage.send("PUT", NIGHTLY, Asked { body: Some(body), ..Asked::default() }).await;
        assert_eq!(put.status, 200, "{put:?}");
        let key = |which| format!("{overlap}-{which}");
        let before = stage.keyed(&trigger, &key("before"), json!({})).await.json();
        assert_eq!(before["how"], "started", "{overlap}");
        let first = stage.keyed(&trigger, &key("now"), json!({})).await;
        assert_eq!(
            (&first.json()["how"], first.header("idempotent-replayed")),
            (&json!(how), None)
        );
        // What it met ends, and the runs are deleted: a new trigger would start one.
        let runs = stage.get("/api/v1/runs?workflow=double").await.json();
        for run in runs["items"].as_array().unwrap() {
            let path = format!("/api/v1/runs/{}", run["id"].as_str().unwrap());
            stage.post(&format!("{path}/cancel"), json!({})).await;
            let deleted = stage.send("DELETE", &path, Asked::default()).await;
            assert_eq!(deleted.status, 204, "{deleted:?}");
        }
        let again = stage.keyed(&trigger, &key("now"), json!({})).await;
        assert_eq!(again.json(), first.json(), "{overlap}");
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        let left = stage.get("/api/v1/runs?workflow=double").await.json();
        assert_eq!(left["items"], json!([]), "{overlap}: the repeat started a run");
    }
    stage.stop().await;
}
