//! Starting runs, and claiming them as they start.

use super::stage::*;
use crate::store::{End, NewRun, StartAt, StartedHow};
use crate::{Notes, OnConflict, RunState, Timestamp, Waits};

/// A new run stands in the store as it was asked for.
pub async fn started_run_is_queued_as_asked(stage: &Stage) {
    let tags = [("team".to_owned(), "search".to_owned())].into();
    let asked = NewRun { queue: "slow".into(), priority: -3, tags, ..new_run() };
    let started = stage.try_start(NewRun { timeout_ms: Some(500), ..asked.clone() }).await;
    let started = started.unwrap();
    assert_eq!((started.run, started.how, started.at), (asked.id, StartedHow::New, stage.now()));
    let run = stage.run(asked.id).await;
    assert_eq!((run.state, run.priority, run.attempt), (RunState::Queued, -3, 0));
    assert_eq!((run.workflow, run.queue, run.input), (asked.workflow, asked.queue, asked.input));
    assert_eq!((run.tags, run.key, run.worker), (asked.tags, None, None));
    assert_eq!((run.created_at, run.due_at), (stage.now(), Some(stage.now())));
    assert_eq!(run.deadline_at, Some(stage.in_ms(500)));
}

/// A start that is repeated makes no second run.
pub async fn start_twice(stage: &Stage) {
    let run = keyed("order-1", 1, OnConflict::Existing);
    let first = stage.try_start(run.clone()).await.unwrap();
    let before = stage.snapshot().await;
    stage.pass(5);
    assert_eq!(stage.try_start(run).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
}

/// A late repeat of a start finds its run ended, and leaves it so.
pub async fn start_twice_after_the_end(stage: &Stage) {
    let worker = stage.worker().await;
    let run = keyed("order-1", 1, OnConflict::Reject);
    stage.start(run.clone()).await;
    let lease = worker.take(run.id).await;
    stage.settle(lease, crate::store::End::Completed(json(1))).await.unwrap();
    let before = stage.snapshot().await;
    let again = stage.try_start(run.clone()).await.unwrap();
    assert_eq!((again.run, again.how), (run.id, StartedHow::New));
    stage.assert_unchanged(&before).await;
}

/// The answers to a batch are in the order of its runs.
pub async fn starts_are_answered_in_order(stage: &Stage) {
    let mut runs = vec![new_run(), new_run(), new_run()];
    runs.reverse();
    let asked: Vec<_> = runs.iter().map(|run| run.id).collect();
    let answers = stage.store.start(runs).await.unwrap();
    let got: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().run).collect();
    assert_eq!(got, asked);
}

/// A start that is refused does not hold back the others of its batch.
pub async fn one_refused_start_leaves_the_others(stage: &Stage) {
    let holder = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let refused = keyed("order-1", 2, OnConflict::Existing);
    let (before, after) = (new_run(), keyed("order-2", 2, OnConflict::Existing));
    let batch = vec![before.clone(), refused.clone(), after.clone()];
    let mut answers = stage.store.start(batch).await.unwrap();
    assert_eq!(answers.pop().unwrap().unwrap().run, after.id);
    let expected = crate::store::Conflict::KeyInput { run: holder };
    assert_conflict(answers.pop().unwrap(), expected);
    assert_eq!(answers.pop().unwrap().unwrap().run, before.id);
    assert_eq!(stage.snapshot().await.runs.len(), 3);
}

/// A run with a delay waits, and knows until when.
pub async fn delayed_start_waits(stage: &Stage) {
    let run = stage.start(NewRun { start_at: StartAt::After(1_000), ..new_run() }).await;
    let run = stage.run(run).await;
    assert_eq!((run.state, run.waits_for), (RunState::Waiting, Some(Waits::Start)));
    assert_eq!(run.due_at, Some(stage.in_ms(1_000)));
}

/// Until when a start put its run off is known when the run has begun, too; a run that could begin at
/// once has nothing of it.
pub async fn delayed_start_is_noted(stage: &Stage) {
    let worker = stage.worker().await;
    let at_once = stage.start(new_run()).await;
    let past = StartAt::At(Timestamp::from_millis(1));
    let late = stage.start(NewRun { start_at: past, ..new_run() }).await;
    for run in [at_once, late] {
        assert_eq!(stage.run(run).await.notes, Notes::default());
        worker.take(run).await;
    }
    let start_at = StartAt::After(1_000);
    let plain = stage.start(NewRun { start_at, ..new_run() }).await;
    let retried = keyed("order-1", 1, OnConflict::RetryFailed);
    let keyed = stage.start(NewRun { start_at, ..retried }).await;
    let start_at = Some(stage.in_ms(1_000));
    stage.pass(1_500);
    for run in [plain, keyed] {
        assert_eq!(stage.run(run).await.notes.start_at, start_at);
        let claimed = worker.take_whole(run).await;
        assert_eq!(claimed.run.notes.start_at, start_at);
        stage.settle(claimed.lease, End::Completed(json(1))).await.unwrap();
        assert_eq!(stage.run(run).await.notes, Notes { start_at, ..Notes::default() });
    }
}

/// A timeout is counted from the time at which a run may start.
pub async fn timeout_counts_from_the_start_time(stage: &Stage) {
    let start_at = StartAt::At(stage.in_ms(1_000));
    let run = stage.start(NewRun { start_at, timeout_ms: Some(50), ..new_run() }).await;
    assert_eq!(stage.run(run).await.deadline_at, Some(stage.in_ms(1_050)));
}

