//! Who gets in, from where, and what is written down about it.

use std::time::Duration;

use onward::Json;
use onward_server::{Access, NewToken, Options, Role, ServeError, ServeOptions, Tokens};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::stage::{Asked, SOON, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";

/// A client that sends the head of its request byte by byte does not hold a connection for ever.
#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_is_cut() {
    let mut serve = ServeOptions::new(Options::new(Access::Open(Role::Admin)));
    serve.head_max = Duration::from_millis(50);
    let stage = Stage::serving(serve).await;
    let mut slow = TcpStream::connect(stage.address).await.unwrap();
    let trickling = async {
        slow.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
        // Until the other side has closed it, each byte is taken.
        while slow.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, trickling).await.expect("it is cut");
    assert_eq!(stage.get("/livez").await.status, 200, "others are served");
    stage.stop().await;
}

#[tokio::test]
async fn an_address_that_others_reach_needs_tokens_or_to_be_called_insecure() {
    let onward = onward::Onward::open("memory:").await.unwrap();
    let open = || {
        let mut serve = ServeOptions::new(Options::new(Access::Open(Role::Read)));
        serve.listen = ([0, 0, 0, 0], 0).into();
        serve
    };
    let refused = onward_server::bind(onward.clone(), open()).await.unwrap_err();
    assert!(matches!(refused, ServeError::Open(_)), "{refused}");
    let insecure = ServeOptions { insecure: true, ..open() };
    assert!(onward_server::bind(onward.clone(), insecure).await.is_ok());
    let options = Options::new(Access::Tokens(Tokens::none()));
    let tokens = ServeOptions { options, ..open() };
    assert!(onward_server::bind(onward, tokens).await.is_ok());
}

#[tokio::test]
async fn a_name_that_leads_here_is_not_enough() {
    let stage = Stage::open().await;
    let headers = vec![("host", "rebound.example")];
    let reply = stage.send("GET", "/api/v1/meta", Asked { headers, body: None }).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"));
    stage.stop().await;
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let stage = Stage::open().await;
    for headers in
        [vec![("origin", "https://evil.example")], vec![("sec-fetch-site", "cross-site")]]
    {
        let body = Some(json!({ "input": 1 }));
        let reply = stage.send("POST", RUNS, Asked { headers, body }).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"));
    }
    assert_eq!(stage.get("/api/v1/runs").await.json()["items"], json!([]));
    let own = format!("http://{}", stage.address);
    let asked = Asked { headers: vec![("origin", &own)], body: Some(json!({ "input": 1 })) };
    assert_eq!(stage.send("POST", RUNS, asked).await.status, 201);
    stage.stop().await;
}

#[tokio::test]
async fn without_a_token_nobody_gets_in() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    let reply = stage.get("/api/v1/meta").await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "unauthorized"));
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    stage.as_bearer(&NewToken::make().unwrap());
    assert_eq!(stage.get("/api/v1/meta").await.status, 401);
    stage.as_bearer(&tokens[0]);
    let meta = stage.get("/api/v1/meta").await;
    assert_eq!((meta.status, &meta.json()["role"]), (200, &json!("read")));
    stage.stop().await;
}

#[tokio::test]
async fn whoever_tries_tokens_is_held_up() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    stage.as_bearer(&NewToken::make().unwrap());
    let mut held = None;
    for _ in 0..20 {
        let reply = stage.get("/api/v1/meta").await;
        if reply.status == 429 {
            held = Some(reply);
            break;
        }
    }
    let held = held.expect("twenty wrong tokens were taken");
    assert_eq!(held.code(), "rate_limited");
    assert!(held.header("retry-after").is_some());
    stage.as_bearer(&tokens[0]);
    assert_eq!(stage.get("/api/v1/meta").await.status, 200, "a right one is not");
    stage.stop().await;
}

