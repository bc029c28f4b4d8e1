//! `/errors`: failures of the newest failed runs, by what they have in common.
//!
//! Owns: what makes two failures the same kind. Never looks at more runs than its sample.

use std::collections::HashMap;

use axum::extract::State;
use onward::{Failure, Filter, Fingerprint, Run, RunId, RunState, Timestamp};
use serde::Serialize;

use super::steps::ago;
use super::workflows::each_run;
use crate::answer::{self, Answer};
use crate::app::App;
use crate::limits::ERRORS_SAMPLE;
use crate::request::Params;

/// Characters of a group's fingerprint: 64 bits, which no two of a few thousand groups share.
const FINGERPRINT_CHARS: usize = 16;

#[derive(Serialize)]
struct Errors {
    /// How many failed runs were looked at.
    sample: usize,
    items: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    fingerprint: String,
    workflow: String,
    code: String,
    message: String,
    count: u64,
    first_at: Timestamp,
    last_at: Timestamp,
    sample_run: RunId,
}

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let since = params.millis("window_ms")?.map(|ms| ago(app.now(), ms));
    let filter = Filter { states: vec![RunState::Failed], ..Filter::default() };
    let (mut groups, mut sample) = (HashMap::<String, Group>::new(), 0);
    each_run(&app, filter, ERRORS_SAMPLE, |run| {
        sample += 1;
        if since.is_none_or(|since| run.finished_at >= Some(since)) {
            add(&mut groups, run);
        }
    })
    .await?;
    let mut items: Vec<_> = groups.into_values().collect();
    items.sort_by(|a, b| b.last_at.cmp(&a.last_at).then_with(|| a.fingerprint.cmp(&b.fingerprint)));
    answer::ok(&Errors { sample, items })
}

fn add(groups: &mut HashMap<String, Group>, run: &Run) {
    let Some(failure) = &run.failure else { return };
    let at = run.finished_at.unwrap_or(run.created_at);
    let fingerprint = fingerprint(&run.workflow, failure);
    let group = groups.entry(fingerprint.clone()).or_insert_with(|| Group {
        fingerprint,
        workflow: run.workflow.clone(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        count: 0,
        first_at: at,
        last_at: at,
        sample_run: run.id,
    });
    group.count += 1;
    group.first_at = group.first_at.min(at);
    group.last_at = group.last_at.max(at);
}

/// The group of a failure: runs of one workflow that failed alike have the same.
pub(super) fn fingerprint(workflow: &str, failure: &Failure) -> String {
    let text = format!("{workflow}\n{}\n{}", failure.code, shape(&failure.message));
    let mut fingerprint = Fingerprint::of(text.as_bytes()).to_string();
    fingerprint.truncate(FINGERPRINT_CHARS);
    fingerprint
}

/// A message without what differs between two of a kind: numbers, ids, quoted texts.
fn shape(message: &str) -> String {
    let mut shape = String::with_capacity(message.len());
    let mut quoted = false;
    // An id is one word, dashes and all: some of its parts may have no digit.
    let outside = |c: char| !c.is_alphanumeric() && c != '-';
    for word in message.split_inclusive(outside) {
        let named = word.trim_end_matches(outside);
        let differs = named.chars().any(|c| c.is_ascii_digit());
        if !quoted && !differs {
            shape.push_str(named);
        } else if !shape.ends_with('*') {
            shape.push('*');
        }
        let rest = &word[named.len()..];
        quoted ^= rest.contains('"');
        shape.push_str(if quoted && !rest.contains('"') { "" } else { rest });
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_and_names_have_one_shape() {
        let one = shape("order 17: \"ada lovelace\" has 3 items, id 0189-ab12 refused");
        let two = shape("order 4711: \"bob\" has 12 items, id 77aa-99ff refused");
        assert_eq!(one, two);
        let id = |id: &str| shape(&format!("the bank refused order {id}"));
        let some = id("01890a5d-ac96-774b-8cce-b302099a8057");
        assert_eq!(some, id("01890a5d-ac96-774b-beef-abcdefabcdef"), "a part without a digit");
        assert_ne!(shape("connection reset"), shape("connection refused"));
    }
}
