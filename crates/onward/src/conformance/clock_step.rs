//! Stored times and a clock that is set: what each of them does, as a table, and a case for each row.
//!
//! Owns: [`TABLE`]. A store that lacks one of these passes that case by having no answer.

use std::time::Duration;

use super::firing::fire;
use super::queues::limit;
use super::schedules::{NAME, found, new_schedule};
use super::stage::*;
use crate::store::{
    End, Fired, Gather, KeyAnswer, KeyEnd, KeyHolder, NewKey, NewRun, NewWorker, Prune, PutQueue,
    PutSchedule, SettleKey, StartAt, StartedHow, TakeKey,
};
use crate::{OnConflict, QueueLimits, Rate, RunState};

/// How long each of these lasts on a clock that nobody sets.
pub const LENGTH_MS: i64 = 60_000;

/// How far the clock is set: back by a lot and by a little, forward by a little and by a lot.
pub const STEPS_MS: [i64; 4] = [-3_600_000, -5_000, 5_000, 3_600_000];

/// For so long each of these lasts on after the clock was set by each of [`STEPS_MS`]; 0: it is over.
///
/// Two rules: what others wait for, and what is known to last no longer than its length, is not believed
/// where it is further ahead than that; anything else ends by the clock, which is late or early by the step.
pub const TABLE: &[(&str, [i64; 4])] = &[
    ("lease", BOUNDED),
    ("grant", BOUNDED),
    ("throttle", BOUNDED),
    ("debounce_max", BOUNDED),
    ("debounce", BY_THE_CLOCK),
    ("delay", BY_THE_CLOCK),
    ("timer", BY_THE_CLOCK),
    ("deadline", BY_THE_CLOCK),
    ("run_key", BY_THE_CLOCK),
    ("step_key_result", BY_THE_CLOCK),
    ("step_key_hold", BY_THE_CLOCK),
    ("prune_age", BY_THE_CLOCK),
    ("schedule", BY_THE_CLOCK),
];

/// By the clock, unless that was set back by more than it lasts.
const BOUNDED: [i64; 4] = [0, LENGTH_MS + 5_000, LENGTH_MS - 5_000, 0];

const BY_THE_CLOCK: [i64; 4] = [LENGTH_MS + 3_600_000, LENGTH_MS + 5_000, LENGTH_MS - 5_000, 0];

/// From the end of one step to the next, so that what came before is over by any clock.
const APART: Duration = Duration::from_secs(4 * 3_600);

fn length() -> Duration {
    Duration::from_millis(LENGTH_MS.unsigned_abs())
}

/// Sets the clock by each step once `begin` has made a thing, and looks when it is over.
async fn lasts<T>(
    stage: &Stage,
    what: &str,
    begin: impl AsyncFn(usize) -> T,
    is_over: impl AsyncFn(&T) -> bool,
) {
    let (_, row) = TABLE.iter().find(|(name, _)| *name == what).unwrap();
    for (number, (step_ms, left_ms)) in STEPS_MS.into_iter().zip(*row).enumerate() {
        let began_at = stage.now();
        let thing = begin(number).await;
        let by = Duration::from_millis(step_ms.unsigned_abs());
        if step_ms < 0 {
            stage.clock.set_back(by)
        } else {
            stage.clock.advance(by)
        }
        if left_ms > 0 {
            stage.pass(left_ms.unsigned_abs() - 1);
            assert!(!is_over(&thing).await, "{what}, set by {step_ms} ms, is over too early");
            stage.pass(1);
        }
        assert!(is_over(&thing).await, "{what}, set by {step_ms} ms, should be over");
        stage.clock.advance((began_at + APART).since(stage.now()));
    }
}

async fn swept(stage: &Stage) {
    stage.worker().await.sweep().await;
}

/// A lease is taken away from a worker that does not renew it; one that is further ahead than it lasts was made
/// before the clock was set back.
pub async fn lease_over_a_clock_step(stage: &Stage) {
    let begin = async |_| {
        let worker = Worker::new(stage.store.clone(), BUILD);
        // It has expired once its end has passed.
        let entry = NewWorker { lease_ms: LENGTH_MS - 1, ..worker.entry() };
        stage.store.join(entry).await.unwrap();
        worker.id
    };
    let is_over = async |id: &_| stage.worker().await.sweep().await.lost.contains(id);
    lasts(stage, "lease", begin, is_over).await;
}

