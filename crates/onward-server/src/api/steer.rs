//! `/runs/{id}/cancel`, `/retry`, `/pause`, `/resume`, `/fork` and `DELETE`: what an operator does.
//!
//! Owns: how a change of one run is asked for. Never decides whether the run allows it; the store does.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use onward::{Code, Json, RunHandle};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::runs;
use super::start::Place;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::operation::{check_goes_on, check_workflow};
use crate::options::Caller;
use crate::problem::Problem;
use crate::request::{At, Body, Mount, idempotency_key, payload_or_none, run_id};

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

pub(crate) async fn retry(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(id): At<String>,
) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    check_goes_on(&handle.status().await?, caller.role)?;
    handle.retry().await?;
    as_it_stands(&app, &handle).await
}

pub(crate) async fn pause(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(id): At<String>,
) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    handle.pause_by(caller.who).await?;
    as_it_stands(&app, &handle).await
}

pub(crate) async fn resume(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    At(id): At<String>,
) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    check_goes_on(&handle.status().await?, caller.role)?;
    handle.resume().await?;
    as_it_stands(&app, &handle).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFork {
    from_step: String,
    #[serde(default, deserialize_with = "payload_or_none")]
    input: Option<Json>,
    key: Option<String>,
}

pub(crate) async fn fork(
    State(app): State<App>,
    At(id): At<String>,
    mount: Mount,
    headers: HeaderMap,
    Body(new): Body<NewFork>,
) -> Answer {
    let named = idempotency_key(&headers)?;
    if named.is_some() && new.key.is_some() && named != new.key {
        return Err(Problem::invalid("key", "it differs from the Idempotency-Key"));
    }
    let source = app.onward.run(run_id(&id)?);
    check_workflow(&source.own_status().await?.workflow)?;
    let mut fork = source.fork(new.from_step);
    if let Some(input) = &new.input {
        fork = fork.input(input);
    }
    if let Some(key) = named.as_ref().or(new.key.as_ref()) {
        fork = fork.key(key.as_str());
    }
    // A key in the body is refused when it is in use; one in the head names the request.
    let (handle, again) = match named {
        Some(_) => fork.forked().await.map_err(other_request)?,
        None => (fork.await?, false),
    };
    let place = Place::of(&mount, handle.id());
    let response = as_it_stands(&app, &handle).await?;
    if again {
        return Ok(place.replayed().on(response));
    }
    let mut response = place.on(response);
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

/// The key of a request that names another run than a fork like this.
fn other_request(error: onward::Error) -> Problem {
    match (error.code(), error.run()) {
        (Code::KeyTaken, Some(run)) => {
            let text = format!("run {run} has this key, and is no fork like this");
            Problem::new(Code::KeyConflict, text).of_run(run)
        }
        _ => error.into(),
    }
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
