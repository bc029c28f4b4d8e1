//! What another process of this program does: the roles of a child.
//!
//! Owns: the workflows of `cross_process` and `takeover`. Never measures; it says when something
//! happened, and its parent does.
//!
//! `onward-bench child ROLE URL NUMBER…`

use std::time::Duration;

use onward::{Ctx, Failure, Onward, Worker, Workflow};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::bench::{Fallible, payload};
use crate::child::{READY, shared_time};
use crate::steps;

/// Starts and serves its share of `steps_…`: how many runs, and how many at once.
pub(crate) const SHARE: &str = "share";

/// Serves runs of [`REPORTED`].
pub(crate) const REPORT: &str = "report";

/// Serves runs of [`HELD`] up to their second step, which never ends; the lease is in ms.
pub(crate) const HOLD: &str = "hold";

/// Serves runs of [`HELD`] to the end; the lease is in ms.
pub(crate) const TAKE: &str = "take";

/// Its only step says when it begins.
pub(crate) const REPORTED: Workflow<usize, ()> = Workflow::named("reported");

/// Its second step is what is taken over.
pub(crate) const HELD: Workflow<usize, ()> = Workflow::named("held");

/// How many runs a holder holds at most.
pub(crate) const HELD_MAX: usize = 1_000;

pub(crate) async fn serve(arguments: &[String]) -> Fallible<()> {
    let [role, url, numbers @ ..] = arguments else { return Err("a child without a role".into()) };
    let numbers: Vec<usize> =
        numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    let onward = Onward::open(url).await?;
    match (role.as_str(), &numbers[..]) {
        (SHARE, [runs, in_flight]) => {
            let worker = steps::worker(&onward, *in_flight).await?;
            ready();
            heard().await?;
            steps::start_all(&onward, *runs, *in_flight).await?;
            say("done");
            end(worker).await
        }
        (REPORT, []) => end_of(onward.worker().serve(REPORTED, reported)).await,
        (HOLD, [lease]) => {
            let worker = onward.worker().serve(HELD, hold).shutdown_grace(Duration::ZERO);
            end_of(worker.concurrency(HELD_MAX).lease(milliseconds(*lease))).await
        }
        (TAKE, [lease]) => {
            let worker = onward.worker().serve(HELD, take).concurrency(HELD_MAX);
            end_of(worker.lease(milliseconds(*lease))).await
        }
        _ => Err(format!("no role {role:?} with {numbers:?}").into()),
    }
}

/// Serves until the parent lets it end.
async fn end_of(worker: onward::WorkerBuilder) -> Fallible<()> {
    let worker = worker.start().await?;
    ready();
    end(worker).await
}

async fn end(worker: Worker) -> Fallible<()> {
    while heard().await? {}
    Ok(worker.shutdown().await?)
}

/// Waits for a line of the parent; whether there was one.
async fn heard() -> Fallible<bool> {
    let mut line = String::new();
    Ok(BufReader::new(tokio::io::stdin()).read_line(&mut line).await? > 0)
}

fn ready() {
    say(READY);
}

fn say(line: &str) {
    println!("{line}");
}

/// Says when it is.
fn say_time() {
    println!("{}", shared_time().as_nanos());
}

fn milliseconds(count: usize) -> Duration {
    Duration::from_millis(count as u64)
}

async fn reported(ctx: Ctx, _: usize) -> Result<(), Failure> {
    let step = ctx.step("step", async |_| {
        say_time();
        Ok::<_, Failure>(payload())
    });
    step.await.map(drop)
}

async fn hold(ctx: Ctx, _: usize) -> Result<(), Failure> {
    ctx.step("first", async |_| Ok::<_, Failure>(payload())).await?;
    let second = ctx.step("second", async |_| {
        say("held");
        std::future::pending::<Result<String, Failure>>().await
    });
    second.await.map(drop)
}

async fn take(ctx: Ctx, _: usize) -> Result<(), Failure> {
    ctx.step("first", async |_| Ok::<_, Failure>(payload())).await?;
    let second = ctx.step("second", async |_| {
        say_time();
        Ok::<_, Failure>(payload())
    });
    second.await.map(drop)
}