/// A start time in the past means now.
pub async fn past_start_time_is_due_now(stage: &Stage) {
    let start_at = StartAt::At(Timestamp::from_millis(1));
    let run = stage.start(NewRun { start_at, ..new_run() }).await;
    let run = stage.run(run).await;
    assert_eq!((run.state, run.due_at), (RunState::Queued, Some(stage.now())));
}

/// A claimant holds the new run in its first attempt, from the start's own commit.
pub async fn claimant_holds_the_new_run(stage: &Stage) {
    let worker = stage.worker().await;
    let new = NewRun { claimant: worker.claimant(), ..new_run() };
    let started = stage.try_start(new.clone()).await.unwrap();
    assert_eq!(started.how, StartedHow::Claimed);
    let run = stage.run(new.id).await;
    assert_eq!((run.state, run.worker, run.attempt), (RunState::Running, Some(worker.id), 1));
    assert_eq!((run.build.as_deref(), run.started_at), (Some(BUILD), Some(stage.now())));
    let lease = crate::store::Lease { run: new.id, worker: worker.id, attempt: 1 };
    stage.record(lease, vec![done(1, "ocr", 1)]).await.unwrap();
    worker.assert_nothing_to_claim().await;
}

/// A claimant whose answer was lost is told again that it holds the run.
pub async fn claimed_start_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let new = NewRun { claimant: worker.claimant(), ..new_run() };
    let first = stage.try_start(new.clone()).await.unwrap();
    let before = stage.snapshot().await;
    assert_eq!(stage.try_start(new).await.unwrap(), first);
    stage.assert_unchanged(&before).await;
}

/// A claimed start that is repeated after its worker was lost no longer says so.
pub async fn claimed_start_repeated_with_stale_lease(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let new = NewRun { claimant: old.claimant(), ..new_run() };
    stage.start(new.clone()).await;
    stage.lose(&old, &live).await;
    let before = stage.snapshot().await;
    assert_eq!(stage.try_start(new.clone()).await.unwrap().how, StartedHow::New);
    stage.assert_unchanged(&before).await;
    live.take(new.id).await;
}

/// A claimant that is lost gets nothing; the run is queued for others.
pub async fn start_by_claimant_with_stale_lease(stage: &Stage) {
    let (lost, live) = stage.lost_worker().await;
    let new = NewRun { claimant: lost.claimant(), ..new_run() };
    assert_eq!(stage.try_start(new.clone()).await.unwrap().how, StartedHow::New);
    assert_eq!(stage.state(new.id).await, RunState::Queued);
    live.take(new.id).await;
}

/// A claimant that never joined gets nothing.
pub async fn unknown_claimant_gets_nothing(stage: &Stage) {
    let stranger = Worker::new(stage.store.clone(), BUILD);
    let new = NewRun { claimant: stranger.claimant(), ..new_run() };
    assert_eq!(stage.try_start(new.clone()).await.unwrap().how, StartedHow::New);
    stage.worker().await.take(new.id).await;
}

/// A claimant does not get a run before its time.
pub async fn claimant_does_not_get_a_delayed_run(stage: &Stage) {
    let worker = stage.worker().await;
    let start_at = StartAt::After(1_000);
    let new = NewRun { start_at, claimant: worker.claimant(), ..new_run() };
    assert_eq!(stage.try_start(new.clone()).await.unwrap().how, StartedHow::New);
    assert_eq!(stage.run(new.id).await.worker, None);
}

/// Of the runs of one start each is claimed by its own claimant, if that lives and the run is due.
pub async fn runs_of_one_start_have_each_its_claimant(stage: &Stage) {
    let (lost, live) = stage.lost_worker().await;
    let start_at = StartAt::After(1_000);
    let runs = vec![
        NewRun { claimant: live.claimant(), ..new_run() },
        NewRun { claimant: lost.claimant(), ..new_run() },
        new_run(),
        NewRun { start_at, claimant: live.claimant(), ..new_run() },
        NewRun { claimant: live.claimant(), ..new_run() },
    ];
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    let answers = stage.store.start(runs).await.unwrap();
    let how: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().how).collect();
    use StartedHow::{Claimed, New};
    assert_eq!(how, [Claimed, New, New, New, Claimed]);
    for (place, id) in ids.into_iter().enumerate() {
        let run = stage.run(id).await;
        let held = matches!(place, 0 | 4);
        assert_eq!((run.worker, run.attempt), (held.then_some(live.id), u32::from(held)));
    }
}

/// A claimant does not get a run that was there.
pub async fn claimant_does_not_get_an_existing_run(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let claimant = worker.claimant();
    let new = NewRun { claimant, ..keyed("order-1", 1, OnConflict::Existing) };
    assert_eq!(stage.try_start(new).await.unwrap().how, StartedHow::Existing);
    assert_eq!(stage.state(run).await, RunState::Queued);
}

/// A claimant does not get a run whose answer cannot say that it holds it.
pub async fn claimant_does_not_get_a_replacing_run(stage: &Stage) {
    let worker = stage.worker().await;
    let old = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let claimant = worker.claimant();
    let new = NewRun { claimant, ..keyed("order-1", 2, OnConflict::Replace) };
    let started = stage.try_start(new.clone()).await.unwrap();
    assert_eq!(started.how, StartedHow::Replaced(old));
    worker.take(new.id).await;
}
