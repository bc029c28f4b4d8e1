//! `onward runs cancel`.

use onward::{Error, Json, RunHandle, Why};

use super::{Ids, steer};
use crate::args::Global;
use crate::problem::{Exit, Problem, print_note};
use crate::text;

pub(super) async fn execute(ids: Ids, global: &Global) -> Result<Exit, Problem> {
    steer::each(ids, global, |run| async move {
        run.cancel().await?;
        say_when(&run).await
    })
    .await
}

/// Says of a run that has begun, and so ends in a worker's hands, when that will be.
async fn say_when(run: &RunHandle<Json>) -> Result<(), Error> {
    let why = run.why().await?;
    if !matches!(why, Why::Ended { .. }) {
        print_note(&format!("run {}: {}", run.id(), text::line(&why.to_string())));
    }
    Ok(())
}
