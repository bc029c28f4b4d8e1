//! Many finished runs at once: a worker finishes some, and the others are copies of these, made with
//! plain SQL in whatever tables the store keeps of them.
//!
//! Owns: the finished runs that a measure finds. Never copies what is not finished.

mod postgres;
mod sqlite;

use onward::{Ctx, Failure, Onward, Workflow};

use crate::bench::{Fallible, payload};
use crate::place::{Made, Place};

/// What the finished runs are of.
pub(crate) const ONE_STEP: Workflow<u64, String> = Workflow::named("one-step");

/// Runs that a worker finishes.
pub(crate) const FEW: usize = 1_000;

/// Adds finished runs: as many as a worker finishes, or a multiple of that.
pub(crate) async fn finished(place: &Place, count: usize) -> Fallible<()> {
    finish_few(&place.open().await?).await?;
    let copies = count / FEW - 1;
    if copies == 0 {
        return Ok(());
    }
    match &place.made {
        Made::Folder(folder) => sqlite::copy(folder.path(), copies),
        Made::Schema { url, name } => postgres::copy(url, name, copies).await,
    }
}

async fn finish_few(onward: &Onward) -> Fallible<()> {
    let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
    let few = FEW as u64;
    onward.start_many(ONE_STEP, 0..few).key(|number| format!("few-{number}")).await?;
    for number in 0..few {
        onward.by_key(ONE_STEP, format!("few-{number}")).await?.result().await?;
    }
    Ok(worker.shutdown().await?)
}

pub(crate) async fn one_step(ctx: Ctx, _: u64) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}
