//! `/workers`: who serves the store.
//!
//! Owns: the rows about workers. Never judges who is gone; the store does.

use axum::extract::State;

use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::operation::of_users;

pub(crate) async fn list(State(app): State<App>) -> Answer {
    let stats = app.stats().await?;
    let items: Vec<_> = of_users(&stats.workers).collect();
    answer::ok(&Page { items, next: None })
}
