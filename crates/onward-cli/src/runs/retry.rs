//! `onward runs retry`.

use super::{Ids, steer};
use crate::args::Global;
use crate::problem::{Exit, Problem};

pub(super) async fn execute(ids: Ids, global: &Global) -> Result<Exit, Problem> {
    steer::each(ids, global, |run| async move { run.retry().await }).await
}
