//! `/stats`: counts of runs, and the workers.

use axum::extract::State;

use crate::answer::{self, Answer};
use crate::app::App;

pub(crate) async fn show(State(app): State<App>) -> Answer {
    answer::ok(app.stats().await?.as_ref())
}
