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
