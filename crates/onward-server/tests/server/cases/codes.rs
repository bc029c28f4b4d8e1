//! What a refusal says it is, and where that leads.

use onward::Code;
use serde_json::json;

use super::stage::Stage;

#[tokio::test]
async fn the_type_of_a_problem_leads_to_what_its_code_means() {
    let (stage, _) = Stage::with_tokens().await;
    let refused = stage.get("/api/v1/runs").await;
    assert_eq!(refused.code(), "unauthorized");
    let place = refused.json()["type"].as_str().unwrap().to_owned();
    let shown = stage.get(&place).await;
    assert_eq!(shown.status, 200, "it is shown before any login: {shown:?}");
    let expected = json!({
        "code": "unauthorized",
        "status": 401,
        "retryable": false,
        "advice": Code::Unauthorized.advice(),
    });
    assert_eq!(shown.json(), expected);
    let unknown = stage.get("/api/v1/codes/nonsense").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "no_such_path"));
    stage.stop().await;
}

#[tokio::test]
async fn every_code_is_listed() {
    let stage = Stage::open().await;
    let listed = stage.get("/api/v1/codes").await.json();
    let listed: Vec<_> = listed["items"].as_array().unwrap().clone();
    let known: Vec<_> = Code::all().iter().map(|code| json!(code.as_str())).collect();
    assert_eq!(listed.iter().map(|row| row["code"].clone()).collect::<Vec<_>>(), known);
    let of_runs = listed.iter().find(|row| row["code"] == "deadline_exceeded").unwrap();
    assert_eq!(of_runs["status"], json!(null), "a failure of a run refuses no request");
    stage.stop().await;
}
