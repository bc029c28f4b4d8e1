//! Keys of runs and of steps: look-ups, duplicates, conflicts, release.

use std::time::{Duration, Instant};

use onward::Failure;
use serde_json::json;

use super::stage::{Asked, SOON, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";

#[tokio::test]
async fn keys_are_found_by_prefix_in_pages() {
    let stage = Stage::open().await;
    for number in 1..=3 {
        stage.keyed(RUNS, &format!("order:{number}"), json!({ "input": number })).await;
    }
    stage.keyed(RUNS, "bill-1", json!({ "input": 1 })).await;
    let first = stage.get("/api/v1/keys?prefix=order&limit=2").await.json();
    let next = first["next"].as_str().unwrap();
    let rest = stage.get(&format!("/api/v1/keys?prefix=order&limit=2&cursor={next}")).await.json();
    let all = first["items"].as_array().unwrap().iter().chain(rest["items"].as_array().unwrap());
    let keys: Vec<_> = all.map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!((keys, &rest["next"]), (vec!["order:1", "order:2", "order:3"], &json!(null)));
    let none = stage.get("/api/v1/keys?workflow=other").await.json();
    assert_eq!(none["items"], json!([]));
    assert_eq!(stage.get("/api/v1/keys?cursor=x").await.status, 400);
    stage.stop().await;
}

#[tokio::test]
async fn duplicates_and_conflicts_are_told() {
    let stage = Stage::open().await;
    for input in [1, 1, 1, 2, 3] {
        stage.keyed(RUNS, "order/7", json!({ "input": input })).await;
    }
    stage.keyed(RUNS, "order-8", json!({ "input": 1 })).await;
    let top = stage.get("/api/v1/keys/top").await.json();
    assert_eq!(top["items"].as_array().unwrap().len(), 1);
    let key = &top["items"][0];
    assert_eq!(
        (&key["key"], &key["duplicates"], &key["conflicts"]),
        (&json!("order/7"), &json!(4), &json!(2))
    );
    let conflicts = stage.get("/api/v1/keys/conflicts?limit=1").await.json();
    let next = conflicts["next"].as_str().unwrap();
    let rest = stage.get(&format!("/api/v1/keys/conflicts?cursor={next}")).await.json();
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)));
    let shown = stage.get("/api/v1/keys/double/order%2F7").await.json();
    assert_eq!(
        (&shown["run"]["key"], &shown["duplicates"]["count"]),
        (&json!("order/7"), &json!(4))
    );
    assert_eq!(
        (&shown["conflicts"], &shown["expires_at"], &shown["held"]),
        (&json!(2), &json!(null), &json!(true))
    );
    let none = stage.get("/api/v1/keys/double/order-9").await;
    assert_eq!((none.status, none.code().as_str()), (404, "key_not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn a_key_says_when_it_is_free_and_is_found_after_that() {
    const PATH: &str = "/api/v1/keys/double/order-1";
    let stage = Stage::open().await;
    for (key, ttl) in [("order-1", 60_000), ("order-10", 90_000)] {
        stage.keyed(RUNS, key, json!({ "input": 1, "key_ttl_ms": ttl })).await;
    }
    let shown = stage.get(PATH).await.json();
    let kept = shown["expires_at"].as_i64().unwrap() - shown["run"]["created_at"].as_i64().unwrap();
    assert_eq!((kept, &shown["held"]), (60_000, &json!(true)));
    let short = json!({ "input": 2, "key_ttl_ms": 1 });
    let run = stage.keyed(RUNS, "order-2", short).await.json()["run"]["id"].clone();
    let (path, begun) = ("/api/v1/keys/double/order-2", Instant::now());
    while stage.get(path).await.status != 404 {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let past = stage.get(&format!("{path}?past=true")).await.json();
    assert_eq!((&past["run"]["id"], &past["held"]), (&run, &json!(false)));
    let never = stage.get("/api/v1/keys/double/order-3?past=true").await;
    assert_eq!((never.status, never.code().as_str()), (404, "key_not_found"));
    assert_eq!(stage.get(&format!("{path}?past=perhaps")).await.status, 400);
    stage.stop().await;
}

#[tokio::test]
async fn the_key_of_a_run_is_released_when_it_has_ended() {
    let stage = Stage::open().await;
    let slow = json!({ "input": 1, "delay_ms": 600_000 });
    let run = stage.keyed(RUNS, "order-1", slow).await.json()["run"]["id"].clone();
    let path = format!("/api/v1/runs/{}/key", run.as_str().unwrap());
    let live = stage.send("DELETE", &path, Asked::default()).await;
    assert_eq!((live.status, live.code().as_str()), (409, "run_not_ended"));
    let cancel = format!("/api/v1/runs/{}/cancel", run.as_str().unwrap());
    assert_eq!(stage.send("POST", &cancel, Asked::default()).await.status, 200);
    let released = stage.send("DELETE", &path, Asked::default()).await;
    assert_eq!((released.status, released.json()), (200, json!({ "released": true })));
    let next = stage.keyed(RUNS, "order-1", json!({ "input": 2 })).await;
    assert_eq!(next.status, 201);
    let again = stage.send("DELETE", &path, Asked::default()).await;
    assert_eq!(again.json(), json!({ "released": false }));
    let holder = stage.get("/api/v1/keys/double/order-1").await.json();
    assert_eq!(holder["run"]["id"], next.json()["run"]["id"]);
    stage.stop().await;
}

#[tokio::test]
async fn step_keys_are_looked_at_and_released() {
    let stage = Stage::open().await;
    for key in ["mail", "mail-1", "mail-2", "note-1"] {
        let work = stage.onward.once(key).run(async || Ok::<_, Failure>("sent".to_owned()));
        work.await.unwrap();
    }
    let first = stage.get("/api/v1/step-keys?prefix=mail&limit=2").await.json();
    let next = first["next"].as_str().unwrap();
    let rest =
        stage.get(&format!("/api/v1/step-keys?prefix=mail&limit=2&cursor={next}")).await.json();
    let all = first["items"].as_array().unwrap().iter().chain(rest["items"].as_array().unwrap());
    let keys: Vec<_> = all.map(|key| key["key"].as_str().unwrap()).collect();
    assert_eq!((keys, &rest["next"]), (vec!["mail", "mail-1", "mail-2"], &json!(null)));
    let shown = stage.get("/api/v1/step-keys/mail-1").await.json();
    assert_eq!(shown["key"]["result"], "sent");
    let released = stage.send("DELETE", "/api/v1/step-keys/mail-1", Asked::default()).await;
    assert_eq!(released.json(), json!({ "released": true }));
    let again = stage.send("DELETE", "/api/v1/step-keys/mail-1", Asked::default()).await;
    assert_eq!(again.json(), json!({ "released": false }));
    let free = stage.get("/api/v1/step-keys/mail-1").await;
    assert_eq!((free.status, free.code().as_str()), (404, "key_not_found"));
    stage.stop().await;
}
