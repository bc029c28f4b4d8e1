//! Callbacks over HTTP: an answer, one given before, one that comes too late, and a guess.

use std::time::{Duration, Instant};

use onward::{Callback, Ctx, Failure, Onward, RunHandle, Waits, Worker, Workflow};
use serde_json::{Value, json};

use super::stage::{Reply, SOON, Stage};

/// Asks for a value, within so many milliseconds if any are given.
const ASK: Workflow<Option<u64>, Option<Value>> = Workflow::named("ask");

/// The signal that lets a run go on that has shown its token.
const SEEN: &str = "seen";

async fn ask(ctx: Ctx, valid_ms: Option<u64>) -> Result<Option<Value>, Failure> {
    let callback: Callback<Value> = match valid_ms {
        Some(ms) => ctx.callback().valid_for(Duration::from_millis(ms)).await?,
        None => ctx.callback().await?,
    };
    ctx.set_tag("token", &callback.token())?;
    let given = callback.result().await?;
    ctx.signal::<()>(SEEN).await?;
    Ok(given)
}

async fn serving(onward: &Onward) -> Worker {
    onward.worker().serve(ASK, ask).start().await.unwrap()
}

/// The token that a run shows.
async fn token<O>(run: &RunHandle<O>) -> String {
    let begun = Instant::now();
    loop {
        if let Some(token) = run.status().await.unwrap().tags.get("token") {
            return token.clone();
        }
        assert!(begun.elapsed() < SOON, "it shows no token");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn answer(stage: &Stage, token: &str, value: u32) -> Reply {
    stage.post("/api/v1/callbacks", json!({ "token": token, "value": value })).await
}

#[tokio::test]
async fn an_answer_is_taken_once_and_may_be_repeated() {
    let stage = Stage::open().await;
    let worker = serving(&stage.onward).await;
    let run = stage.onward.start(ASK, &None).await.unwrap();
    let token = token(&run).await;
    let first = answer(&stage, &token, 7).await;
    assert_eq!((first.status, &first.json()["run"]["id"]), (200, &json!(run.id().to_string())));
    assert_eq!(answer(&stage, &token, 7).await.status, 200, "its reply may have been lost");
    let other = answer(&stage, &token, 8).await;
    assert_eq!((other.status, other.code().as_str()), (409, "callback_used"));
    run.signal(SEEN, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), Some(json!(7)));
    worker.shutdown().await.unwrap();
    stage.stop().await;
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_told_so() {
    let stage = Stage::open().await;
    let worker = serving(&stage.onward).await;
    let run = stage.onward.start(ASK, &Some(1)).await.unwrap();
    let token = token(&run).await;
    // It is too late once the run has gone on without an answer.
    let goes_on =
        |waits: Option<Waits>| matches!(waits, Some(Waits::Signal { name }) if name == SEEN);
    let begun = Instant::now();
    while !goes_on(run.status().await.unwrap().waits_for) {
        assert!(begun.elapsed() < SOON, "it does not go on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let late = answer(&stage, &token, 7).await;
    assert_eq!((late.status, late.code().as_str()), (409, "callback_expired"));
    run.signal(SEEN, &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), None);
    worker.shutdown().await.unwrap();
    stage.stop().await;
}

#[tokio::test]
async fn a_token_that_does_not_fit_is_unknown_whatever_of_it_is_true() {
    let stage = Stage::open().await;
    let worker = serving(&stage.onward).await;
    let run = stage.onward.start(ASK, &None).await.unwrap();
    let token = token(&run).await;
    let (place, secret) = token.rsplit_once('.').unwrap();
    let guesses = [format!("{place}.{}", "0".repeat(secret.len())), "0000.1.guess".to_owned()];
    for guess in guesses {
        let unknown = answer(&stage, &guess, 7).await;
        assert_eq!((unknown.status, unknown.code().as_str()), (404, "callback_unknown"), "{guess}");
    }
    run.cancel().await.unwrap();
    worker.shutdown().await.unwrap();
    stage.stop().await;
}

/// Whoever has it may answer, at a route of the user's that asks for no role.
#[tokio::test]
async fn the_secret_of_a_callback_is_shown_to_nobody() {
    let (mut stage, tokens) = Stage::with_tokens().await;
    let worker = serving(&stage.onward).await;
    let run = stage.onward.start(ASK, &Some(60_000)).await.unwrap();
    let token = token(&run).await;
    let (_, secret) = token.rsplit_once('.').unwrap();
    let path = format!("/api/v1/runs/{}", run.id());
    for role in &tokens {
        stage.as_bearer(role);
        let history = stage.get(&format!("{path}/history")).await;
        assert!(!history.text.contains(secret), "{}", history.text);
        let issued = &history.json()["items"][0];
        assert_eq!(issued["step"], "callback#=1");
        assert!(issued["entry"]["value"]["expires_at"].is_i64(), "the rest is shown: {issued}");
        let seq = &issued["seq"];
        let record = stage.get(&format!("{path}/records/{seq}")).await;
        assert_eq!(record.status, 200);
        assert!(!record.text.contains(secret), "{}", record.text);
    }
    run.cancel().await.unwrap();
    worker.shutdown().await.unwrap();
    stage.stop().await;
}

/// A step of the user's by that name is no callback.
#[tokio::test]
async fn what_is_no_callback_is_shown_as_it_is() {
    const OTHER: Workflow<(), ()> = Workflow::named("other");
    let stage = Stage::open().await;
    let other = async |ctx: Ctx, ()| {
        ctx.step("callback", async |_| Ok::<_, Failure>(json!({ "secret": "plain" }))).await?;
        ctx.step("callback", async |_| Ok::<_, Failure>("plain".to_owned())).id(7).await?;
        Ok::<_, Failure>(())
    };
    let worker = stage.onward.worker().serve(OTHER, other).start().await.unwrap();
    let run = stage.onward.start(OTHER, &()).await.unwrap();
    run.result().await.unwrap();
    let history = stage.get(&format!("/api/v1/runs/{}/history", run.id())).await.json();
    assert_eq!(history["items"][0]["entry"]["value"], json!({ "secret": "plain" }));
    assert_eq!(history["items"][1]["entry"]["value"], "plain");
    worker.shutdown().await.unwrap();
    stage.stop().await;
}
