//! Forking: a new run with the first records of another.

use super::stage::*;
use crate::store::{Conflict, End, Error, Fork, NewKey, NewRun, Steer};
use crate::{Entry, OnConflict, Record, RunId, RunState};

fn steer(stage: &Stage) -> &dyn Steer {
    stage.store.steer().unwrap()
}

fn fork_of(run: RunId, step: &str) -> Fork {
    Fork { id: RunId::new(), run, step: step.to_owned(), input: None, key: None, rewritten: None }
}

/// A run that took three steps and completed.
async fn completed(stage: &Stage, worker: &Worker) -> RunId {
    let tags = [("tenant".to_owned(), "acme".to_owned())].into();
    let new = NewRun { tags, priority: 3, input: json(5), timeout_ms: Some(9_000), ..new_run() };
    let lease = worker.take(stage.start(new).await).await;
    let records = vec![done(1, "ocr", 1), tried(2, "index", "busy"), done(4, "index", 2)];
    stage.record(lease, records).await.unwrap();
    stage.record(lease, vec![done(5, "mail", 3)]).await.unwrap();
    stage.settle(lease, End::Completed(json(9))).await.unwrap();
    lease.run
}

/// A fork has the records before its step, the run's routing and tags, and nothing of its fate.
pub async fn fork_begins_with_the_records_before_its_step(stage: &Stage) {
    let worker = stage.worker().await;
    let source = completed(stage, &worker).await;
    let before = stage.run(source).await;
    stage.pass(5);
    let fork = fork_of(source, "index");
    let forked = steer(stage).fork(fork.clone()).await.unwrap();
    assert_eq!(forked, stage.run(fork.id).await);
    assert_eq!((forked.state, forked.forked_from), (RunState::Queued, Some(source)));
    assert_eq!((&forked.tags, forked.priority), (&before.tags, 3));
    assert_eq!((forked.input.clone(), forked.output.clone()), (json(5), None));
    assert_eq!((forked.created_at, forked.started_at), (stage.now(), None));
    assert_eq!((forked.deadline_at, forked.finished_at), (None, None));
    assert_eq!(steps(&stage.history(fork.id).await), [(1, "ocr")]);
    assert_eq!(stage.run(source).await, before, "the source is as it was");
    assert_eq!(stage.history(source).await.len(), 4);
    let claimed = worker.take_whole(fork.id).await;
    assert_eq!(claimed.history, stage.history(fork.id).await);
    assert_eq!(claimed.builds[&1], BUILD, "it is known which build made the records");
}

/// A fork goes on: its own records follow those that were copied.
pub async fn fork_goes_on_from_its_step(stage: &Stage) {
    let worker = stage.worker().await;
    let source = completed(stage, &worker).await;
    let fork = fork_of(source, "index");
    steer(stage).fork(fork.clone()).await.unwrap();
    let lease = worker.take(fork.id).await;
    stage.record(lease, vec![done(2, "index", 7), done(3, "mail", 8)]).await.unwrap();
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let history = stage.history(fork.id).await;
    assert_eq!(steps(&history), [(1, "ocr"), (2, "index"), (3, "mail")]);
}

/// A fork with another input has it, and forgets which build made its records.
pub async fn fork_takes_another_input(stage: &Stage) {
    let worker = stage.worker().await;
    let source = completed(stage, &worker).await;
    let fork = Fork { input: Some(json(6)), ..fork_of(source, "mail") };
    assert_eq!(steer(stage).fork(fork.clone()).await.unwrap().input, json(6));
    let claimed = worker.take_whole(fork.id).await;
    assert_eq!(claimed.builds[&1], "");
    assert_eq!(steps(&claimed.history), [(1, "ocr"), (2, "index"), (4, "index")]);
}

/// A fork from the first step has no records.
pub async fn fork_from_the_first_step_is_fresh(stage: &Stage) {
    let worker = stage.worker().await;
    let source = completed(stage, &worker).await;
    let fork = fork_of(source, "ocr");
    let forked = steer(stage).fork(fork.clone()).await.unwrap();
    assert_eq!((forked.attempt, stage.history(fork.id).await), (0, Vec::new()));
    assert_eq!(worker.take_whole(fork.id).await.history, []);
}

