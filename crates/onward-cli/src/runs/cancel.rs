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
    let (id, why) = (run.id(), run.why().await?);
    let sentence = text::line(&why.to_string());
    match why {
        Why::Ended { .. } => {}
        Why::Cancelling => print_note(&format!("run {id} is asked to end, and is about to.")),
        Why::NoWorker { .. } | Why::WorkerGone { served: false } => {
            print_note(&format!("run {id} ends when a worker takes it up. {sentence}"));
        }
        _ => print_note(&format!("run {id} is asked to end. {sentence}")),
    }
    Ok(())
}
