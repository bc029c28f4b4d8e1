//! `/workers`: who serves the store.
//!
//! Owns: the rows about workers. Never judges who is gone; the store does.

use axum::extract::State;

use crate::answer::{self, Answer, Page};
use crate::app::App;

pub(crate) async fn list(State(app): State<App>) -> Answer {
    let workers = app.stats().await?.workers.clone();
    answer::ok(&Page { items: workers, next: None })
}
