//! Pausing: a mark that keeps a run from being claimed, and how it meets every state of a run.

use super::stage::*;
use crate::store::{
    Asks, Conflict, End, Error, Mark, NewRun, NewSignal, Pause, Settle, Settled, StartAt, Steer,
    Which,
};
use crate::{Fingerprint, Record, Run, RunId, RunState, Waits};

fn steer(stage: &Stage) -> &dyn Steer {
    stage.store.steer().unwrap()
}

async fn pause(stage: &Stage, run: RunId) -> Result<Run, Error> {
    steer(stage).pause(Pause { run, caller: "ops".to_owned() }).await
}

/// A paused run is not the one that its queue waits for.
pub async fn paused_run_is_not_the_oldest_that_is_due(stage: &Stage) {
    let run = stage.start(new_run()).await;
    stage.pass(1_000);
    stage.start(new_run()).await;
    pause(stage, run).await.unwrap();
    let queues = stage.store.queues().unwrap().list_queues(None, 1).await.unwrap().queues;
    assert_eq!((queues[0].queued, queues[0].oldest_due_at), (2, Some(stage.now())));
}

/// A paused run in the queue is not claimed until it is resumed.
pub async fn paused_queued_run_is_not_claimed(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(new_run()).await;
    stage.pass(5);
    let paused = pause(stage, run).await.unwrap();
    assert_eq!(paused, stage.run(run).await);
    assert_eq!((paused.paused_at, paused.paused_by), (Some(stage.now()), Some("ops".to_owned())));
    assert_eq!((paused.state, paused.wakes), (RunState::Queued, 1));
    worker.assert_nothing_to_claim().await;
    let resumed = steer(stage).resume(run).await.unwrap();
    assert_eq!(resumed, stage.run(run).await);
    assert_eq!((resumed.paused_at, resumed.paused_by, resumed.wakes), (None, None, 2));
    worker.take(run).await;
}

/// A running run is marked; its holder is told, records what was under way, and gives it back.
pub async fn paused_running_run_is_marked(stage: &Stage) {
    let (worker, other) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&worker).await;
    let run = pause(stage, lease.run).await.unwrap();
    assert_eq!((run.state, run.worker), (RunState::Running, Some(worker.id)));
    let mark = Mark { lease, asks: Asks::Pause };
    assert_eq!(worker.claim(0).await.marks, [mark]);
    assert_eq!(other.claim(0).await.marks, []);
    assert!(stage.store.inbox(lease.run, 0).await.unwrap().paused);
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(lease, End::Released).await.unwrap();
    let run = stage.run(lease.run).await;
    assert_eq!((run.state, run.paused_at), (RunState::Queued, Some(stage.now())));
    worker.assert_nothing_to_claim().await;
    steer(stage).resume(lease.run).await.unwrap();
    assert_eq!(steps(&worker.take_whole(lease.run).await.history), [(1, "pay")]);
}

/// A holder that parks without having seen the mark does not lose it.
pub async fn pause_before_the_park_is_not_missed(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    pause(stage, lease.run).await.unwrap();
    assert_eq!(stage.settle(lease, parked(0)).await.unwrap(), Settled::Queued);
    assert!(stage.run(lease.run).await.paused_at.is_some());
    worker.assert_nothing_to_claim().await;
}

/// A parked run keeps the timer that comes due while it is paused.
pub async fn paused_run_keeps_a_due_timer(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.settle(lease, parked_until(Some(stage.in_ms(1_000)), 0)).await.unwrap();
    let paused = pause(stage, lease.run).await.unwrap();
    assert_eq!((paused.state, paused.due_at), (RunState::Waiting, Some(stage.in_ms(1_000))));
    stage.pass(2_000);
    worker.assert_nothing_to_claim().await;
    worker.sweep().await;
    worker.assert_nothing_to_claim().await;
    steer(stage).resume(lease.run).await.unwrap();
    worker.take(lease.run).await;
}

/// A parked run that is resumed before its time waits as it did.
pub async fn resumed_run_waits_as_it_was(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    stage.settle(lease, parked_until(Some(stage.in_ms(1_000)), 0)).await.unwrap();
    let before = stage.run(lease.run).await;
    pause(stage, lease.run).await.unwrap();
    let resumed = steer(stage).resume(lease.run).await.unwrap();
    assert_eq!(Run { wakes: before.wakes, ..resumed }, before);
    worker.assert_nothing_to_claim().await;
    stage.pass(1_000);
    worker.take(lease.run).await;
}

