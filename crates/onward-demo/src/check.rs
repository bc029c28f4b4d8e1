//! The check: was anything lost, or recorded twice?
//!
//! Owns: the judgement, from the evidence alone. It knows what should have happened from the
//! attachments and from what the services wrote down, never from what the engine says about
//! itself, and it compares no clocks.

use std::collections::HashMap;

use onward::{Entry, Record, Run, RunState};
use serde::Serialize;
use serde_json::Value;

use crate::evidence::{Evidence, step_id};
use crate::service::{Answer, Call, Kind};
use crate::workflow::{Attachment, FIND_CUSTOMER, Indexed, OCR, UPDATE_INDEX};

/// What was found. The lists hold a sentence for each thing that must not be.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Attachments that were to be indexed.
    pub attachments: u64,
    /// Runs that completed.
    pub completed: u64,
    /// Of these, runs that ended after the first step, because the customer does not pay.
    pub skipped: u64,
    /// Steps with a recorded result.
    pub steps: u64,
    /// Of these, steps that were recorded when the first worker was killed.
    pub steps_at_kill: u64,
    /// Calls that the OCR service counted.
    pub ocr_calls: u64,
    /// Of these, calls that it failed.
    pub ocr_failed: u64,
    /// Failed tries that are recorded.
    pub tries_failed: u64,
    /// Bodies that ran again because the kill fell between their effect and its record.
    pub ran_again: u64,
    /// Calls that the search service knew by the step's id.
    pub absorbed: u64,
    /// Documents that the search service holds.
    pub documents: u64,
    /// What is missing.
    pub lost: Vec<String>,
    /// What is there twice, or changed after it was recorded.
    pub recorded_twice: Vec<String>,
}

impl Findings {
    /// Whether nothing was lost and nothing recorded twice.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.recorded_twice.is_empty()
    }

    fn lose(&mut self, what: String) {
        self.lost.push(what);
    }

    fn double(&mut self, what: String) {
        self.recorded_twice.push(what);
    }
}

/// Judges the evidence.
pub(crate) fn check(evidence: &Evidence) -> Findings {
    let calls = by_step(&evidence.calls);
    let mut found = counts(evidence, &calls);
    for attachment in &evidence.attachments {
        check_attachment(evidence, attachment, &mut found);
    }
    if evidence.runs.len() > evidence.attachments.len() {
        let (runs, wanted) = (evidence.runs.len(), evidence.attachments.len());
        found.double(format!("there are {runs} runs for {wanted} attachments"));
    }
    for (run, history) in &evidence.runs {
        check_results(run, history, &calls, &mut found);
        check_scan(run, history, &calls, &mut found);
    }
    check_kill(evidence, &calls, &mut found);
    check_calls(evidence, &calls, &mut found);
    found
}

/// The calls of each step, in order.
type Calls<'a> = HashMap<&'a str, Vec<&'a Call>>;

fn by_step(calls: &[Call]) -> Calls<'_> {
    let mut by_step = Calls::new();
    for call in calls {
        by_step.entry(&call.step).or_default().push(call);
    }
    by_step
}

fn counts(evidence: &Evidence, calls: &Calls<'_>) -> Findings {
    let size = |count: usize| count as u64;
    let runs = || evidence.runs.iter();
    let completed = || runs().filter(|(run, _)| run.state == RunState::Completed);
    let records = || runs().flat_map(|(_, history)| history);
    let of = |kind: Kind| evidence.calls.iter().filter(move |call| call.service == kind);
    let failed = |call: &&Call| matches!(call.answer, Answer::Failed(_));
    let ran_again = |calls: &&Vec<&Call>| {
        let done = calls.iter().any(|call| call.process == 1 && is_done(call));
        done && calls.iter().any(|call| call.process > 1)
    };
    Findings {
        attachments: size(evidence.attachments.len()),
        completed: size(completed().count()),
        skipped: size(completed().filter(|(run, _)| is_skipped(run)).count()),
        steps: size(records().filter(|record| record.entry.kind().is_final()).count()),
        steps_at_kill: size(evidence.recorded_at_kill.len()),
        ocr_calls: size(of(Kind::Ocr).count()),
        ocr_failed: size(of(Kind::Ocr).filter(failed).count()),
        tries_failed: size(records().filter(|record| is_failed_try(record)).count()),
        ran_again: size(calls.values().filter(ran_again).count()),
        absorbed: size(of(Kind::Search).filter(|call| call.duplicate).count()),
        documents: size(of(Kind::Search).filter(|call| !call.duplicate).count()),
        ..Findings::default()
    }
}

