//! Every endpoint of the document, by every role.

use onward_server::{Access, Options, Role};
use serde_json::{Value, json};

use super::stage::{Asked, Stage, document};

/// What anybody may ask for, before any login.
const OF_ANYBODY: [&str; 7] =
    ["begin_session", "end_session", "list_codes", "livez", "openapi", "readyz", "show_code"];

/// What takes the role `operate`.
const OF_OPERATORS: [&str; 17] = [
    "abort_operation",
    "answer_callback",
    "backfill_schedule",
    "begin_operation",
    "cancel_run",
    "fork_run",
    "pause_queue",
    "pause_run",
    "pause_schedule",
    "put_schedule",
    "resume_queue",
    "resume_run",
    "resume_schedule",
    "retry_run",
    "send_signal",
    "start_run",
    "trigger_schedule",
];

/// What takes the role `admin`.
const OF_ADMINS: [&str; 8] = [
    "clear_queue",
    "delete_run",
    "limit_queue",
    "list_audit",
    "prune_runs",
    "release_run_key",
    "release_step_key",
    "remove_schedule",
];

/// The role that an endpoint takes, written down here and not taken from the table that the guard has.
fn role_of(name: &str) -> Option<Role> {
    match name {
        name if OF_ANYBODY.contains(&name) => None,
        name if OF_OPERATORS.contains(&name) => Some(Role::Operate),
        name if OF_ADMINS.contains(&name) => Some(Role::Admin),
        _ => Some(Role::Read),
    }
}

/// The endpoints of the document: method, path with its names filled in, and the role it is to take.
fn endpoints() -> Vec<(String, String, Option<Role>)> {
    let (mut all, mut named) = (Vec::new(), 0);
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for (method, endpoint) in methods.as_object().unwrap() {
            let name = endpoint["operationId"].as_str().unwrap();
            let role = role_of(name);
            named += usize::from(role != Some(Role::Read));
            let said = endpoint["x-onward-role"].as_str();
            assert_eq!(said, role.map(Role::as_str), "the document says so of {name}");
            all.push((method.to_uppercase(), filled(path), role));
        }
    }
    assert!(all.len() > 40, "the document has {} endpoints", all.len());
    let listed = OF_ANYBODY.len() + OF_OPERATORS.len() + OF_ADMINS.len();
    assert_eq!(named, listed, "an endpoint that is listed here is not in the document");
    all
}

fn filled(path: &str) -> String {
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let part = |part: &str| match part {
        "{id}" => id.to_owned(),
        "{seq}" => "1".to_owned(),
        part if part.starts_with('{') => "some-name".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

async fn ask(stage: &Stage, method: &str, path: &str) -> (u16, Value) {
    let body = (method == "POST" || method == "PUT").then(|| json!({}));
    // A stream does not end, so its head has to do.
    if path.ends_with("/stream") {
        return (stage.begin(method, path, Asked::default()).await.status().as_u16(), Value::Null);
    }
    let reply = stage.send(method, path, Asked { body, ..Asked::default() }).await;
    (reply.status, serde_json::from_str(&reply.text).unwrap_or_default())
}

#[tokio::test]
async fn no_endpoint_answers_without_a_token() {
    let (stage, _) = Stage::with_tokens().await;
    for (method, path, role) in endpoints() {
        let (status, body) = ask(&stage, &method, &path).await;
        assert_eq!(status == 401, role.is_some(), "{method} {path}: {status} {body}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn every_endpoint_takes_its_role_and_no_less() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    for (own, token) in Role::ALL.iter().zip(&tokens) {
        stage.as_bearer(token);
        for (method, path, role) in endpoints() {
            let (status, body) = ask(&stage, &method, &path).await;
            let refused = status == 403;
            let too_low = role.is_some_and(|role| *own < role);
            assert_eq!(refused, too_low, "{own}: {method} {path}: {status} {body}");
            assert!(status < 500 || status == 501, "{own}: {method} {path}: {status} {body}");
            assert_ne!(status, 405, "{method} {path} is in the document and not in the router");
            let nowhere = body["detail"].as_str().is_some_and(|text| text.contains("nothing to"));
            assert!(!nowhere, "{method} {path} is in the document and not in the router");
        }
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_server_that_only_shows_changes_nothing_for_anybody() {
    let stage = Stage::with(Options::new(Access::Open(Role::Admin)).read_only()).await;
    for (method, path, role) in endpoints().into_iter().filter(|it| it.0 != "GET") {
        let (status, body) = ask(&stage, &method, &path).await;
        assert_eq!(status == 403, role.is_some(), "{method} {path}: {status} {body}");
    }
    assert_eq!(stage.get("/api/v1/meta").await.json()["read_only"], true);
    stage.stop().await;
}

#[tokio::test]
async fn the_document_is_served_as_it_is() {
    let stage = Stage::open().await;
    let served = stage.get("/openapi.json").await.json();
    assert_eq!(&served, document());
    assert_eq!(served["openapi"], "3.1.0");
    stage.stop().await;
}

#[test]
fn whatever_changes_something_takes_more_than_a_look() {
    for (method, path, role) in endpoints().into_iter().filter(|it| it.0 != "GET") {
        // A login is no change of the store.
        let of_anybody = path.ends_with("/session");
        assert_eq!(role.is_none(), of_anybody, "{method} {path}");
        assert!(of_anybody || role >= Some(Role::Operate), "{method} {path} takes {role:?}");
        if method == "DELETE" && !of_anybody {
            assert_eq!(role, Some(Role::Admin), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_change_has_its_row_in_the_audit() {
    let stage = Stage::open().await;
    let mut asked = Vec::new();
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for (method, endpoint) in methods.as_object().unwrap() {
            if method != "get" && endpoint["x-onward-role"].is_string() {
                ask(&stage, &method.to_uppercase(), &filled(path)).await;
                asked.push(endpoint["operationId"].as_str().unwrap().to_owned());
            }
        }
    }
    let rows = stage.get("/api/v1/audit?limit=200").await.json();
    let rows = rows["items"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["outcome"].is_string()), "{rows:?}");
    let mut seen: Vec<_> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    seen.sort_unstable();
    asked.sort_unstable();
    assert_eq!(seen, asked);
    stage.stop().await;
}
