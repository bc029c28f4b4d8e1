//! Starting a run, once for its key.

use onward_server::{Access, Options, Role};
use serde_json::json;

use super::stage::{Asked, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";

#[tokio::test]
async fn a_start_is_created_and_says_where() {
    let stage = Stage::open().await;
    let body = json!({ "input": 7, "queue": "bulk", "priority": 3, "tags": { "tenant": "acme" } });
    let reply = stage.post(RUNS, body).await;
    assert_eq!(reply.status, 201);
    let run = &reply.json()["run"];
    assert_eq!(
        (&run["input"], &run["queue"], &run["priority"]),
        (&json!(7), &json!("bulk"), &json!(3))
    );
    assert_eq!(
        (&run["tags"]["tenant"], &reply.json()["replayed"]),
        (&json!("acme"), &json!(false))
    );
    let place = reply.header("location").unwrap().to_owned();
    let shown = stage.get(&place).await;
    assert_eq!((shown.status, &shown.json()["run"]["id"]), (200, &run["id"]));
    let why = &shown.json()["why"];
    assert_eq!(why["code"], "no_worker");
    assert!(why["text"].as_str().unwrap().contains("\"bulk\""), "{why}");
    stage.stop().await;
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_answer() {
    let stage = Stage::open().await;
    let first = stage.keyed(RUNS, "\"order-7\"", json!({ "input": { "a": 1, "b": 2 } })).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    let again = stage.keyed(RUNS, "order-7", json!({ "input": { "b": 2.0, "a": 1 } })).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.json()["run"]["id"], first.json()["run"]["id"]);
    assert_eq!(again.json()["replayed"], true);
    assert_eq!(again.json()["run"]["key"], "order-7");
    stage.stop().await;
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let stage = Stage::open().await;
    let first = stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await;
    let other = stage.keyed(RUNS, "order-7", json!({ "input": 2 })).await;
    assert_eq!((other.status, other.code().as_str()), (422, "key_conflict"));
    assert_eq!(other.json()["run_id"], first.json()["run"]["id"], "it names the run");
    let path = format!("/api/v1/runs/{}", other.json()["run_id"].as_str().unwrap());
    let duplicates = &stage.get(&path).await.json()["duplicates"];
    assert_eq!(
        (&duplicates["count"], &duplicates["latest"][0]["same_input"]),
        (&json!(1), &json!(false))
    );
    let caller = duplicates["latest"][0]["caller"].as_str().unwrap();
    assert!(caller.starts_with("http anyone 127.0.0.1"), "{caller}");
    stage.stop().await;
}

/// Else a client whose answer was lost would end the run that it has just started.
#[tokio::test]
async fn a_start_that_replaces_and_is_repeated_replaces_nothing() {
    let stage = Stage::open().await;
    let body = |input: u32| json!({ "input": input, "on_conflict": "replace" });
    let old = stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await.json()["run"]["id"].clone();
    let first = stage.keyed(RUNS, "order-7", body(2)).await;
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, None));
    let run = first.json()["run"]["id"].clone();
    assert_ne!(run, old, "another input replaces");
    let again = stage.keyed(RUNS, "order-7", body(2)).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!((&again.json()["run"]["id"], &again.json()["replayed"]), (&run, &json!(true)));
    // Another queue is another request.
    let other = json!({ "input": 2, "on_conflict": "replace", "queue": "bulk" });
    let other = stage.keyed(RUNS, "order-7", other).await;
    assert_eq!((other.status, other.header("idempotent-replayed")), (201, None));
    // One that has ended is replaced, whatever its input.
    let path = format!("/api/v1/runs/{}/cancel", other.json()["run"]["id"].as_str().unwrap());
    stage.post(&path, json!({})).await;
    let fresh = stage.keyed(RUNS, "order-7", body(2)).await;
    assert_eq!((fresh.status, fresh.header("idempotent-replayed")), (201, None));
    let live = stage.get("/api/v1/runs?state=queued").await.json();
    assert_eq!(live["items"].as_array().unwrap().len(), 1, "{live}");
    stage.stop().await;
}

