//! `onward start --from` over a server: a call for each line.
//!
//! Owns: the loop over the items. What is refused goes into the same ledger as bad lines do.

use std::sync::{Arc, Mutex};

use onward::StartedMany;
use tokio::sync::mpsc;

use super::StartArgs;
use super::backfill::{Ledger, interrupted, lock};
use super::lines::{BadLine, Item};
use crate::place::Place;
use crate::problem::{Exit, Problem};
use crate::progress::Progress;

/// Has the server start a run for each item, until the end, an interrupt, or no answer.
pub(super) async fn start(
    args: &StartArgs,
    place: &Place,
    mut items: mpsc::Receiver<Item>,
    (mut progress, shared): (Progress, &Arc<Mutex<Ledger>>),
) -> Result<StartedMany, Problem> {
    let (mut so_far, mut done) = (StartedMany::default(), 0);
    let mut stop = Box::pin(interrupted(Arc::clone(shared)));
    loop {
        let item = tokio::select! {
            biased;
            () = &mut stop => None,
            item = items.recv() => item,
        };
        let Some(item) = item else { return Ok(so_far) };
        let key = Some(item.key.as_str()).filter(|key| !key.is_empty());
        let new = args.options.asked(item.input());
        match place.start(&args.name, &new, key).await {
            Ok((_, false)) => so_far.started += 1,
            Ok((_, true)) => so_far.existing += 1,
            Err(problem) if problem.exit() == Exit::Unavailable => {
                lock(shared).cut_short = Some(problem.to_string());
                return Ok(so_far);
            }
            Err(problem) => {
                let why = problem.to_string();
                lock(shared).refuse(BadLine { line: item.line, why });
            }
        }
        done += 1;
        let (refused, bytes_read) = lock(shared).done_with(done, 0);
        let (started, existing) = (so_far.started, so_far.existing);
        let said = format!("{started} started, {existing} existing, {refused} refused");
        progress.set(bytes_read, said);
    }
}
