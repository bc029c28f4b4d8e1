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
use crate::flat_claims::Claims;
use crate::flat_history::ManySteps;
use crate::lone_step::LoneSteps;
use crate::same_key::Callers;
use crate::share;
use crate::start_to_result::LoneRuns;
use crate::steps::Steps;

/// A share of runs of five steps.
pub(crate) const STEPS: &str = "steps";

/// A share of runs of five steps, each with a key.
pub(crate) const KEYED_STEPS: &str = "keyed-steps";

/// A share of steps with a pause before each.
pub(crate) const LONE_STEPS: &str = "lone-steps";

/// A share of runs with a pause before each.
pub(crate) const LONE_RUNS: &str = "lone-runs";

/// A share of runs with steps one after the other.
pub(crate) const MANY_STEPS: &str = "many-steps";

/// A share of claims.
pub(crate) const CLAIMS: &str = "claims";

/// A share of starts with one key.
pub(crate) const CALLERS: &str = "callers";

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
        (STEPS, [at_once]) => share::serve::<Steps<false>>(onward, *at_once).await,
        (KEYED_STEPS, [at_once]) => share::serve::<Steps<true>>(onward, *at_once).await,
        (LONE_STEPS, [at_once]) => share::serve::<LoneSteps>(onward, *at_once).await,
        (LONE_RUNS, [at_once]) => share::serve::<LoneRuns>(onward, *at_once).await,
        (MANY_STEPS, [at_once]) => share::serve::<ManySteps>(onward, *at_once).await,
        (CLAIMS, [at_once]) => share::serve::<Claims>(onward, *at_once).await,
        (CALLERS, [at_once]) => share::serve::<Callers>(onward, *at_once).await,
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
    while heard().await?.is_some() {}
    Ok(worker.shutdown().await?)
}

/// Waits for a line of the parent, which says another only after an answer; none is the end.
pub(crate) async fn heard() -> Fallible<Option<String>> {
    let mut line = String::new();
    let bytes = BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    Ok((bytes > 0).then(|| line.trim_end().to_owned()))
}

pub(crate) fn ready() {
    say(READY);
}

pub(crate) fn say(line: &str) {
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
