//! Runs that wait, by what they wait for.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Workflow};
use serde_json::{Value, json};

use super::stage::{SOON, Stage};

const APPROVAL: Workflow<(), bool> = Workflow::named("approval");

/// Runs that one request looks at, as its limit says.
const SCAN: usize = 1_000;

async fn approval(ctx: Ctx, (): ()) -> Result<bool, Failure> {
    ctx.signal::<bool>("approved").await
}

/// Starts a run that waits for a signal, and waits until it does.
async fn asked(stage: &Stage) -> Value {
    let worker = stage.onward.worker().serve(APPROVAL, approval).start().await.unwrap();
    let id = json!(stage.onward.start(APPROVAL, &()).await.unwrap().id());
    let begun = Instant::now();
    while stage.get("/api/v1/waiting").await.json()["items"][0]["id"] != id {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.shutdown().await.unwrap();
    id
}

/// Starts runs that wait for their time.
async fn sleepers(stage: &Stage, count: usize) {
    const LATER: Workflow<usize, ()> = Workflow::named("later");
    for number in 0..count {
        let later = stage.onward.start(LATER, &number).delay(Duration::from_secs(3600));
        later.await.unwrap();
    }
}

fn ids(page: &Value) -> Vec<&Value> {
    page["items"].as_array().unwrap().iter().map(|run| &run["id"]).collect()
}

#[tokio::test]
async fn a_run_is_found_by_what_it_waits_for_behind_newer_ones() {
    let stage = Stage::open().await;
    let id = asked(&stage).await;
    sleepers(&stage, 120).await;
    let page = stage.get("/api/v1/waiting?for=signal&limit=100").await.json();
    assert_eq!((ids(&page), &page["next"]), (vec![&id], &json!(null)));
    assert_eq!(page["looked"], 121);
    let first = stage.get("/api/v1/waiting?for=start&limit=100").await.json();
    assert_eq!(ids(&first).len(), 100);
    let next = first["next"].as_str().unwrap();
    let rest = stage.get(&format!("/api/v1/waiting?for=start&cursor={next}")).await.json();
    assert_eq!((ids(&rest).len(), &rest["next"]), (20, &json!(null)));
    let all = stage.get("/api/v1/waiting?limit=50").await.json();
    assert_eq!((ids(&all).len(), &all["looked"]), (50, &json!(50)));
    let wrong = stage.get("/api/v1/waiting?for=godot").await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "invalid_request"));
    stage.stop().await;
}

#[tokio::test]
async fn a_look_for_few_among_many_is_bounded_and_goes_on() {
    let stage = Stage::open().await;
    let id = asked(&stage).await;
    sleepers(&stage, SCAN).await;
    let first = stage.get("/api/v1/waiting?for=signal").await.json();
    assert_eq!((ids(&first).len(), &first["looked"]), (0, &json!(SCAN)));
    let next = first["next"].as_str().expect("it says where to go on");
    let rest = stage.get(&format!("/api/v1/waiting?for=signal&cursor={next}")).await.json();
    assert_eq!((ids(&rest), &rest["next"], &rest["looked"]), (vec![&id], &json!(null), &json!(1)));
    stage.stop().await;
}

#[tokio::test]
async fn a_cursor_past_the_last_one_ends_the_list() {
    let stage = Stage::open().await;
    sleepers(&stage, 1).await;
    for kind in ["", "&for=signal"] {
        let path = format!("/api/v1/waiting?cursor=00000000-0000-0000-0000-000000000000{kind}");
        let page = tokio::time::timeout(SOON, stage.get(&path)).await.unwrap();
        assert_eq!(page.json(), json!({ "items": [], "next": null, "looked": 0 }));
    }
    stage.stop().await;
}
