//! The stream: told at once, not too often, and of what was missed.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
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
        loop {
            let frame = self.next().await.expect("the stream ended");
            if frame.contains(what) {
                return frame;
            }
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
