//! Who gets in, from where, and what is written down about it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Json, RunId, Workflow};
use onward_server::{Access, NewToken, Options, Payload, Role, ServeError, ServeOptions, Tokens};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::stage::{Asked, Reply, SOON, Stage};

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

/// A link in a mail or a chat, and the way back from a login elsewhere.
#[tokio::test]
async fn a_link_on_a_page_of_another_site_leads_here() {
    let stage = Stage::open().await;
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"]["id"].clone();
    let page = format!("/runs/{}", run.as_str().unwrap());
    let headers = |mode, dest| {
        let site = vec![("accept", "text/html"), ("sec-fetch-site", "cross-site")];
        [site, vec![("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]].concat()
    };
    let asked = |mode, dest| Asked { headers: headers(mode, dest), body: None };
    let followed = stage.send("GET", &page, asked("navigate", "document")).await;
    assert_eq!((followed.status, followed.header("x-frame-options")), (200, Some("DENY")));
    assert!(followed.text.contains("<html"), "{}", followed.text);
    for (mode, dest) in [
        ("navigate", "iframe"),
        ("navigate", "object"),
        ("no-cors", "document"),
        ("no-cors", "image"),
        ("cors", "empty"),
    ] {
        let refused = stage.send("GET", &page, asked(mode, dest)).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{mode} {dest}");
    }
    let form =
        Asked { headers: headers("navigate", "document"), body: Some(json!({ "input": 1 })) };
    let refused = stage.send("POST", RUNS, form).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "a form changes");
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

/// What each request about runs with a secret in their payloads is answered with.
async fn answers(stage: &Stage) -> Vec<(String, Reply)> {
    let (secret, id) = (json!({ "input": { "card": SECRET } }), |run: &Reply| {
        run.json()["run"]["id"].as_str().unwrap().to_owned()
    });
    let failed = stage.keyed(&format!("{RUNS}?wait_ms=20000"), "order-7", secret.clone()).await;
    let queued = stage.post("/api/v1/workflows/other/runs", secret.clone()).await;
    let (of_failed, of_queued) = (id(&failed), id(&queued));
    let mut all = vec![("start".to_owned(), failed), ("start other".to_owned(), queued)];
    let changes = [
        (format!("runs/{of_failed}/fork"), json!({ "from_step": "twice", "input": SECRET })),
        (format!("runs/{of_failed}/retry"), json!({})),
        (format!("runs/{of_queued}/signals"), json!({ "name": "go", "value": SECRET })),
        (format!("runs/{of_queued}/pause"), json!({})),
        (format!("runs/{of_queued}/resume"), json!({})),
        (format!("runs/{of_queued}/cancel"), json!({})),
        ("operations".to_owned(), json!({ "action": "retry", "ids": [of_failed] })),
        ("callbacks".to_owned(), json!({ "token": "0", "value": SECRET })),
    ];
    for (path, body) in changes {
        let reply = stage.post(&format!("/api/v1/{path}"), body).await;
        all.push((path, reply));
    }
    let conflict = stage.keyed(RUNS, "order-7", json!({ "input": SECRET })).await;
    assert_eq!(conflict.status, 422, "{conflict:?}");
    all.push(("conflict".to_owned(), conflict));
    for path in [
        "errors",
        "keys",
        "keys/top",
        "keys/conflicts",
        "keys/double/order-7",
        "operations",
        "waiting",
        "stats",
        "workflows",
        "workflows/double/steps",
        "audit",
    ] {
        let reply = stage.get(&format!("/api/v1/{path}")).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        all.push((path.to_owned(), reply));
    }
    all
}

#[tokio::test]
async fn no_answer_shows_a_payload_that_is_hidden() {
    let shown = Stage::open().await.working().await;
    let of_open = answers(&shown).await;
    let showing = of_open.iter().filter(|(_, reply)| reply.text.contains(SECRET)).count();
    assert!(showing >= 5, "answers show payloads where nothing is hidden: {showing}");
    shown.stop().await;
    let hidden = Stage::with(Options::new(Access::Open(Role::Admin)).hide_payloads()).await;
    let hidden = hidden.working().await;
    for (what, reply) in answers(&hidden).await {
        assert!(!reply.text.contains(SECRET), "{what}: {}", reply.text);
    }
    hidden.stop().await;
}

/// The library says why a run is stuck, and must not quote what it could not read.
#[tokio::test]
async fn a_stuck_run_says_nothing_of_its_payload() {
    const COUNT: Workflow<u32, u32> = Workflow::named("count");
    const TOLD: Workflow<(), u32> = Workflow::named("told");
    let stage = Stage::with(Options::new(Access::Open(Role::Admin)).hide_payloads()).await;
    let worker = stage.onward.worker().serve(COUNT, async |_: Ctx, count| Ok::<_, Failure>(count));
    let worker = worker.serve(TOLD, async |ctx: Ctx, ()| ctx.signal::<u32>("number").await);
    let worker = worker.start().await.unwrap();
    let path = |workflow| format!("/api/v1/workflows/{workflow}/runs");
    let count = stage.post(&path("count"), json!({ "input": SECRET })).await.json();
    let told = stage.post(&path("told"), json!({})).await.json();
    let ids = [&count, &told].map(|run| run["run"]["id"].as_str().unwrap().to_owned());
    let signal = json!({ "name": "number", "value": SECRET });
    stage.post(&format!("/api/v1/runs/{}/signals", ids[1]), signal).await;
    let begun = Instant::now();
    while stage.get("/api/v1/waiting?for=stuck").await.json()["items"].as_array().unwrap().len() < 2
    {
        assert!(begun.elapsed() < SOON, "they are not stuck");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut paths: Vec<_> = ids.iter().map(|id| format!("/api/v1/runs/{id}")).collect();
    paths.extend(ids.iter().map(|id| format!("/api/v1/runs/{id}/history")));
    paths
        .extend(["/runs", "/runs.jsonl", "/runs.csv", "/waiting"].map(|it| format!("/api/v1{it}")));
    for path in paths {
        let text = stage.get(&path).await.text;
        assert!(!text.contains(SECRET), "{path}: {text}");
    }
    let shown = stage.get(&format!("/api/v1/runs/{}", ids[0])).await.json();
    let detail = shown["run"]["waits_for"]["detail"].as_str().unwrap();
    assert!(detail.contains("u32") && detail.contains("line 1"), "{detail}");
    worker.shutdown().await.unwrap();
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

#[tokio::test]
async fn a_caller_that_asks_too_often_is_held_up() {
    let options = Options::new(Access::Open(Role::Read)).rate(3, 1);
    let stage = Stage::serving(ServeOptions::new(options)).await;
    for _ in 0..3 {
        assert_eq!(stage.get("/api/v1/meta").await.status, 200);
    }
    let held = stage.get("/api/v1/meta").await;
    assert_eq!((held.status, held.code().as_str()), (429, "rate_limited"));
    assert_eq!(held.header("retry-after"), Some("1"));
    assert_eq!(stage.get("/livez").await.status, 200, "a probe is no caller");
    stage.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let options = Options::new(Access::Open(Role::Admin)).body_max(Duration::from_millis(50));
    let stage = Stage::with(options).await;
    let mut slow = TcpStream::connect(stage.address).await.unwrap();
    let head = format!(
        "POST {RUNS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\nConnection: close\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let reading = slow.read_to_string(&mut answer);
    tokio::time::timeout(SOON, reading).await.expect("it is answered").unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("did not come"), "{answer}");
    stage.stop().await;
}

const SECRET: &str = "4111-secret";

/// A store with a log, a step key and a schedule that hold the secret; and where they are shown.
async fn filled(stage: &Stage) -> [String; 5] {
    const NOISY: Workflow<(), ()> = Workflow::named("noisy");
    let noisy = async |ctx: Ctx, ()| {
        ctx.log(SECRET);
        ctx.step("mail", async |_| Ok::<_, Failure>(SECRET.to_owned())).key("mail-7").await?;
        Ok::<_, Failure>(())
    };
    let worker = stage.onward.worker().serve(NOISY, noisy).start().await.unwrap();
    let run = stage.onward.start(NOISY, &()).await.unwrap();
    tokio::time::timeout(SOON, run.ended()).await.unwrap().unwrap();
    worker.shutdown().await.unwrap();
    let spec = json!({ "every": { "every_ms": 60_000, "anchor": 0 } });
    let body = Some(json!({ "workflow": "noisy", "spec": spec, "input": SECRET }));
    let put = stage.send("PUT", "/api/v1/schedules/x", Asked { body, ..Asked::default() }).await;
    assert_eq!(put.status, 200, "{put:?}");
    [
        format!("/api/v1/runs/{}/log", run.id()),
        "/api/v1/step-keys".to_owned(),
        "/api/v1/step-keys/mail-7".to_owned(),
        "/api/v1/schedules".to_owned(),
        "/api/v1/schedules/x".to_owned(),
    ]
}

/// With the hook of the documentation, which looks at the workflow.
#[tokio::test]
async fn the_hook_is_told_whose_payload_it_is() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let redact = move |payload: Payload<'_>| {
        told.lock().unwrap().push(payload.run);
        if payload.workflow == Some("noisy") {
            return Json::stored("\"left out\"");
        }
        payload.json.clone()
    };
    let stage = Stage::with(Options::new(Access::Open(Role::Admin)).redact(redact)).await;
    let paths = filled(&stage).await;
    let run: RunId = paths[0].split('/').nth(4).unwrap().parse().unwrap();
    for path in &paths {
        seen.lock().unwrap().clear();
        let text = stage.get(path).await.text;
        assert!(text.contains("\"left out\"") && !text.contains(SECRET), "{path}: {text}");
        let of_run = !path.contains("/schedules");
        assert_eq!(*seen.lock().unwrap(), [of_run.then_some(run)], "{path}");
    }
    // A key outlives its run. Whose it was is still known by its holder, its workflow not.
    stage.send("DELETE", &format!("/api/v1/runs/{run}"), Asked::default()).await;
    seen.lock().unwrap().clear();
    assert_eq!(stage.get(&paths[2]).await.status, 200);
    assert_eq!(*seen.lock().unwrap(), [Some(run)]);
    // Work outside any run has none.
    let work = stage.onward.once("outside").run(async || Ok::<_, Failure>(SECRET.to_owned()));
    work.await.unwrap();
    seen.lock().unwrap().clear();
    assert!(stage.get("/api/v1/step-keys/outside").await.text.contains(SECRET));
    assert_eq!(*seen.lock().unwrap(), [None]);
    stage.stop().await;
}

#[tokio::test]
async fn logs_step_keys_and_schedules_hide_what_is_hidden() {
    let shown = Stage::open().await;
    for path in filled(&shown).await {
        let text = shown.get(&path).await.text;
        assert!(text.contains(SECRET), "it is shown where nothing is hidden: {path} {text}");
    }
    shown.stop().await;
    let hidden = Stage::with(Options::new(Access::Open(Role::Admin)).hide_payloads()).await;
    for path in filled(&hidden).await {
        let reply = hidden.get(&path).await;
        assert_eq!(reply.status, 200);
        assert!(!reply.text.contains(SECRET), "{path}: {}", reply.text);
    }
    hidden.stop().await;
    let redact = |payload: Payload<'_>| Json::of(&format!("{:?}", payload.place)).unwrap();
    let redacted = Stage::with(Options::new(Access::Open(Role::Admin)).redact(redact)).await;
    let places = ["Log", "StepKey", "StepKey", "Input", "Input"];
    for (path, place) in filled(&redacted).await.iter().zip(places) {
        let text = redacted.get(path).await.text;
        assert!(text.contains(&format!("\"{place}\"")), "{path}: {text}");
        assert!(!text.contains(SECRET), "{path}: {text}");
    }
    redacted.stop().await;
}
