//! Debounced and throttled starts: many starts with one key, one run.

use super::stage::*;
use crate::clock::millis;
use crate::limits::{DUPLICATES_KEPT_MAX, GATHERED_KEPT};
use crate::store::{End, Gather, Import, NewKey, NewRun, StartAt, StartedHow};
use crate::{OnConflict, RunId, RunState, Waits};

fn debounced(input: i64, ms: i64, max_ms: Option<i64>) -> NewRun {
    let new = gathered(input, Gather::Debounce { ms, max_ms });
    NewRun { start_at: StartAt::After(ms), ..new }
}

fn throttled(input: i64, ms: i64) -> NewRun {
    gathered(input, Gather::Throttle { ms })
}

fn gathered(input: i64, gather: Gather) -> NewRun {
    let new = keyed("page-7", input, OnConflict::Existing);
    let key = new.key.map(|key| NewKey { gather: Some(gather), ..key });
    NewRun { key, ..new }
}

/// The last input wins, and the run begins when no start has come for a while.
pub async fn debounced_run_has_the_last_input(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(debounced(1, 100, None)).await;
    assert_eq!(stage.run(run).await.waits_for, Some(Waits::Debounce));
    stage.pass(60);
    let again = stage.try_start(debounced(2, 100, None)).await.unwrap();
    assert_eq!((again.run, again.how), (run, StartedHow::Existing));
    stage.pass(60);
    worker.assert_nothing_to_claim().await;
    let shown = stage.run(run).await;
    assert_eq!(shown.notes.start_at, Some(stage.in_ms(40)));
    assert_eq!((shown.input, shown.duplicates, shown.due_at), (json(2), 1, Some(stage.in_ms(40))));
    stage.pass(40);
    let claimed = worker.take_whole(run).await;
    assert_eq!(claimed.run.input, json(2));
    assert_eq!(stage.snapshot().await.runs.len(), 1);
}

/// However many starts follow, the run begins in the longest time after the first.
pub async fn debounced_run_begins_in_the_longest_time(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(debounced(0, 100, Some(250))).await;
    for input in 1..=4 {
        stage.pass(60);
        stage.start(debounced(input, 100, Some(250))).await;
    }
    assert_eq!(stage.run(run).await.due_at, Some(stage.in_ms(10)));
    stage.pass(10);
    assert_eq!(stage.start(debounced(9, 100, Some(250))).await, run, "it has not begun");
    assert_eq!(worker.take_whole(run).await.run.input, json(9));
}

/// A start after the run has begun makes a new one, which has the key.
pub async fn debounced_start_after_the_begin_makes_a_new_run(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(debounced(1, 100, None)).await;
    stage.pass(100);
    worker.take(run).await;
    let next = stage.try_start(debounced(2, 100, None)).await.unwrap();
    assert_eq!(next.how, StartedHow::New);
    assert_ne!(next.run, run);
    assert_eq!(stage.by_key("page-7").await, Some(next.run));
    assert_eq!(stage.state(run).await, RunState::Running, "the first goes on");
    assert_eq!(stage.run(run).await.input, json(1));
}

/// A run that goes on as another has begun, before anybody claims the other: its input is kept.
pub async fn debounced_start_leaves_a_continuation_alone(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(debounced(1, 100, None)).await;
    stage.pass(100);
    let (lease, next) = (worker.take(run).await, RunId::new());
    stage
        .settle(lease, End::Continued { run: next, input: json(5_000), undelivered: Vec::new() })
        .await
        .unwrap();
    assert_eq!(stage.by_key("page-7").await, Some(next));
    let other = stage.try_start(debounced(2, 100, None)).await.unwrap();
    assert_eq!(other.how, StartedHow::New);
    let shown = stage.run(next).await;
    assert_eq!((shown.input, shown.state), (json(5_000), RunState::Queued));
    worker.take(next).await;
}

/// A debounced start that is made again changes nothing, whether its run has begun or not.
pub async fn debounced_start_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let first = debounced(1, 100, None);
    let run = stage.start(first.clone()).await;
    stage.pass(10);
    let second = debounced(2, 100, None);
    stage.start(second.clone()).await;
    let before = stage.snapshot().await;
    stage.pass(10);
    assert_eq!(stage.try_start(first).await.unwrap().how, StartedHow::New);
    let again = stage.try_start(second.clone()).await.unwrap();
    assert_eq!((again.run, again.how), (run, StartedHow::Existing));
    stage.assert_unchanged(&before).await;
    stage.pass(100);
    worker.take(run).await;
    assert_eq!(stage.start(second).await, run, "it met this run before");
    assert_eq!(stage.snapshot().await.runs.len(), 1);
}