#[tokio::test]
async fn the_dashboards_cookie_needs_the_header_of_its_pages() {
    let (stage, tokens) = Stage::with_tokens().await;
    let login = stage.post("/api/v1/session", json!({ "token": tokens[1].secret() })).await;
    assert_eq!((login.status, &login.json()["role"]), (200, &json!("operate")));
    let set = login.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().unwrap();
    let look = Asked { headers: vec![("cookie", cookie)], body: None };
    assert_eq!(stage.send("GET", "/api/v1/meta", look).await.status, 200);
    let bare = Asked { headers: vec![("cookie", cookie)], body: Some(json!({ "input": 1 })) };
    let reply = stage.send("POST", RUNS, bare).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"));
    let headers = vec![("cookie", cookie), ("x-onward", "1")];
    let page = Asked { headers, body: Some(json!({ "input": 1 })) };
    assert_eq!(stage.send("POST", RUNS, page).await.status, 201);
    let out = stage.send("DELETE", "/api/v1/session", Asked::default()).await;
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    let wrong = stage.post("/api/v1/session", json!({ "token": "onw_00" })).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    stage.stop().await;
}

#[tokio::test]
async fn every_answer_is_dressed() {
    let stage = Stage::open().await;
    for path in ["/api/v1/meta", "/livez", "/nowhere", "/api/v1/runs/x"] {
        let reply = stage.get(path).await;
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"), "{path}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn payloads_are_hidden_where_that_is_asked_for() {
    let options = Options::new(Access::Open(Role::Admin)).hide_payloads();
    let stage = Stage::with(options).await.working().await;
    let secret = json!({ "input": { "card": "4111-secret" } });
    let run = stage.post(&format!("{RUNS}?wait_ms=20000"), secret).await;
    let id = run.json()["run"]["id"].as_str().unwrap().to_owned();
    let paths = ["", "/history", "/timeline", "/records/1"];
    for path in paths.map(|path| format!("/api/v1/runs/{id}{path}")) {
        let reply = stage.get(&path).await;
        assert_eq!(reply.status, 200);
        assert!(!reply.text.contains("4111-secret"), "{path}: {}", reply.text);
    }
    for path in ["/api/v1/runs", "/api/v1/runs.jsonl", "/api/v1/runs.csv"] {
        assert!(!stage.get(path).await.text.contains("4111-secret"), "{path}");
    }
    assert!(!run.text.contains("4111-secret"), "{}", run.text);
    stage.stop().await;
}

#[tokio::test]
async fn payloads_are_shown_as_the_hook_makes_them() {
    let options = Options::new(Access::Open(Role::Admin))
        .redact(|payload| Json::of(&format!("{:?}", payload.place)).unwrap());
    let stage = Stage::with(options).await.working().await;
    let run = stage.post(&format!("{RUNS}?wait_ms=20000"), json!({ "input": 4 })).await.json();
    assert_eq!((&run["run"]["input"], &run["run"]["output"]), (&json!("Input"), &json!("Output")));
    let id = run["run"]["id"].as_str().unwrap();
    let history = stage.get(&format!("/api/v1/runs/{id}/history")).await.json();
    assert_eq!(history["items"][0]["entry"]["value"], "Record");
    stage.stop().await;
}

#[tokio::test]
async fn every_change_is_written_down_with_its_outcome() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    stage.as_bearer(&tokens[1]);
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"].clone();
    let id = run["id"].as_str().unwrap();
    stage.post(&format!("/api/v1/runs/{id}/cancel"), json!({})).await;
    stage.post(&format!("/api/v1/runs/{id}/retry"), json!({})).await;
    stage.send("DELETE", "/api/v1/step-keys/mail-1", Asked::default()).await;
    stage.get("/api/v1/runs").await;
    stage.as_bearer(&tokens[2]);
    let audit = stage.get("/api/v1/audit").await.json();
    let rows = audit["items"].as_array().unwrap();
    let seen: Vec<_> =
        rows.iter().map(|row| (row["action"].as_str(), row["outcome"].as_str())).collect();
    let expected = [
        (Some("release_step_key"), Some("forbidden")),
        (Some("retry_run"), Some("run_not_failed")),
        (Some("cancel_run"), Some("ok")),
        (Some("start_run"), Some("ok")),
    ];
    assert_eq!(seen, expected);
    assert!(rows.iter().all(|row| row["who"] == "operate" && row["role"] == "operate"));
    assert_eq!(rows[3]["detail"], format!("run {id}"));
    assert_eq!(rows[2]["target"], format!("/runs/{id}/cancel"));
    stage.stop().await;
}