/// Each attachment has one run, which completed with the right output and all its steps.
fn check_attachment(evidence: &Evidence, attachment: &Attachment, found: &mut Findings) {
    let key = attachment.key();
    let mut runs = evidence.runs.iter().filter(|(run, _)| run.key.as_ref() == Some(&key));
    let Some((run, history)) = runs.next() else {
        return found.lose(format!("{key} has no run"));
    };
    if runs.next().is_some() {
        found.double(format!("{key} has more than one run"));
    }
    if run.state != RunState::Completed {
        return found.lose(format!("run {} of {key} is {}, not completed", run.id, run.state));
    }
    let wanted: &[&str] = match attachment.is_premium() {
        true => &[FIND_CUSTOMER, OCR, UPDATE_INDEX],
        false => &[FIND_CUSTOMER],
    };
    for step in wanted {
        if done(history, step).is_none() {
            found.lose(format!("run {} of {key} has no result of {step:?}", run.id));
        }
    }
    let document = done(history, UPDATE_INDEX).and_then(|value| value.as_u64());
    let right = Indexed { attachment: attachment.id, document };
    if output_of(run) != Some(right) {
        found.lose(format!("run {} of {key} has a wrong output: {:?}", run.id, run.output));
    }
}

/// Each step has one result, and it is one that its service answered.
fn check_results(run: &Run, history: &[Record], calls: &Calls<'_>, found: &mut Findings) {
    let mut results: HashMap<&str, u32> = HashMap::new();
    for record in history.iter().filter(|record| record.entry.kind().is_final()) {
        *results.entry(&record.step).or_default() += 1;
        let Entry::Done(result) = &record.entry else {
            continue;
        };
        let id = step_id(run, record);
        let answers: Vec<_> = calls.get(id.as_str()).into_iter().flatten().collect();
        let result = result.read::<Value>().unwrap_or_default();
        if !answers.iter().any(|call| is_done(call)) {
            found.lose(format!("{id} is recorded, but no service ever did it"));
        } else if !answers.iter().any(|call| call.answer == Answer::Done(result.clone())) {
            found.double(format!("{id} is recorded as {result}, which no service answered"));
        }
    }
    for (step, count) in results {
        if count > 1 {
            found.double(format!("{}/{step} has {count} results", run.id));
        }
    }
}

/// Whatever was indexed is the scan that was recorded, not another.
fn check_scan(run: &Run, history: &[Record], calls: &Calls<'_>, found: &mut Findings) {
    let id = format!("{}/{UPDATE_INDEX}", run.id);
    let scan = done(history, OCR);
    for call in calls.get(id.as_str()).into_iter().flatten() {
        if call.text.as_deref() != scan.as_ref().and_then(Value::as_str) {
            let text = call.text.as_deref().unwrap_or_default();
            found.double(format!("{id} was given {text:?}, but the scan is recorded as {scan:?}"));
        }
    }
}

/// What was recorded when the worker died is there unchanged, and was not executed again.
fn check_kill(evidence: &Evidence, calls: &Calls<'_>, found: &mut Findings) {
    let mut records: HashMap<String, Vec<&Record>> = HashMap::new();
    for (run, history) in &evidence.runs {
        for record in history.iter().filter(|record| record.entry.kind().is_final()) {
            records.entry(step_id(run, record)).or_default().push(record);
        }
    }
    for (id, then) in &evidence.recorded_at_kill {
        match records.get(id).map(Vec::as_slice) {
            None | Some([]) => found.lose(format!("{id} was recorded before the kill and is gone")),
            Some(now) if now.contains(&then) => {}
            Some(_) => found.double(format!("{id} was recorded before the kill and has changed")),
        }
        let again = calls.get(id.as_str()).into_iter().flatten().any(|call| call.process > 1);
        if again {
            found.double(format!("{id} was executed again after its record"));
        }
    }
}

/// Every call is accounted for: by a recorded try, or by the kill, which may leave one call of a
/// step that was not recorded then without its try.
fn check_calls(evidence: &Evidence, calls: &Calls<'_>, found: &mut Findings) {
    let mut tries: HashMap<String, usize> = HashMap::new();
    for (run, history) in &evidence.runs {
        for record in history {
            *tries.entry(step_id(run, record)).or_default() += 1;
        }
    }
    for (id, calls) in calls {
        let cut_off = !evidence.recorded_at_kill.contains_key(*id)
            && calls.iter().any(|call| call.process == 1);
        let recorded = tries.get(*id).copied().unwrap_or(0);
        let executed = calls.len();
        if executed > recorded + usize::from(cut_off) {
            found.double(format!("{id} was executed {executed} times for {recorded} tries"));
        }
    }
}

fn is_done(call: &Call) -> bool {
    matches!(call.answer, Answer::Done(_))
}

fn is_failed_try(record: &Record) -> bool {
    matches!(record.entry, Entry::TryFailed { .. })
}

fn is_skipped(run: &Run) -> bool {
    output_of(run).is_some_and(|output| output.document.is_none())
}

fn output_of(run: &Run) -> Option<Indexed> {
    run.output.as_ref()?.read().ok()
}

/// The recorded result of a step.
fn done(history: &[Record], step: &str) -> Option<Value> {
    history.iter().find_map(|record| match &record.entry {
        Entry::Done(result) if record.step == step => result.read().ok(),
        _ => None,
    })
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
