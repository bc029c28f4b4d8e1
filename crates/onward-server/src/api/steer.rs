//! `/runs/{id}/cancel`, `/retry`, `/pause`, `/resume`, `/fork` and `DELETE`: what an operator does to a run.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use onward::{Code, Json, RunHandle};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::runs;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{At, Body, idempotency_key, run_id};

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

pub(crate) async fn pause(State(app): State<App>, At(id): At<String>) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    handle.pause().await?;
    as_it_stands(&app, &handle).await
}

pub(crate) async fn resume(State(app): State<App>, At(id): At<String>) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    handle.resume().await?;
    as_it_stands(&app, &handle).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFork {
    from_step: String,
    input: Option<Json>,
    key: Option<String>,
}

pub(crate) async fn fork(
    State(app): State<App>,
    At(id): At<String>,
    headers: HeaderMap,
    Body(new): Body<NewFork>,
) -> Answer {
    let mut fork = app.onward.run(run_id(&id)?).fork(new.from_step);
    if let Some(input) = &new.input {
        fork = fork.input(input);
    }
    if let Some(key) = idempotency_key(&headers)?.or(new.key) {
        fork = fork.key(key);
    }
    let run = runs::shown(&app, fork.await?.status().await?)?;
    answer::with(StatusCode::CREATED, &RunOnly { run })
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