/// A float holds sixteen digits.
#[tokio::test]
async fn long_numbers_that_differ_in_their_last_digit_are_two_inputs() {
    let stage = Stage::open().await;
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "order-7"),
        ("host", "localhost"),
    ];
    let start = |id: &'static str| stage.raw("POST", RUNS, &headers, id);
    let first = start(r#"{"input":{"id":123456789012345678901234567890}}"#).await;
    assert_eq!(first.status, 201, "{first:?}");
    let again = start(r#"{"input":{"id":123456789012345678901234567890.0}}"#).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    let other = start(r#"{"input":{"id":123456789012345678901234567891}}"#).await;
    assert_eq!((other.status, other.code().as_str()), (422, "key_conflict"));
    stage.stop().await;
}

#[tokio::test]
async fn a_debounced_start_has_the_last_input() {
    let stage = Stage::open().await;
    let body =
        |input: u32| json!({ "input": input, "debounce_ms": 60_000, "debounce_max_ms": 90_000 });
    let first = stage.keyed(RUNS, "page-7", body(1)).await;
    assert_eq!((first.status, &first.json()["run"]["waits_for"]["for"]), (201, &json!("debounce")));
    let last = stage.keyed(RUNS, "page-7", body(2)).await;
    assert_eq!((last.status, &last.json()["run"]["id"]), (200, &first.json()["run"]["id"]));
    assert_eq!(last.json()["run"]["input"], 2);
    let wrong = stage.post(RUNS, body(3)).await;
    assert_eq!((wrong.status, wrong.code().as_str()), (400, "invalid_option"), "it has no key");
    let both = json!({ "debounce_ms": 1, "throttle_ms": 1 });
    assert_eq!(stage.keyed(RUNS, "page-8", both).await.code(), "invalid_option");
    stage.stop().await;
}

#[tokio::test]
async fn a_throttled_start_has_the_first_input_and_is_waited_for() {
    let stage = Stage::open().await.working().await;
    let body = |input: u32| json!({ "input": input, "throttle_ms": 600_000 });
    let first = stage.keyed(RUNS, "page-7", body(4)).await;
    let path = format!("{RUNS}?wait_ms=20000");
    let second = stage.keyed(&path, "page-7", body(5)).await;
    assert_eq!((second.status, &second.json()["run"]["id"]), (200, &first.json()["run"]["id"]));
    assert_eq!(second.json()["run"]["output"], 8);
}

#[tokio::test]
async fn a_run_is_in_the_trace_of_the_request_that_starts_it() {
    let stage = Stage::open().await;
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (sent, kept) in [(header, json!(header)), ("nonsense", json!(null))] {
        let headers = vec![("traceparent", sent)];
        let asked = Asked { headers, body: Some(json!({ "input": 1 })) };
        let started = stage.send("POST", RUNS, asked).await;
        assert_eq!(started.status, 201, "{started:?}");
        assert_eq!(
            started.json()["run"]["tags"].get("traceparent").cloned().unwrap_or_default(),
            kept
        );
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_malformed_key_is_refused_and_nothing_is_started() {
    let stage = Stage::open().await;
    for key in ["", "\"open", "a\"b", &"x".repeat(256)] {
        let reply = stage.keyed(RUNS, key, json!({ "input": 1 })).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{key:?}");
        assert_eq!(reply.json()["errors"][0]["pointer"], "Idempotency-Key");
    }
    assert_eq!(stage.get("/api/v1/runs").await.json()["items"], json!([]));
    stage.stop().await;
}

/// Fails where a payload gets in that most readers cannot hold: the dashboard's, or another language's.
#[tokio::test]
async fn an_input_that_no_reader_can_hold_is_refused() {
    let stage = Stage::open().await;
    let deep = |depth| (0..depth).fold(json!(1), |inner, _| json!([inner]));
    let reply = stage.post(RUNS, json!({ "input": deep(101) })).await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"));
    assert_eq!(stage.get("/api/v1/runs").await.json()["items"], json!([]));
    let reply = stage.post(RUNS, json!({ "input": deep(100) })).await;
    assert_eq!(reply.status, 201);
    stage.stop().await;
}

#[tokio::test]
async fn a_key_that_is_to_be_refused_is_taken() {
    let stage = Stage::open().await;
    stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await;
    let body = json!({ "input": 1, "on_conflict": "reject" });
    let reply = stage.keyed(RUNS, "order-7", body).await;
    assert_eq!((reply.status, reply.code().as_str()), (409, "key_taken"));
    stage.stop().await;
}

/// Whether so many starts came to this.
fn counted(metrics: &str, outcome: &str, number: u64) -> bool {
    let row = format!("onward_idempotency_requests_total{{outcome=\"{outcome}\"}} {number}");
    metrics.lines().any(|line| line == row)
}

#[tokio::test]
async fn a_start_can_wait_for_the_end() {
    let stage = Stage::open().await.working().await;
    let path = format!("{RUNS}?wait_ms=20000");
    let reply = stage.keyed(&path, "order-7", json!({ "input": 21 })).await;
    assert_eq!((reply.status, &reply.json()["run"]["output"]), (200, &json!(42)));
    let again = stage.keyed(&path, "order-7", json!({ "input": 21 })).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(again.json()["run"]["output"], 42);
    let metrics = stage.get("/metrics").await.text;
    assert!(counted(&metrics, "replayed", 1) && !metrics.contains("in_flight"), "{metrics}");
    stage.stop().await;
}

#[tokio::test]
async fn a_wait_without_a_worker_ends_with_the_run_as_it_stands() {
    let stage = Stage::open().await;
    let path = format!("{RUNS}?wait_ms=1");
    let reply = stage.keyed(&path, "order-7", json!({ "input": 21 })).await;
    assert_eq!((reply.status, &reply.json()["run"]["state"]), (202, &json!("queued")));
    let again = stage.keyed(&path, "order-7", json!({ "input": 21 })).await;
    assert_eq!((again.status, again.code().as_str()), (409, "run_in_flight"));
    assert_eq!(again.header("retry-after"), Some("1"));
    let metrics = stage.get("/metrics").await.text;
    assert!(counted(&metrics, "in_flight", 1) && !metrics.contains("replayed"), "{metrics}");
    let far = stage.post(&format!("{RUNS}?wait_ms=30001"), json!({})).await;
    assert_eq!((far.status, far.code().as_str()), (400, "invalid_request"));
    stage.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_named() {
    let stage = Stage::open().await;
    let bodies = [
        json!({ "inptu": 1 }),
        json!([]),
        json!({ "priority": "high" }),
        json!({ "delay_ms": 1, "at": 1 }),
    ];
    for body in bodies {
        let reply = stage.post(RUNS, body.clone()).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"), "{body}");
    }
    let headers = vec![("content-type", "text/plain")];
    let form = stage.send("POST", RUNS, Asked { headers, body: None }).await;
    assert_eq!((form.status, form.code().as_str()), (400, "invalid_request"));
    let large = json!({ "input": "x".repeat(5 * 1024 * 1024) });
    let reply = stage.post(RUNS, large).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "payload_too_large"));
    let large = json!({ "input": "x".repeat(3 * 1024 * 1024) });
    let reply = stage.post(RUNS, large).await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "payload_too_large"));
    let unknown = stage.get("/api/v1/runs?stat=failed").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (400, "invalid_request"));
    stage.stop().await;
}

