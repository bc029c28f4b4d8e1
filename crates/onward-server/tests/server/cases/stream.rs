//! The stream: told at once, not too often, and of what was missed.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use onward::RunId;
use onward_server::{Access, NewToken, Options, Role, Tokens};
use serde_json::json;

use super::stage::{Asked, SOON, Stage};

const RUNS: &str = "/api/v1/workflows/double/runs";

/// The frames of a stream as they come.
struct Frames {
    body: Incoming,
    text: String,
}

impl Frames {
    async fn open(stage: &Stage, path: &str, last: Option<&str>) -> Self {
        let headers = last.map(|last| ("last-event-id", last)).into_iter().collect();
        Self::with(stage, path, headers).await
    }

    async fn with(stage: &Stage, path: &str, headers: Vec<(&str, &str)>) -> Self {
        let response = stage.begin("GET", path, Asked { headers, body: None }).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    /// The next frame; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(frame);
            }
            let part = tokio::time::timeout(SOON, self.body.frame()).await.expect("no frame came");
            let part = part?.unwrap().into_data().unwrap();
            self.text += std::str::from_utf8(&part).unwrap();
        }
    }

    /// Reads until a frame holds this.
    async fn until(&mut self, what: &str) -> String {
        let begun = Instant::now();
        loop {
            let frame = self.next().await.expect("the stream ended");
            if frame.contains(what) {
                return frame;
            }
            // Frames of other things come all the time.
            assert!(begun.elapsed() < SOON, "no frame holds {what:?}");
        }
    }
}

fn id(frame: &str) -> &str {
    frame.lines().find_map(|line| line.strip_prefix("id: ")).unwrap()
}

#[tokio::test]
async fn a_start_is_told() {
    let stage = Stage::open().await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    frames.until(": open").await;
    stage.post(RUNS, json!({ "input": 1 })).await;
    let frame = frames.until("\"runs\"").await;
    assert!(frame.starts_with("event: change"), "{frame}");
    drop(frames);
    stage.stop().await;
}

#[tokio::test]
async fn the_end_of_a_watched_run_is_told() {
    let stage = Stage::open().await;
    let run = stage.post(RUNS, json!({ "input": 1 })).await.json()["run"]["id"].clone();
    let run = run.as_str().unwrap();
    let mut frames = Frames::open(&stage, &format!("/api/v1/stream?run={run}"), None).await;
    frames.until(": open").await;
    let stage = stage.working().await;
    frames.until(&format!("run:{run}")).await;
    drop(frames);
    stage.stop().await;
}