/// A parked run keeps the signal that arrives while it is paused.
pub async fn paused_run_keeps_a_signal(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let waits_for = Waits::Signal { name: "go".to_owned() };
    stage.settle(lease, End::Parked { wake_at: None, waits_for, wakes_seen: 0 }).await.unwrap();
    pause(stage, lease.run).await.unwrap();
    let signal = NewSignal {
        run: lease.run,
        name: "go".to_owned(),
        step: "$signal/go".to_owned(),
        key: "1".to_owned(),
        fingerprint: Fingerprint::of(b"1"),
        body: json(7),
    };
    stage.store.signal(signal).await.unwrap();
    worker.assert_nothing_to_claim().await;
    steer(stage).resume(lease.run).await.unwrap();
    assert_eq!(worker.take_whole(lease.run).await.signals[0].body, json(7));
}

/// A delayed run that is paused begins after its resume, not before its time.
pub async fn paused_delayed_run_begins_after_both(stage: &Stage) {
    let worker = stage.worker().await;
    let new = || NewRun { start_at: StartAt::After(1_000), ..new_run() };
    let (early, late) = (stage.start(new()).await, stage.start(new()).await);
    for run in [early, late] {
        pause(stage, run).await.unwrap();
    }
    steer(stage).resume(early).await.unwrap();
    worker.assert_nothing_to_claim().await;
    stage.pass(1_000);
    worker.take(early).await;
    steer(stage).resume(late).await.unwrap();
    worker.take(late).await;
}

/// A pause that is repeated changes nothing, in whatever state it left the run.
pub async fn pause_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let marked = stage.running(&worker).await.run;
    let parked_run = stage.settled(&worker, parked(0)).await.run;
    let queued = stage.start(new_run()).await;
    for run in [marked, parked_run, queued] {
        let first = pause(stage, run).await.unwrap();
        let before = stage.snapshot().await;
        stage.pass(5);
        let again = Pause { run, caller: "another".to_owned() };
        assert_eq!(steer(stage).pause(again).await.unwrap(), first);
        stage.assert_unchanged(&before).await;
    }
}

/// A resume that is repeated, or meets a run that is not paused, changes nothing.
pub async fn resume_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let marked = stage.running(&worker).await.run;
    let queued = stage.start(new_run()).await;
    for run in [marked, queued] {
        let before = stage.snapshot().await;
        steer(stage).resume(run).await.unwrap();
        stage.assert_unchanged(&before).await;
        pause(stage, run).await.unwrap();
        let first = steer(stage).resume(run).await.unwrap();
        let before = stage.snapshot().await;
        stage.pass(5);
        assert_eq!(steer(stage).resume(run).await.unwrap(), first);
        stage.assert_unchanged(&before).await;
    }
    assert_eq!(worker.claim(0).await.marks, [], "the holder goes on");
}

/// A run that has ended is neither paused nor resumed, and says so.
pub async fn pause_of_an_ended_run_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [End::Completed(json(1)), failed_at("pay"), End::Cancelled] {
        let run = stage.settled(&worker, end).await.run;
        let before = stage.snapshot().await;
        assert_conflict(pause(stage, run).await, Conflict::Finished { run });
        assert_conflict(steer(stage).resume(run).await, Conflict::Finished { run });
        stage.assert_unchanged(&before).await;
    }
}

/// A run that is asked to end is not paused, and says so.
pub async fn pause_of_a_run_that_is_to_end_is_refused(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.running(&worker).await.run;
    stage.store.cancel(run).await.unwrap();
    let before = stage.snapshot().await;
    assert_conflict(pause(stage, run).await, Conflict::Ending { run });
    stage.assert_unchanged(&before).await;
}

/// A pause and a resume of a run that does not exist say so.
pub async fn pause_of_an_unknown_run_says_so(stage: &Stage) {
    let run = RunId::new();
    for answer in [pause(stage, run).await, steer(stage).resume(run).await] {
        assert!(matches!(answer, Err(Error::NotFound)), "{answer:?}");
    }
}

/// A cancel of a paused run goes through, in whatever state the pause met it.
pub async fn cancel_of_a_paused_run_goes_through(stage: &Stage) {
    let worker = stage.worker().await;
    let queued = stage.start(new_run()).await;
    pause(stage, queued).await.unwrap();
    assert_eq!(stage.store.cancel(queued).await.unwrap().state, RunState::Cancelled);
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    pause(stage, lease.run).await.unwrap();
    let cancelled = stage.store.cancel(lease.run).await.unwrap();
    assert_eq!((cancelled.paused_at, cancelled.paused_by), (None, None));
    assert_eq!(worker.claim(0).await.marks, [Mark { lease, asks: Asks::End }]);
    stage.settle(lease, End::Released).await.unwrap();
    let lease = worker.take(lease.run).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    let parked_run = stage.running(&worker).await;
    stage.record(parked_run, vec![done(1, "pay", 1)]).await.unwrap();
    stage.settle(parked_run, parked(0)).await.unwrap();
    pause(stage, parked_run.run).await.unwrap();
    stage.store.cancel(parked_run.run).await.unwrap();
    assert!(worker.take_whole(parked_run.run).await.run.cancel_at.is_some());
}