/// A run that is held, parked or failed is forked as it stands.
pub async fn live_and_failed_runs_are_forked(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [None, Some(parked(0)), Some(failed_at("pay"))] {
        let lease = stage.running(&worker).await;
        stage.record(lease, vec![done(1, "ocr", 1), failed(2, "pay")]).await.unwrap();
        if let Some(end) = end {
            stage.settle(lease, end).await.unwrap();
        }
        let fork = fork_of(lease.run, "pay");
        steer(stage).fork(fork.clone()).await.unwrap();
        assert_eq!(steps(&stage.history(fork.id).await), [(1, "ocr")]);
        worker.take(fork.id).await;
    }
}

/// Voided records are copied as such, but not those of the step itself.
pub async fn fork_keeps_what_a_retry_voided(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "ocr", 1), failed(2, "pay")]).await.unwrap();
    stage.settle(lease, failed_at("pay")).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    let lease = worker.take(lease.run).await;
    stage.record(lease, vec![done(3, "pay", 1), done(4, "mail", 1)]).await.unwrap();
    let (from_pay, from_mail) = (fork_of(lease.run, "pay"), fork_of(lease.run, "mail"));
    steer(stage).fork(from_pay.clone()).await.unwrap();
    steer(stage).fork(from_mail.clone()).await.unwrap();
    assert_eq!(steps(&stage.history(from_pay.id).await), [(1, "ocr")]);
    let history = stage.history(from_mail.id).await;
    assert_eq!(steps(&history), [(1, "ocr"), (2, "pay"), (3, "pay")]);
    assert!(history[1].voided_at.is_some() && history[2].voided_at.is_none());
}

/// A run undoes its own steps: a fork that copies their records has nothing to undo.
pub async fn fork_takes_no_undo_along(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let charge = Record { undoable: true, ..done(1, "charge", 1) };
    stage.record(lease, vec![charge, done(2, "ship", 1)]).await.unwrap();
    let fork = fork_of(lease.run, "ship");
    steer(stage).fork(fork.clone()).await.unwrap();
    assert!(!stage.history(fork.id).await[0].undoable);
    assert!(!worker.take_whole(fork.id).await.history[0].undoable);
    assert!(stage.history(lease.run).await[0].undoable, "the source has it");
}

/// Signals in the copied part come along in their records, and later ones are numbered on.
pub async fn fork_numbers_signals_on(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.store.signal(super::signal::new_signal(lease.run, "go", 1)).await.unwrap();
    let arrived = entry(1, "$signal/go#1", Entry::Arrived(json(1)));
    stage.record(lease, vec![arrived, done(2, "pay", 1)]).await.unwrap();
    let fork = fork_of(lease.run, "pay");
    steer(stage).fork(fork.clone()).await.unwrap();
    let sent = super::signal::new_signal(fork.id, "go", 2);
    assert_eq!(stage.store.signal(sent).await.unwrap().no, 2);
    let claimed = worker.take_whole(fork.id).await;
    assert_eq!(steps(&claimed.history), [(1, "$signal/go#1")]);
    assert_eq!(claimed.signals.iter().map(|signal| signal.no).collect::<Vec<_>>(), [2]);
}

/// A child that was started before the step and had not ended cannot be taken along.
pub async fn fork_with_an_open_child_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let started = done(1, "$child/ship started", 1);
    let told = entry(3, "$child/ship#1", Entry::Arrived(json(1)));
    let records = vec![started, done(2, "pay", 1), told, done(4, "mail", 1)];
    stage.record(lease, records).await.unwrap();
    let before = stage.snapshot().await;
    let refused = steer(stage).fork(fork_of(lease.run, "pay")).await;
    assert_conflict(refused, Conflict::ChildOpen { run: lease.run });
    stage.assert_unchanged(&before).await;
    steer(stage).fork(fork_of(lease.run, "mail")).await.unwrap();
}

/// The end of a child that a retry took back does not count: the child continues and reports to its
/// parent.
pub async fn fork_with_a_retried_child_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let child = stage.start(super::child::child_of(lease, "$child/ship")).await;
    let held = worker.take(child).await;
    stage.settle(held, failed_at("pack")).await.unwrap();
    let told = entry(2, "$child/ship#1", Entry::Arrived(json(1)));
    let records = vec![done(1, "$child/ship started", 1), told, done(3, "note", 1)];
    stage.record(lease, records).await.unwrap();
    steer(stage).fork(fork_of(lease.run, "note")).await.unwrap();
    stage.settle(lease, failed_at("$child/ship")).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    let refused = steer(stage).fork(fork_of(lease.run, "note")).await;
    assert_conflict(refused, Conflict::ChildOpen { run: lease.run });
}