#[tokio::test]
async fn many_changes_are_few_frames() {
    let stage = Stage::open().await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    frames.until(": open").await;
    let begun = Instant::now();
    let mut told = 0_u32;
    let starting = async {
        for input in 0..60 {
            stage.post(RUNS, json!({ "input": input })).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let telling = async {
        loop {
            told += u32::from(frames.next().await.unwrap().contains("change"));
        }
    };
    tokio::select! {
        () = starting => {}
        () = telling => {}
    }
    let most = begun.elapsed().as_millis() / 250 + 2;
    assert!(told > 0 && u128::from(told) <= most, "{told} frames, at most {most}");
    drop(frames);
    stage.stop().await;
}

#[tokio::test]
async fn whoever_comes_again_is_told_what_was_missed() {
    let stage = Stage::open().await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    let begun = id(&frames.until(": open").await).to_owned();
    stage.post(RUNS, json!({ "input": 1 })).await;
    frames.until("event: change").await;
    let mut again = Frames::open(&stage, "/api/v1/stream", Some(&begun)).await;
    again.until("event: change").await;
    let mut other = Frames::open(&stage, "/api/v1/stream", Some("7-1")).await;
    other.until("event: reset").await;
    drop((frames, again, other));
    stage.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_ends_its_streams() {
    let stage = Stage::open().await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    frames.until(": open").await;
    let begun = Instant::now();
    stage.stop().await;
    while frames.next().await.is_some() {}
    assert!(begun.elapsed() < Duration::from_secs(20), "it waited for its streams");
}

#[tokio::test]
async fn a_token_that_is_taken_away_ends_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let (file, token) = (folder.path().join("tokens"), NewToken::make().unwrap());
    std::fs::write(&file, format!("{}\n", token.line("ada", Role::Operate))).unwrap();
    let tokens = Tokens::of_file(&file).unwrap();
    let mut stage = Stage::with(Options::new(Access::Tokens(tokens))).await;
    stage.as_bearer(&token);
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    frames.until(": open").await;
    std::fs::write(&file, "").unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(5);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    while frames.next().await.is_some() {}
    assert_eq!(stage.get("/api/v1/meta").await.status, 401);
    stage.stop().await;
}

#[tokio::test]
async fn a_logout_ends_the_streams_of_its_session_and_no_others() {
    let (stage, [_, operate, admin]) = Stage::with_tokens().await;
    let cookie = |token: &NewToken| format!("onward_session={}", token.secret());
    let (mine, other) = (cookie(&operate), cookie(&admin));
    let bearer = format!("Bearer {}", operate.secret());
    let opened = async |headers| {
        let mut frames = Frames::with(&stage, "/api/v1/stream", headers).await;
        frames.until(": open").await;
        frames
    };
    let mut tabs = [opened(vec![("cookie", &mine)]).await, opened(vec![("cookie", &mine)]).await];
    let mut others = opened(vec![("cookie", &other)]).await;
    let mut program = opened(vec![("authorization", &bearer)]).await;
    let stranger = vec![("cookie", "onward_session=onw_00"), ("x-onward", "1")];
    stage.send("DELETE", "/api/v1/session", Asked { headers: stranger, body: None }).await;
    let headers = vec![("cookie", mine.as_str()), ("x-onward", "1")];
    let out = stage.send("DELETE", "/api/v1/session", Asked { headers, body: None }).await;
    assert_eq!(out.status, 204);
    for tab in &mut tabs {
        let ended = async { while tab.next().await.is_some() {} };
        tokio::time::timeout(SOON, ended).await.expect("the stream goes on after the logout");
    }
    let headers = vec![("authorization", bearer.as_str())];
    let body = Some(json!({ "input": 1 }));
    let started = stage.send("POST", RUNS, Asked { headers, body }).await;
    assert_eq!(started.status, 201);
    others.until("\"runs\"").await;
    program.until("\"runs\"").await;
    drop((others, program));
    stage.stop().await;
}

#[tokio::test]
async fn a_stream_says_now_and_then_that_it_lives() {
    let options = Options::new(Access::Open(Role::Read)).ping_every(Duration::from_millis(50));
    let stage = Stage::with(options).await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    frames.until(": ping").await;
    drop(frames);
    stage.stop().await;
}

#[tokio::test]
async fn more_streams_than_may_be_open_are_refused_until_one_ends() {
    let stage = Stage::with(Options::new(Access::Open(Role::Read)).streams_max(1)).await;
    let mut first = Frames::open(&stage, "/api/v1/stream", None).await;
    first.until(": open").await;
    let second = stage.get("/api/v1/stream").await;
    assert_eq!((second.status, second.code().as_str()), (429, "rate_limited"));
    assert!(second.header("retry-after").is_some());
    drop(first);
    let begun = Instant::now();
    while stage.begin("GET", "/api/v1/stream", Asked::default()).await.status() != 200 {
        assert!(begun.elapsed() < SOON, "the place of a stream that ended stays taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.stop().await;
}

/// Nothing but a change of schedules has this topic, so no timer tells of it.
#[tokio::test]
async fn a_schedule_is_told() {
    let stage = Stage::open().await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    frames.until(": open").await;
    let spec = json!({ "every": { "every_ms": 60_000, "anchor": 0 } });
    let body = Some(json!({ "workflow": "double", "spec": spec }));
    let put = stage.send("PUT", "/api/v1/schedules/x", Asked { body, ..Asked::default() }).await;
    assert_eq!(put.status, 200, "{put:?}");
    frames.until("\"schedules\"").await;
    drop(frames);
    stage.stop().await;
}

#[tokio::test]
async fn whoever_has_missed_nothing_is_told_nothing() {
    let stage = Stage::open().await;
    let mut frames = Frames::open(&stage, "/api/v1/stream", None).await;
    let mut last = id(&frames.until(": open").await).to_owned();
    let begun = Instant::now();
    loop {
        let mut again = Frames::open(&stage, "/api/v1/stream", Some(&last)).await;
        let open = again.until(": open").await;
        // What was missed comes with the first frame.
        let missed = again.text.contains("event: change");
        assert_eq!(missed, id(&open) != last, "{last}: {open} {}", again.text);
        if !missed {
            break;
        }
        assert!(begun.elapsed() < SOON, "something changes all the time");
        last = id(&open).to_owned();
    }
    stage.post(RUNS, json!({ "input": 1 })).await;
    frames.until("event: change").await;
    drop(frames);
    stage.stop().await;
}

#[tokio::test]
async fn a_stream_watches_eight_runs_at_the_most() {
    let stage = Stage::open().await;
    let runs = |count: usize| {
        let runs = vec![format!("run={}", RunId::new()); count].join("&");
        format!("/api/v1/stream?{runs}")
    };
    let mut eight = Frames::open(&stage, &runs(8), None).await;
    eight.until(": open").await;
    let nine = stage.get(&runs(9)).await;
    assert_eq!((nine.status, nine.code().as_str()), (400, "invalid_request"));
    drop(eight);
    stage.stop().await;
}
