//! The check on evidence that was tampered with: each way in which an engine could be broken must
//! be seen.

use onward::{Failure, Json, RunId, Timestamp};
use serde_json::json;

use super::*;

/// A demo that went well: two attachments that are indexed, one that is skipped. The first was
/// completed by worker 1; the kill fell between the second's scan and its record.
fn clean() -> Evidence {
    let attachments: Vec<_> = [1, 2, 10].map(Attachment::number).into();
    let mut evidence = Evidence {
        attachments: attachments.clone(),
        recorded_at_kill: HashMap::new(),
        runs: Vec::new(),
        calls: Vec::new(),
    };
    add_indexed(&mut evidence, &attachments[0], 1);
    let (run, history) = &evidence.runs[0];
    evidence.recorded_at_kill = history
        .iter()
        .filter(|r| r.entry.kind().is_final())
        .map(|r| (step_id(run, r), r.clone()))
        .collect();
    add_indexed(&mut evidence, &attachments[1], 2);
    let id = format!("{}/{OCR}", evidence.runs[1].0.id);
    evidence.calls.push(call(Kind::Ocr, 1, &id, json!("invoice 2, unrecorded")));
    add_skipped(&mut evidence, &attachments[2]);
    evidence
}

fn add_indexed(evidence: &mut Evidence, attachment: &Attachment, process: u32) {
    let mut run = fresh(attachment);
    let scan = json!(format!("invoice {}, scan {process}", attachment.id));
    let document = json!(attachment.id * 100);
    run.output = Some(
        Json::of(&Indexed { attachment: attachment.id, document: document.as_u64() }).unwrap(),
    );
    let customer = json!({ "premium": true });
    let id = |step: &str| format!("{}/{step}", run.id);
    evidence.calls.extend([
        call(Kind::Customers, process, &id(FIND_CUSTOMER), customer.clone()),
        failed_call(process, &id(OCR)),
        call(Kind::Ocr, process, &id(OCR), scan.clone()),
        Call {
            text: scan.as_str().map(str::to_owned),
            ..call(Kind::Search, process, &id(UPDATE_INDEX), document.clone())
        },
    ]);
    let tried = Entry::TryFailed { failure: Failure::new("busy"), next_at: at(0) };
    let history = vec![
        record(1, FIND_CUSTOMER, &customer),
        Record::new(2, OCR, tried, at(0)),
        record(3, OCR, &scan),
        record(4, UPDATE_INDEX, &document),
    ];
    evidence.runs.push((run, history));
}

fn add_skipped(evidence: &mut Evidence, attachment: &Attachment) {
    let mut run = fresh(attachment);
    run.output = Some(Json::of(&Indexed { attachment: attachment.id, document: None }).unwrap());
    let customer = json!({ "premium": false });
    let id = format!("{}/{FIND_CUSTOMER}", run.id);
    evidence.calls.push(call(Kind::Customers, 2, &id, customer.clone()));
    evidence.runs.push((run, vec![record(1, FIND_CUSTOMER, &customer)]));
}

fn fresh(attachment: &Attachment) -> Run {
    let input = Json::of(attachment).unwrap();
    let mut run = Run::fresh(RunId::new(), "index-attachment".to_owned(), input, at(0));
    run.key = Some(attachment.key());
    run.state = RunState::Completed;
    run
}

fn call(service: Kind, process: u32, step: &str, answer: Value) -> Call {
    let (step, answer) = (step.to_owned(), Answer::Done(answer));
    Call { service, at: at(0), process, step, text: None, answer, duplicate: false }
}

fn failed_call(process: u32, step: &str) -> Call {
    Call { answer: Answer::Failed("busy".to_owned()), ..call(Kind::Ocr, process, step, json!(0)) }
}

