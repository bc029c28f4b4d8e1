//! `/step-keys`: keys of steps and of work outside any run.
//!
//! Owns: the rows about step keys. Never takes one; steps do.

use axum::extract::State;
use onward::store::Which;
use onward::{Duplicates, StepKey};
use serde::Serialize;

use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::payload::Holder;
use crate::problem::Problem;
use crate::request::{At, Params};

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let (limit, prefix) = (params.limit()?, params.text("prefix").unwrap_or_default());
    // Keys come by name, so those of a prefix are together, after all that is less than it.
    let first = match prefix.is_empty() {
        true => None,
        false => app.onward.step_key(prefix).await?.filter(|_| params.cursor().is_none()),
    };
    let after = params.cursor().map(str::to_owned);
    let after = after.or_else(|| Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty()));
    let page = app.onward.step_keys(after, limit).await?;
    let (fetched, of_prefix) = (page.keys.len(), |key: &StepKey| key.key.starts_with(prefix));
    let mut items: Vec<_> = first.into_iter().chain(page.keys).filter(of_prefix).collect();
    let ended = items.len() < fetched;
    let more = (page.more && !ended) || items.len() > limit;
    items.truncate(limit);
    let last = items.last().map(|key| key.key.clone());
    let mut shown = Vec::with_capacity(items.len());
    for key in items {
        shown.push(as_shown(&app, key).await?);
    }
    answer::ok(&Page { items: shown, next: last.filter(|_| more) })
}

/// A key with its payload as it may be shown.
async fn as_shown(app: &App, key: StepKey) -> Result<StepKey, Problem> {
    // A holder in a run has its id before the step's.
    let run = key.holder.id.split_once('/').and_then(|(run, _)| run.parse().ok());
    let of = match run {
        // Only a function of the user's wants to know more.
        Some(id) if app.options.redact.is_some() => {
            let run = app.store().get(Which::Id(id)).await?;
            Holder { run: Some(id), workflow: run.map(|run| run.workflow) }
        }
        run => Holder { run, workflow: None },
    };
    Ok(app.options.shown_key(key, of))
}

#[derive(Serialize)]
struct Shown {
    key: StepKey,
    duplicates: Duplicates,
}

pub(crate) async fn show(State(app): State<App>, At(key): At<String>) -> Answer {
    let found = app.onward.step_key(key.as_str()).await?;
    let free = || Problem::new(onward::Code::KeyNotFound, format!("the step key {key:?} is free"));
    let found = as_shown(&app, found.ok_or_else(free)?).await?;
    let duplicates = app.onward.key_duplicates(key.as_str()).await?;
    answer::ok(&Shown { key: found, duplicates })
}

#[derive(Serialize)]
pub(super) struct Released {
    pub(super) released: bool,
}

pub(crate) async fn release(State(app): State<App>, At(key): At<String>) -> Answer {
    let released = app.onward.release_key(key).await?;
    answer::ok(&Released { released })
}
