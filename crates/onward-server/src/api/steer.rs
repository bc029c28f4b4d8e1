//! `/runs/{id}/cancel`, `/retry` and `DELETE`: what an operator does to a run.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use onward::{Code, Json, RunHandle};
use serde::Serialize;
use serde_json::value::RawValue;

use super::runs;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::problem::Problem;
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

pub(crate) async fn delete(State(app): State<App>, At(id): At<String>) -> Answer {
    let id = run_id(&id)?;
    match app.onward.run(id).delete().await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => {
            let text = format!("there is no run {id}; it may have been deleted");
            Err(Problem::new(Code::RunNotFound, text).of_run(id))
        }
    }
}

pub(super) async fn as_it_stands(app: &App, handle: &RunHandle<Json>) -> Answer {
    answer::ok(&RunOnly { run: runs::shown(app, handle.status().await?)? })
}
