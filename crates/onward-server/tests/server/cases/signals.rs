//! Signals that nothing has taken yet.

use onward_server::{Access, Options, Role};
use serde_json::{Value, json};

use super::stage::Stage;

/// A run that nobody serves, with three signals: its path.
async fn signalled(stage: &Stage) -> String {
    let run = stage.post("/api/v1/workflows/nobody/runs", json!({ "input": 1 })).await.json();
    let path = format!("/api/v1/runs/{}/signals", run["run"]["id"].as_str().unwrap());
    for n in 1..=3 {
        let body = json!({ "name": format!("s{n}"), "value": { "n": n } });
        assert_eq!(stage.post(&path, body).await.status, 202);
    }
    path
}

#[tokio::test]
async fn what_nothing_has_taken_is_listed_page_by_page() {
    let stage = Stage::open().await;
    let path = signalled(&stage).await;
    let first = stage.get(&format!("{path}?limit=2")).await.json();
    let names: Vec<_> = first["items"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["s1", "s2"]);
    assert_eq!(first["items"][0]["value"], json!({ "n": 1 }));
    let rest = format!("{path}?limit=2&cursor={}", first["next"].as_str().unwrap());
    let rest = stage.get(&rest).await.json();
    assert_eq!((&rest["items"][0]["name"], &rest["next"]), (&json!("s3"), &Value::Null));
    let nowhere = stage.get("/api/v1/runs/01890a5d-ac96-774b-bcce-b302099a8057/signals").await;
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "run_not_found"));
    stage.stop().await;
}

#[tokio::test]
async fn their_values_are_hidden_where_payloads_are() {
    let stage = Stage::with(Options::new(Access::Open(Role::Admin)).hide_payloads()).await;
    let path = signalled(&stage).await;
    let hidden = stage.get(&path).await.json();
    assert_eq!(hidden["items"].as_array().unwrap().len(), 3);
    assert!(hidden["items"].as_array().unwrap().iter().all(|it| it["value"].is_null()), "{hidden}");
    stage.stop().await;
}
