//! Which runs are meant, as a query says it.
//!
//! Owns: the parameters that choose runs. Never asks the store.

use std::collections::BTreeMap;

use onward::{Filter, RunState};

use crate::problem::Problem;
use crate::request::{Params, run_id};

/// The filter of a query.
pub(crate) fn of_params(params: &Params) -> Result<Filter, Problem> {
    let text = |name: &str| params.text(name).map(str::to_owned);
    Ok(Filter {
        workflow: text("workflow"),
        states: states(params)?,
        queue: text("queue"),
        key: text("key"),
        tags: tags(params)?,
        parent: params.text("parent").map(run_id).transpose()?,
        created_from: params.time("created_from")?,
        created_before: params.time("created_before")?,
    })
}

fn states(params: &Params) -> Result<Vec<RunState>, Problem> {
    let names = params.all("state").flat_map(|list| list.split(',')).map(str::trim);
    let mut states = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        let unknown = || Problem::invalid("state", format!("{name:?} is not a state of a run"));
        states.push(name.parse().map_err(|_| unknown())?);
    }
    Ok(states)
}

fn tags(params: &Params) -> Result<BTreeMap<String, String>, Problem> {
    let tag = |text: &str| match text.split_once(':') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Problem::invalid("tag", format!("{text:?} is not NAME:VALUE"))),
    };
    params.all("tag").map(tag).collect()
}