/// A start whose answer was lost, made again when a later start has made a new run, is told which run
/// it met: its older input is put into no other.
pub async fn debounced_start_made_again_after_a_later_run(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(debounced(1, 100, None)).await;
    let second = debounced(2, 100, None);
    let met = stage.try_start(second.clone()).await.unwrap();
    stage.pass(100);
    worker.take(run).await;
    let third = stage.start(debounced(3, 100, None)).await;
    stage.pass(10);
    let before = stage.snapshot().await;
    assert_eq!(stage.try_start(second.clone()).await.unwrap(), met);
    stage.assert_unchanged(&before).await;
    for input in 4..4 + 2 * DUPLICATES_KEPT_MAX as i64 {
        stage.start(debounced(input, 100, None)).await;
    }
    let before = stage.snapshot().await;
    assert_eq!(stage.try_start(second).await.unwrap(), met, "however many came since");
    stage.assert_unchanged(&before).await;
    stage.pass(100);
    let last = 3 + 2 * DUPLICATES_KEPT_MAX as i64;
    assert_eq!(worker.take_whole(third).await.run.input, json(last));
}

/// What is too old to be made again is forgotten as others come in, so it does not grow.
pub async fn old_gathered_starts_are_forgotten(stage: &Stage) {
    let run = stage.start(throttled(1, 100)).await;
    let second = throttled(2, 100);
    stage.start(second.clone()).await;
    stage.pass(millis(GATHERED_KEPT) as u64);
    assert_eq!(stage.start(second.clone()).await, run, "nothing came since");
    let next = stage.start(throttled(3, 100)).await;
    stage.start(throttled(4, 100)).await;
    assert_eq!(stage.start(second).await, next);
}

/// A copy takes along which run a gathered start met, unless that is too old to be asked for.
pub async fn imported_run_is_met_again_for_a_while(stage: &Stage) {
    let run = stage.start(throttled(1, 100)).await;
    stage.start(throttled(2, 100)).await;
    let portable = stage.store.portable().unwrap();
    for (age_ms, known) in [(0, true), (millis(GATHERED_KEPT) as u64, false)] {
        let all = portable.export(None, 10).await.unwrap();
        let mut whole = all.into_iter().find(|whole| whole.run.id == run).unwrap();
        let (copy, again) = (RunId::new(), throttled(2, 100));
        (whole.run.id, whole.hold) = (copy, None);
        whole.suppressed[0].0 = again.id;
        stage.pass(age_ms);
        portable.import(Import { runs: vec![whole], dry_run: false }).await.unwrap();
        assert_eq!(stage.start(again).await == copy, known, "after {age_ms} ms");
    }
}

/// Starts that come at one moment, through two handles, are one run with one of their inputs.
pub async fn concurrent_debounced_starts_make_one_run(stage: &Stage) {
    let mut starting = tokio::task::JoinSet::new();
    for input in 0..20 {
        let store = if input % 2 == 0 { stage.store.clone() } else { stage.other.clone() };
        starting.spawn(async move {
            store.start(vec![debounced(input, 100, None)]).await.unwrap().remove(0).unwrap().run
        });
    }
    let runs = starting.join_all().await;
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    let run = stage.run(runs[0]).await;
    assert_eq!(run.duplicates, 19);
    assert!((0..20).any(|input| run.input == json(input)));
}

/// The first input wins for as long as the throttle says, whatever comes; then a new run is made.
pub async fn throttled_run_has_the_first_input(stage: &Stage) {
    let worker = stage.worker().await;
    let run = stage.start(throttled(1, 100)).await;
    worker.take(run).await;
    stage.pass(99);
    let again = stage.try_start(throttled(2, 100)).await.unwrap();
    assert_eq!((again.run, again.how), (run, StartedHow::Existing));
    let kept = stage.store.duplicates(run).await.unwrap();
    assert_eq!((kept.count, kept.latest[0].same_input), (1, false));
    assert_eq!(stage.run(run).await.input, json(1));
    stage.pass(1);
    let next = stage.try_start(throttled(3, 100)).await.unwrap();
    assert_eq!(next.how, StartedHow::New);
    assert_eq!(stage.by_key("page-7").await, Some(next.run));
}

/// A throttled start that is made again meets the run it met, even after its time.
pub async fn throttled_start_twice(stage: &Stage) {
    let run = stage.start(throttled(1, 100)).await;
    let second = throttled(2, 100);
    stage.start(second.clone()).await;
    let before = stage.snapshot().await;
    stage.pass(500);
    assert_eq!(stage.start(second).await, run);
    stage.assert_unchanged(&before).await;
}