/// What a rate granted counts for its period, and not for as long as the clock was set back.
pub async fn grant_over_a_clock_step(stage: &Stage) {
    if stage.store.queues().is_none() {
        return;
    }
    let rate = Some(Rate { count: 1, period_ms: LENGTH_MS });
    limit(stage, QueueLimits { rate, ..QueueLimits::default() }).await;
    let worker = stage.worker().await;
    let begin = async |_| {
        let first = stage.start(new_run()).await;
        worker.take(first).await;
        stage.start(new_run()).await
    };
    let is_over = async |second: &_| {
        let shown = stage.store.queues().unwrap().queue_use(QUEUE.to_owned(), None).await.unwrap();
        let free = shown.unwrap().rate_until.is_none();
        assert_eq!(ids(&worker.claim(9).await).contains(second), free, "as is shown");
        free
    };
    lasts(stage, "grant", begin, is_over).await;
    let name = QUEUE.to_owned();
    let put = PutQueue { name, limits: QueueLimits::default() };
    stage.store.queues().unwrap().put_queue(put).await.unwrap();
}

fn gathered(number: usize, gather: Gather) -> NewRun {
    let new = keyed(&format!("page-{number}"), 1, OnConflict::Existing);
    let key = new.key.map(|key| NewKey { gather: Some(gather), ..key });
    NewRun { key, ..new }
}

/// A throttled start gives the run of before for its time, and not for as long as the clock was set back.
pub async fn throttle_over_a_clock_step(stage: &Stage) {
    let throttled = |number| gathered(number, Gather::Throttle { ms: LENGTH_MS });
    let begin = async |number| {
        stage.start(throttled(number)).await;
        number
    };
    let is_over = async |number: &_| {
        stage.try_start(throttled(*number)).await.unwrap().how == StartedHow::New
    };
    lasts(stage, "throttle", begin, is_over).await;
}

/// A debounced run begins in its longest time at the next start, however far ahead its first one was.
pub async fn debounce_max_over_a_clock_step(stage: &Stage) {
    let gather = Gather::Debounce { ms: 9 * LENGTH_MS, max_ms: Some(LENGTH_MS) };
    let debounced =
        |number| NewRun { start_at: StartAt::After(LENGTH_MS), ..gathered(number, gather) };
    let begin = async |number| (number, stage.start(debounced(number)).await);
    let is_over = async |(number, run): &_| {
        assert_eq!(stage.start(debounced(*number)).await, *run, "it has not begun");
        stage.state(*run).await == RunState::Queued
    };
    lasts(stage, "debounce_max", begin, is_over).await;
}

/// A debounced run that no start follows begins by the clock.
pub async fn debounce_over_a_clock_step(stage: &Stage) {
    let gather = Gather::Debounce { ms: LENGTH_MS, max_ms: None };
    let begin = async |number| {
        let new = gathered(number, gather);
        stage.start(NewRun { start_at: StartAt::After(LENGTH_MS), ..new }).await
    };
    let is_over = async |run: &_| is_claimed(stage, *run).await;
    lasts(stage, "debounce", begin, is_over).await;
}

async fn is_claimed(stage: &Stage, run: crate::RunId) -> bool {
    ids(&stage.worker().await.claim(9).await).contains(&run)
}

/// A delayed start begins by the clock.
pub async fn delay_over_a_clock_step(stage: &Stage) {
    let begin =
        async |_| stage.start(NewRun { start_at: StartAt::After(LENGTH_MS), ..new_run() }).await;
    let is_over = async |run: &_| is_claimed(stage, *run).await;
    lasts(stage, "delay", begin, is_over).await;
}

/// What a run waits for until a time, as a sleep or the next try of a step, ends by the clock.
pub async fn timer_over_a_clock_step(stage: &Stage) {
    let begin = async |_| {
        let lease = stage.running(&stage.worker().await).await;
        stage.settle(lease, parked_until(Some(stage.now() + length()), 0)).await.unwrap();
        lease.run
    };
    let is_over = async |run: &_| is_claimed(stage, *run).await;
    lasts(stage, "timer", begin, is_over).await;
}