/// A retry of a paused stuck run lets it go on.
pub async fn retry_of_a_paused_run_goes_through(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.settled(&worker, stuck(0)).await.run;
    pause(stage, run).await.unwrap();
    assert_eq!(stage.store.retry(run).await.unwrap().paused_at, None);
    worker.take(run).await;
}

/// The record of a step that can be undone: without one a late run needs no worker.
fn undoable() -> Record {
    Record { undoable: true, ..done(1, "pay", 1) }
}

/// The deadline of a paused run holds: a sweep opens the run, and the worker that claims it undoes and
/// ends it.
pub async fn deadline_of_a_paused_run_holds(stage: &Stage) {
    let worker = stage.worker().await;
    let new = || NewRun { timeout_ms: Some(1_000), ..new_run() };
    let queued = stage.start(new()).await;
    let waiting = stage.start(new()).await;
    let claimed = worker.claim(2).await.runs;
    for (claimed, end) in claimed.into_iter().zip([End::Released, parked(0)]) {
        stage.store.settle(claimed.lease, Settle::new(vec![undoable()], end)).await.unwrap();
    }
    assert_eq!(stage.state(waiting).await, RunState::Waiting);
    for run in [queued, waiting] {
        pause(stage, run).await.unwrap();
    }
    stage.pass(999);
    worker.sweep().await;
    worker.assert_nothing_to_claim().await;
    stage.pass(1);
    worker.sweep().await;
    let mut taken = ids(&worker.claim(10).await);
    taken.sort();
    assert_eq!(taken, [queued, waiting]);
    assert_eq!(stage.run(queued).await.paused_at, None);
}

/// The deadline of a run that is paused and stuck holds too.
pub async fn deadline_of_a_paused_stuck_run_holds(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(NewRun { timeout_ms: Some(1_000), ..new_run() }).await;
    let lease = worker.take(run).await;
    stage.store.settle(lease, Settle::new(vec![undoable()], stuck(0))).await.unwrap();
    pause(stage, run).await.unwrap();
    stage.pass(1_000);
    worker.sweep().await;
    worker.take(run).await;
}

/// A pause survives the loss of the holder.
pub async fn pause_survives_a_lost_worker(stage: &Stage) {
    let (old, live) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    pause(stage, lease.run).await.unwrap();
    stage.lose(&old, &live).await;
    live.assert_nothing_to_claim().await;
    steer(stage).resume(lease.run).await.unwrap();
    live.take(lease.run).await;
}

/// A run that goes on for a paused one is paused as well; one that ends is not paused any more.
pub async fn pause_goes_on_with_the_continuation(stage: &Stage) {
    let worker = stage.worker().await;
    let (one, two) = (stage.running(&worker).await, stage.running(&worker).await);
    for run in [one.run, two.run] {
        pause(stage, run).await.unwrap();
    }
    stage.settle(one, End::Completed(json(1))).await.unwrap();
    assert_eq!(stage.run(one.run).await.paused_at, None);
    let next = RunId::new();
    stage
        .settle(two, End::Continued { run: next, input: json(2), undelivered: Vec::new() })
        .await
        .unwrap();
    assert_eq!(stage.run(two.run).await.paused_at, None);
    let next = stage.store.get(Which::Id(next)).await.unwrap().unwrap();
    assert_eq!((next.paused_at, next.paused_by), (Some(stage.now()), Some("ops".to_owned())));
    worker.assert_nothing_to_claim().await;
}

/// A pause and a resume whose answers were lost are repeated without a trace.
pub async fn lost_answer_of_a_pause(stage: &Stage) {
    let run = stage.start(new_run()).await;
    let pause = Pause { run, caller: "ops".to_owned() };
    let paused = super::lost_answer::repeated(stage, |store| store.pause(pause.clone()));
    assert_eq!(paused.await.wakes, 1);
    let resumed = super::lost_answer::repeated(stage, |store| store.resume(run));
    assert_eq!(resumed.await.wakes, 2);
}

/// A run that waits behind another fails at its deadline, however long the other takes.
pub async fn deadline_of_a_run_behind_holds(stage: &Stage) {
    let worker = stage.worker().await;
    let holder = stage.start(keyed("order-1", 1, crate::OnConflict::Replace)).await;
    let lease = worker.take(holder).await;
    let new = keyed("order-1", 2, crate::OnConflict::Replace);
    let behind = stage.start(NewRun { timeout_ms: Some(1_000), ..new }).await;
    worker.assert_nothing_to_claim().await;
    stage.pass(1_000);
    worker.sweep().await;
    assert_eq!(stage.state(behind).await, RunState::Failed);
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert_eq!(stage.state(behind).await, RunState::Failed);
    worker.assert_nothing_to_claim().await;
}