fn record(seq: u64, step: &str, result: &Value) -> Record {
    Record::new(seq, step, Entry::Done(Json::of(result).unwrap()), at(0))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

#[track_caller]
fn assert_lost(evidence: &Evidence, what: &str) {
    let found = check(evidence);
    assert!(found.lost.iter().any(|lost| lost.contains(what)), "{found:#?}");
    assert!(!found.is_clean());
}

#[track_caller]
fn assert_twice(evidence: &Evidence, what: &str) {
    let found = check(evidence);
    assert!(found.recorded_twice.iter().any(|twice| twice.contains(what)), "{found:#?}");
    assert!(!found.is_clean());
}

#[test]
fn a_good_demo_is_clean_and_counted() {
    let found = check(&clean());
    let wanted = Findings {
        attachments: 3,
        completed: 3,
        skipped: 1,
        steps: 7,
        steps_at_kill: 3,
        ocr_calls: 5,
        ocr_failed: 2,
        tries_failed: 2,
        ran_again: 1,
        absorbed: 0,
        documents: 2,
        ..Findings::default()
    };
    assert_eq!(found, wanted);
}

#[test]
fn a_missing_run_is_lost() {
    let mut evidence = clean();
    evidence.runs.remove(1);
    assert_lost(&evidence, "attachment-2 has no run");
}

#[test]
fn a_run_that_did_not_complete_is_lost() {
    let mut evidence = clean();
    evidence.runs[1].0.state = RunState::Waiting;
    assert_lost(&evidence, "is waiting, not completed");
}

#[test]
fn a_run_with_a_wrong_output_is_lost() {
    let mut evidence = clean();
    let wrong = Indexed { attachment: 1, document: Some(999) };
    evidence.runs[0].0.output = Some(Json::of(&wrong).unwrap());
    assert_lost(&evidence, "wrong output");
    evidence.runs[0].0.output = None;
    assert_lost(&evidence, "wrong output");
}

#[test]
fn a_missing_record_is_lost() {
    let mut evidence = clean();
    evidence.runs[1].1.retain(|record| record.step != UPDATE_INDEX);
    assert_lost(&evidence, "has no result of \"update index\"");
}

#[test]
fn a_record_that_was_there_at_the_kill_and_is_gone_is_lost() {
    let mut evidence = clean();
    evidence.runs[0].1.retain(|record| record.step != FIND_CUSTOMER);
    assert_lost(&evidence, "before the kill and is gone");
}

#[test]
fn a_record_without_an_effect_is_lost() {
    let mut evidence = clean();
    evidence.calls.retain(|call| call.service != Kind::Search);
    assert_lost(&evidence, "no service ever did it");
}

#[test]
fn a_second_run_of_a_key_is_seen() {
    let mut evidence = clean();
    let second = evidence.runs[0].clone();
    evidence.runs.push(second);
    assert_twice(&evidence, "attachment-1 has more than one run");
}

#[test]
fn a_second_result_is_seen() {
    let mut evidence = clean();
    let mut second = evidence.runs[0].1[0].clone();
    second.seq = 9;
    evidence.runs[0].1.push(second);
    assert_twice(&evidence, "has 2 results");
}

#[test]
fn a_result_that_changed_after_the_kill_is_seen() {
    let mut evidence = clean();
    evidence.runs[0].1[0].attempt = 2;
    assert_twice(&evidence, "has changed");
}

#[test]
fn a_result_that_no_service_answered_is_seen() {
    let mut evidence = clean();
    evidence.runs[1].1[2] = record(3, OCR, &json!("made up"));
    assert_twice(&evidence, "which no service answered");
}

#[test]
fn a_call_after_its_record_is_seen() {
    let mut evidence = clean();
    let id = format!("{}/{FIND_CUSTOMER}", evidence.runs[0].0.id);
    evidence.calls.push(call(Kind::Customers, 2, &id, json!({ "premium": true })));
    assert_twice(&evidence, "executed again after its record");
}

#[test]
fn a_body_that_ran_twice_in_one_process_is_seen() {
    let mut evidence = clean();
    let id = format!("{}/{FIND_CUSTOMER}", evidence.runs[2].0.id);
    evidence.calls.push(call(Kind::Customers, 2, &id, json!({ "premium": false })));
    assert_twice(&evidence, "was executed 2 times for 1 tries");
}

#[test]
fn a_body_that_ran_twice_before_the_kill_is_seen() {
    let mut evidence = clean();
    let id = format!("{}/{FIND_CUSTOMER}", evidence.runs[0].0.id);
    evidence.calls.push(call(Kind::Customers, 1, &id, json!({ "premium": true })));
    assert_twice(&evidence, "was executed 2 times for 1 tries");
}

#[test]
fn a_call_that_the_kill_cut_off_is_no_fault() {
    let mut evidence = clean();
    let id = format!("{}/{OCR}", evidence.runs[1].0.id);
    let cut_off = |call: &Call| call.step == id && call.process == 1;
    assert!(evidence.calls.iter().any(cut_off));
    assert!(check(&evidence).is_clean());
    evidence.calls.push(call(Kind::Ocr, 1, &id, json!("invoice 2, again")));
    assert_twice(&evidence, "was executed 4 times for 2 tries");
}

#[test]
fn going_on_with_another_scan_than_the_recorded_one_is_seen() {
    let mut evidence = clean();
    let search = evidence.calls.iter_mut().find(|call| call.service == Kind::Search).unwrap();
    search.text = Some("invoice 1, another scan".to_owned());
    assert_twice(&evidence, "but the scan is recorded as");
}