/// A run whose deadline has passed by the clock fails.
pub async fn deadline_over_a_clock_step(stage: &Stage) {
    let begin = async |_| stage.start(NewRun { timeout_ms: Some(LENGTH_MS), ..new_run() }).await;
    let is_over = async |run: &_| {
        swept(stage).await;
        stage.state(*run).await == RunState::Failed
    };
    lasts(stage, "deadline", begin, is_over).await;
}

/// The key of a run is free again by the clock.
pub async fn run_key_over_a_clock_step(stage: &Stage) {
    let begin = async |number| {
        let (key, new) = (format!("k{number}"), keyed("", 1, OnConflict::Existing));
        let kept = new.key.map(|new| NewKey { key: key.clone(), ttl_ms: Some(LENGTH_MS), ..new });
        stage.start(NewRun { key: kept, ..new }).await;
        key
    };
    let is_over = async |key: &String| stage.by_key(key).await.is_none();
    lasts(stage, "run_key", begin, is_over).await;
}

fn wish(number: usize) -> TakeKey {
    TakeKey {
        key: format!("k{number}"),
        holder: KeyHolder { id: "a".to_owned(), attempt: 1, caller: "stage".to_owned() },
        fingerprint: None,
        lease_ms: LENGTH_MS,
        counted: None,
        seen_expired: None,
    }
}

/// The result that is kept with a step key is forgotten by the clock.
pub async fn step_key_result_over_a_clock_step(stage: &Stage) {
    let Some(keys) = stage.store.keys() else { return };
    let begin = async |number| {
        let KeyAnswer::Held(lease) = keys.take_key(wish(number)).await.unwrap() else { panic!() };
        let settle = SettleKey { end: KeyEnd::Done(json(1)), ttl_ms: Some(LENGTH_MS) };
        keys.settle_key(lease.clone(), settle).await.unwrap();
        lease.key
    };
    let is_over = async |key: &String| keys.step_key(key.clone()).await.unwrap().is_none();
    lasts(stage, "step_key_result", begin, is_over).await;
}

/// The hold of a step key expires by the clock; `key_clock` has what that means.
pub async fn step_key_hold_over_a_clock_step(stage: &Stage) {
    let Some(keys) = stage.store.keys() else { return };
    let begin = async |number| {
        let KeyAnswer::Held(lease) = keys.take_key(wish(number)).await.unwrap() else { panic!() };
        lease.key
    };
    let is_over = async |key: &String| keys.step_key(key.clone()).await.unwrap().is_none();
    lasts(stage, "step_key_hold", begin, is_over).await;
}

/// A run is old enough to be pruned by the clock.
pub async fn prune_age_over_a_clock_step(stage: &Stage) {
    let begin = async |_| {
        let worker = stage.worker().await;
        stage.settled(&worker, End::Completed(json(1))).await.run
    };
    let is_over =
        async |_: &_| stage.store.prune(Prune::older_than(length())).await.unwrap().runs > 0;
    lasts(stage, "prune_age", begin, is_over).await;
}

/// A schedule comes by the clock, until a worker moves it back or somebody stores it again.
pub async fn schedule_over_a_clock_step(stage: &Stage) {
    let Some(schedules) = stage.store.schedules() else { return };
    let put = async || {
        let next_at = Some(stage.now() + length());
        let put = PutSchedule { next_at, ..new_schedule(stage, NAME) };
        schedules.put_schedule(put).await.unwrap()
    };
    let begin = async |_| {
        schedules.remove_schedule(NAME.to_owned()).await.unwrap();
        put().await;
    };
    let is_over =
        async |(): &()| !schedules.due_schedules(None, 1).await.unwrap().schedules.is_empty();
    lasts(stage, "schedule", begin, is_over).await;
    begin(0).await;
    stage.clock.advance(APART);
    let due = found(stage).await;
    let fired = schedules.fire_schedule(fire(&due, &[], Some(stage.now() + length()))).await;
    assert_eq!(fired.unwrap(), Fired::Done(Vec::new()));
    stage.clock.set_back(APART / 2);
    put().await;
    assert_eq!(found(stage).await.next_at, Some(stage.now() + length()));
}
