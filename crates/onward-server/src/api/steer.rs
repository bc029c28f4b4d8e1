//! `/runs/{id}/cancel` and `/retry`: what an operator does to a run.

use axum::extract::State;
use onward::{Json, RunHandle};
use serde::Serialize;
use serde_json::value::RawValue;

use super::runs;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::request::{At, run_id};

/// A run, as the answer to a change of it.
#[derive(Serialize)]
pub(crate) struct RunOnly {
    pub(crate) run: Box<RawValue>,
}

pub(crate) async fn cancel(State(app): State<App>, At(id): At<String>) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    handle.cancel().await?;
    as_it_stands(&app, &handle).await
}

pub(crate) async fn retry(State(app): State<App>, At(id): At<String>) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    handle.retry().await?;
    as_it_stands(&app, &handle).await
}

pub(super) async fn as_it_stands(app: &App, handle: &RunHandle<Json>) -> Answer {
    answer::ok(&RunOnly { run: runs::shown(app, handle.status().await?)? })
}
