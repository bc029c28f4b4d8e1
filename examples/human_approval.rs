//! An expense that a person approves: in the app, by a link in a mail, or not in time.
//!
//! `cargo run -p onward --example human_approval`
//!
//! While it waits, a run is a row in the store: no task, no timer, no memory. The clock of this
//! example is moved by hand, so that a week passes at once. In a program of yours the store is opened
//! with `Onward::open("sqlite:onward.db")`, and everything else is the same.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onward::store::MemoryStore;
use onward::{Code, Ctx, Failure, Onward, RunHandle, TestClock, Workflow};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

const EXPENSE: Workflow<Expense, String> = Workflow::named("expense");
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Expense {
    what: String,
    cents: u64,
}

#[derive(Debug, Serialize, Deserialize)]
enum Decision {
    Approve { by: String },
    Refuse { because: String },
}

async fn expense(ctx: Ctx, expense: Expense) -> Result<String, Failure> {
    // A secret that fits into a URL. Whoever has it may answer, once, within a week.
    let callback = ctx.callback::<Decision>().valid_for(7 * DAY).await?;
    let token = callback.token();
    ctx.step("mail the link", async |_| mail(&expense.what, &token).await).await?;

    // Both ways to answer at once, and a reminder. After a crash the same one comes first again.
    let mut answer = pin!(async {
        tokio::select! {
            by_link = callback.result() => by_link, // nothing, once the week is over
            in_app = ctx.signal::<Decision>("decision") => in_app.map(Some),
        }
    });
    let decision = tokio::select! {
        decision = &mut answer => decision?,
        () = ctx.sleep(3 * DAY) => {
            ctx.step("remind", async |_| remind(&expense.what).await).await?;
            answer.await?
        }
    };
    match decision {
        Some(Decision::Approve { by }) => {
            let pay = ctx.step("pay", async |step| pay(step.id(), expense.cents).await);
            pay.await?;
            Ok(format!("paid, {by} approved it"))
        }
        Some(Decision::Refuse { because }) => Ok(format!("refused: {because}")),
        None => Ok("nobody answered within a week".to_owned()),
    }
}

/// What was mailed last: the token stands for the link.
static MAILED: Mutex<String> = Mutex::const_new(String::new());

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = TestClock::new();
    let onward = Onward::with_store(Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))));
    let worker = onward.worker().serve(EXPENSE, expense).start().await?;

    // In the app: whoever has the run's key, or its id, sends a signal. Twice, as a nervous finger
    // does it; the key makes it one.
    let train = start(&onward, "a train ticket", 4_200).await?;
    let approve = Decision::Approve { by: "Ada".to_owned() };
    train.signal("decision", &approve).key("click-17").await?;
    train.signal("decision", &approve).key("click-17").await?;
    println!("the train ticket: {}", train.result().await?);

    // By the link, on the fifth day, after a reminder.
    let chair = start(&onward, "a chair", 30_000).await?;
    let link = MAILED.lock().await.clone();
    clock.advance(3 * DAY);
    recorded(&chair, "remind").await?;
    clock.advance(2 * DAY);
    let refuse = Decision::Refuse { because: "you have one".to_owned() };
    onward.resolve(&link, &refuse).await?;
    println!("the chair: {}", chair.result().await?);
    match onward.resolve(&link, &approve).await {
        Err(error) if error.code() == Code::CallbackUsed => {
            println!("the same link again: {error}")
        }
        _ => return Err("a link is good for one answer".into()),
    }

    // Nobody answers.
    let lamp = start(&onward, "a lamp", 9_900).await?;
    clock.advance(3 * DAY);
    recorded(&lamp, "remind").await?;
    clock.advance(4 * DAY);
    println!("the lamp: {}", lamp.result().await?);

    worker.shutdown().await?;
    Ok(())
}

async fn start(
    onward: &Onward,
    what: &str,
    cents: u64,
) -> Result<RunHandle<String>, onward::Error> {
    let expense = Expense { what: what.to_owned(), cents };
    let run = onward.start(EXPENSE, &expense).key(format!("expense of {what}")).await?;
    recorded(&run, "mail the link").await?;
    Ok(run)
}

/// Waits until the run has recorded a step; only a clock that is moved by hand needs that.
async fn recorded(run: &RunHandle<String>, step: &str) -> Result<(), onward::Error> {
    while !run.history().await?.iter().any(|record| record.step == step) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn mail(what: &str, token: &str) -> Result<(), Failure> {
    println!("→ mail: may we buy {what}? https://example.com/answer/{}…", &token[..8]);
    token.clone_into(&mut *MAILED.lock().await);
    Ok(())
}

async fn remind(what: &str) -> Result<(), Failure> {
    println!("→ mail: {what} still waits for you");
    Ok(())
}

async fn pay(key: &str, cents: u64) -> Result<(), Failure> {
    println!("→ paying {cents} cents under idempotency key {key:?}");
    Ok(())
}