/// A callback without an answer cannot be copied if its token may have been handed out: the answer
/// comes to the run that made it.
pub async fn fork_with_an_open_callback_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let run = lease.run;
    let answer = entry(4, "$signal/%24callback/1#1", Entry::Arrived(json(1)));
    let over = entry(7, "$timeout/%24callback/2", Entry::Fired);
    stage.record(lease, vec![done(1, "callback#=1", 1), done(2, "mail", 1)]).await.unwrap();
    stage.record(lease, vec![done(3, "wait", 1), answer, done(5, "callback#=2", 1)]).await.unwrap();
    stage.record(lease, vec![done(6, "mail#2", 1), over, done(8, "end", 1)]).await.unwrap();
    let before = stage.snapshot().await;
    for (step, number) in [("wait", 1), ("$timeout/%24callback/2", 2)] {
        let refused = steer(stage).fork(fork_of(run, step)).await;
        assert_conflict(refused, Conflict::CallbackOpen { run, number });
    }
    stage.assert_unchanged(&before).await;
    // Its own, one that it hands on itself, one that was answered, and one that is too late to answer.
    for step in ["callback#=1", "mail", "callback#=2", "mail#2", "end"] {
        steer(stage).fork(fork_of(run, step)).await.unwrap();
    }
}

/// The end of a child in copied records was reported to the first run and cannot be reported again. A
/// retry of the fork removes the child's start and its end from the history, so that the fork starts
/// its own child.
pub async fn retry_of_a_fork_takes_out_the_child_that_failed_it(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let arrived = |seq, step: &str| entry(seq, step, Entry::Arrived(json(1)));
    let started = |seq, step: &str| done(seq, step, 1);
    let first = vec![started(1, "$child/ship started"), arrived(2, "$child/ship#11")];
    let second = vec![started(3, "$child/ship#2 started"), arrived(4, "$child/ship#2#12")];
    let other = vec![done(5, "ship", 1), done(6, "note", 1)];
    stage.record(lease, [first, second, other].concat()).await.unwrap();
    let fork = fork_of(lease.run, "note");
    steer(stage).fork(fork.clone()).await.unwrap();
    let held = worker.take(fork.id).await;
    stage.settle(held, failed_at("$child/ship")).await.unwrap();
    stage.pass(5);
    let at = stage.now();
    super::lost_answer::repeated(stage, |store| crate::store::Store::retry(store, fork.id)).await;
    let history = stage.history(fork.id).await;
    let voided = history.iter().filter(|record| record.voided_at == Some(at));
    assert_eq!(voided.map(|record| record.seq).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(worker.take_whole(fork.id).await.history.len(), 3);
    assert!(stage.history(lease.run).await.iter().all(|record| record.voided_at.is_none()));
}

/// A step that is not there, and a run that is not, are told apart.
pub async fn fork_from_an_unknown_step_says_so(stage: &Stage) {
    let worker = stage.worker().await;
    let run = completed(stage, &worker).await;
    let before = stage.snapshot().await;
    assert_conflict(steer(stage).fork(fork_of(run, "pay")).await, Conflict::NoSuchStep { run });
    let unknown = steer(stage).fork(fork_of(RunId::new(), "pay")).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
    stage.assert_unchanged(&before).await;
}

/// A fork that is repeated after its answer was lost finds its run, however far that has come.
pub async fn fork_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let source = completed(stage, &worker).await;
    let fork = fork_of(source, "index");
    let forked = super::lost_answer::repeated(stage, |store| store.fork(fork.clone()));
    forked.await;
    let lease = worker.take(fork.id).await;
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(steer(stage).fork(fork.clone()).await.unwrap().state, RunState::Completed);
    stage.assert_unchanged(&before).await;
}

/// A fork takes a key that is free, and is refused one that is in use.
pub async fn fork_takes_a_free_key(stage: &Stage) {
    let worker = stage.worker().await;
    let source = completed(stage, &worker).await;
    let fingerprint = json(5).fingerprint();
    let on_conflict = OnConflict::Reject;
    let key = NewKey { key: "k".to_owned(), fingerprint, ttl_ms: None, on_conflict, gather: None };
    let with_key = || Fork { key: Some(key.clone()), ..fork_of(source, "index") };
    let fork = with_key();
    steer(stage).fork(fork.clone()).await.unwrap();
    assert_eq!(stage.by_key("k").await, Some(fork.id));
    let before = stage.snapshot().await;
    assert_conflict(steer(stage).fork(with_key()).await, Conflict::KeyTaken { run: fork.id });
    stage.assert_unchanged(&before).await;
}