#[tokio::test]
async fn large_whole_numbers_keep_every_digit() {
    let stage = Stage::open().await;
    let headers = vec![("content-type", "application/json")];
    let body = r#"{"input": {"id": 123456789012345678901234567890, "price": 1.10}}"#;
    let reply = stage.raw("POST", RUNS, &headers, body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    assert!(reply.text.contains("123456789012345678901234567890"), "{}", reply.text);
    assert!(reply.text.contains("1.10"), "{}", reply.text);
    stage.stop().await;
}

#[tokio::test]
async fn numbers_at_the_ends_of_their_range_break_nothing() {
    let stage = Stage::open().await;
    let (least, most) = (i64::MIN, i64::MAX);
    let bodies = [
        json!({ "at": most, "timeout_ms": u64::MAX }),
        json!({ "at": least, "timeout_ms": 0 }),
        json!({ "delay_ms": u64::MAX, "timeout_ms": u64::MAX, "key_ttl_ms": u64::MAX }),
        json!({ "priority": i32::MIN }),
        json!({ "priority": i64::MAX }),
    ];
    for body in bodies {
        let reply = stage.keyed(RUNS, "order-7", body.clone()).await;
        assert!(reply.status < 500, "{body}: {reply:?}");
        for path in ["/api/v1/runs", "/api/v1/stats", "/api/v1/waiting"] {
            assert_eq!(stage.get(path).await.status, 200, "{path} after {body}");
        }
    }
    for query in [format!("created_from={most}"), format!("created_before={least}&state=failed")] {
        assert_eq!(stage.get(&format!("/api/v1/runs?{query}")).await.status, 200, "{query}");
    }
    let window = format!("/api/v1/errors?window_ms={most}");
    assert_eq!(stage.get(&window).await.status, 200);
    for path in
        ["/api/v1/keys/a/%00", "/api/v1/runs?key=%00", "/api/v1/runs/%FF", "/api/v1/keys/%ZZ/b"]
    {
        let status = stage.get(path).await.status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn the_same_key_with_another_queue_lane_or_priority_is_refused() {
    let stage = Stage::open().await;
    let body = json!({ "input": 1, "queue": "bulk", "priority": 3, "tags": { "a": "b" } });
    let first = stage.keyed(RUNS, "order-7", body.clone()).await;
    assert_eq!(first.status, 201);
    assert_eq!(stage.keyed(RUNS, "order-7", body).await.status, 200);
    for (field, body) in [
        ("queue", json!({ "input": 1, "queue": "default" })),
        ("priority", json!({ "input": 1, "queue": "bulk", "priority": 0 })),
        ("lane", json!({ "input": 1, "lane": "acme" })),
    ] {
        let other = stage.keyed(RUNS, "order-7", body).await;
        assert_eq!((other.status, other.code().as_str()), (422, "key_conflict"), "{field}");
        assert_eq!(other.json()["run_id"], first.json()["run"]["id"]);
        assert!(other.json()["detail"].as_str().unwrap().contains(field), "{other:?}");
    }
    let bare = stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await;
    assert_eq!(bare.status, 200, "what is not named is not held against it");
    stage.stop().await;
}

#[tokio::test]
async fn a_workflow_that_needs_a_key_is_not_started_without() {
    let options = Options::new(Access::Open(Role::Admin)).require_key(["double"]);
    let stage = Stage::with(options).await;
    let without = stage.post(RUNS, json!({ "input": 1 })).await;
    assert_eq!((without.status, without.code().as_str()), (400, "invalid_request"));
    assert_eq!(without.json()["errors"][0]["pointer"], "Idempotency-Key");
    assert_eq!(stage.get("/api/v1/runs").await.json()["items"], json!([]));
    assert_eq!(stage.keyed(RUNS, "order-7", json!({ "input": 1 })).await.status, 201);
    let other = stage.post("/api/v1/workflows/triple/runs", json!({ "input": 1 })).await;
    assert_eq!(other.status, 201, "the others do not");
    stage.stop().await;
}
