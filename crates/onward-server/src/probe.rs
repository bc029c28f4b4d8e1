//! Probes: whether the process lives, and whether requests are better sent to it.
//!
//! Never asks who sends them, and says no more than that.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use onward::RunId;
use onward::store::Which;

use crate::app::{App, Phase};

/// How long the store may take to answer a probe: shorter than a probe waits.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The process answers.
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// The store answers, and the server is not stopping.
pub(crate) async fn ready(State(app): State<App>) -> (StatusCode, &'static str) {
    const NO: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
    if *app.phase.borrow() != Phase::Up {
        return (NO, "stopping\n");
    }
    // A run that is not there: one look along an index.
    let look = app.store().get(Which::Id(RunId::from_u128(0)));
    match tokio::time::timeout(ANSWER_MAX, look).await {
        Ok(Ok(_)) => (StatusCode::OK, "ok\n"),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            (NO, "the store does not answer\n")
        }
        Err(_) => (NO, "the store does not answer in time\n"),
    }
}
