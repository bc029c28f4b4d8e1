//! `/runs/{id}/signals` and `/callbacks`: messages to runs.
//!
//! Owns: how a message is asked for, and which have not been taken yet. Never puts a callback's token into
//! a path or a log.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use onward::{Code, Json, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use super::start::REPLAYED;
use super::steer::as_it_stands;
use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::guard::Detail;
use crate::limits::HISTORY_PAGE_BYTES;
use crate::options::PayloadPlace;
use crate::problem::Problem;
use crate::request::{At, Body, Params, idempotency_key, null, payload, run_id};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSignal {
    name: String,
    #[serde(default = "null", deserialize_with = "payload")]
    value: Json,
    key: Option<String>,
}

/// A signal that nothing has taken yet. Not its key: that of a callback's answer is a secret.
#[derive(Serialize)]
struct Untaken {
    no: u64,
    name: String,
    at: Timestamp,
    value: Json,
}

pub(crate) async fn list(State(app): State<App>, At(id): At<String>, params: Params) -> Answer {
    let handle = app.onward.run(run_id(&id)?);
    let (after, limit) = (params.cursor_of()?.unwrap_or(0), params.limit()?);
    let run = handle.own_status().await?;
    let mut untaken = handle.signals_untaken().await?;
    untaken.retain(|signal| signal.no > after);
    let (all, mut bytes) = (untaken.len(), 0);
    let mut items = Vec::new();
    for signal in untaken.into_iter().take(limit) {
        if bytes > HISTORY_PAGE_BYTES {
            break;
        }
        bytes += signal.bytes();
        let value = app.options.shown_of(&run, PayloadPlace::Record, &signal.body);
        items.push(Untaken { no: signal.no, name: signal.name, at: signal.at, value });
    }
    let last = items.last().map(|signal| signal.no.to_string());
    let next = last.filter(|_| items.len() < all);
    answer::ok(&Page { items, next })
}

#[derive(Serialize)]
struct Signalled {
    delivered: &'static str,
}

pub(crate) async fn send(
    State(app): State<App>,
    At(id): At<String>,
    headers: HeaderMap,
    Body(new): Body<NewSignal>,
) -> Answer {
    let key = match (idempotency_key(&headers)?, new.key) {
        (Some(header), Some(body)) if header != body => {
            return Err(Problem::invalid("key", "it differs from the Idempotency-Key"));
        }
        (header, body) => header.or(body),
    };
    let handle = app.onward.run(run_id(&id)?);
    let mut signal = handle.signal(&new.name, &new.value);
    if let Some(key) = &key {
        signal = signal.key(key.as_str());
    }
    let sent = signal.sent().await;
    let outcome = match (&sent, &key) {
        (_, None) => "missing",
        (Ok(sent), _) if sent.was_there => "replayed",
        (Ok(_), _) => "first",
        (Err(error), _) if error.code() == Code::KeyConflict => "mismatch",
        (Err(_), _) => "refused",
    };
    app.counts.keyed(outcome);
    let again = sent?.was_there;
    let delivered = if again { "again" } else { "new" };
    let mut response = answer::with(StatusCode::ACCEPTED, &Signalled { delivered })?;
    if again {
        response.headers_mut().insert(REPLAYED.0, REPLAYED.1);
    }
    response.extensions_mut().insert(Detail(format!("signal {:?}", new.name)));
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallbackAnswer {
    /// A secret, which is why it is not in the path.
    token: String,
    #[serde(default = "null", deserialize_with = "payload")]
    value: Json,
}

pub(crate) async fn callback(State(app): State<App>, Body(answer): Body<CallbackAnswer>) -> Answer {
    app.onward.resolve(&answer.token, &answer.value).await?;
    // A token begins with the id of its run.
    let run: Option<RunId> = answer.token.split('.').next().and_then(|id| id.parse().ok());
    let run = run.ok_or_else(|| Problem::new(Code::CallbackUnknown, "it names no run"))?;
    let mut response = as_it_stands(&app, &app.onward.run(run)).await?;
    response.extensions_mut().insert(Detail(format!("run {run}")));
    Ok(response)
}
