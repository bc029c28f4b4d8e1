//! Steps with a key, and `once`: executed once over all runs, whoever comes and whoever dies.

mod at_most_once;
mod once;
mod sleep;
mod stop;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::conformance::Death;
use onward::store::{KeyAnswer, KeyEnd, KeyHolder, Keys, MemoryStore, SettleKey, TakeKey};
use onward::{
    Code, Ctx, Entry, Failure, Json, KeyState, Onward, Retry, RunHandle, RunState, TestClock,
    Waits, Workflow,
};
use tokio::sync::Notify;

use crate::process::{Process, data};
use crate::stores::on_each_store;

const WORK: Workflow<u32, String> = Workflow::named("work");
const KEY: &str = "welcome-7";

type Counter = Arc<AtomicU32>;

fn count(counter: &Counter) -> u32 {
    counter.fetch_add(1, Ordering::SeqCst) + 1
}

fn counted(counter: &Counter) -> u32 {
    counter.load(Ordering::SeqCst)
}

/// The deadline is only there so that a fault does not hang the suite.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: it never came to hold");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn in_state(run: &RunHandle<String>, state: RunState) {
    until(&format!("state {state}"), async || run.status().await.unwrap().state == state).await;
}

/// A key that somebody has who is not of this test.
fn stranger(lease_ms: i64) -> TakeKey {
    let holder = KeyHolder { id: "stranger".to_owned(), attempt: 1, caller: "far".to_owned() };
    TakeKey {
        key: KEY.to_owned(),
        holder,
        fingerprint: None,
        lease_ms,
        counted: None,
        seen_expired: None,
    }
}

async fn held_by_stranger(keys: &dyn Keys) -> onward::store::KeyLease {
    held_for(60_000, keys).await
}

async fn held_for(lease_ms: i64, keys: &dyn Keys) -> onward::store::KeyLease {
    match keys.take_key(stranger(lease_ms)).await.unwrap() {
        KeyAnswer::Held(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// Serves a workflow of one step with the key, whose body counts and says its number.
fn serve(onward: &Onward, effects: &Counter) -> onward::WorkerBuilder {
    let effects = Arc::clone(effects);
    onward.worker().serve(WORK, move |ctx: Ctx, _| {
        let effects = Arc::clone(&effects);
        async move {
            let send = ctx.step("send", async |step| {
                let number = count(&effects);
                Ok::<_, Failure>(format!("{number} as {}", step.id()))
            });
            send.key(KEY).await
        }
    })
}

#[tokio::test]
async fn a_step_with_a_key_executes_once_over_all_runs() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let worker = serve(&onward, &effects).start().await.unwrap();
        let mut runs = Vec::new();
        for n in 0..20 {
            runs.push(onward.start(WORK, &n).await.unwrap());
        }
        for run in &runs {
            assert_eq!(run.result().await.unwrap(), format!("1 as key/{KEY}"));
            let history = run.history().await.unwrap();
            assert_eq!(history.len(), 1, "the result is an ordinary record of each run");
            assert_eq!(history[0].step, format!("send#@{KEY}"));
            assert!(matches!(history[0].entry, Entry::Done(_)));
        }
        assert_eq!(counted(&effects), 1);
        let duplicates = onward.key_duplicates(KEY).await.unwrap();
        assert_eq!((duplicates.count, duplicates.latest.len()), (19, 19));
        assert!(duplicates.latest.iter().all(|duplicate| duplicate.same_input));
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_that_meets_the_key_in_flight_parks_and_gets_the_result() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let keys = onward.store().keys().unwrap();
        let lease = held_by_stranger(keys).await;
        let worker = serve(&onward, &effects).linger(Duration::ZERO).start().await.unwrap();
        let run = onward.start(WORK, &1).await.unwrap();
        // It wakes now and then to look at the key, and waits for nothing then.
        let waits = Some(Waits::Key { step: format!("send#@{KEY}"), key: KEY.to_owned() });
        until("it waits for the key", async || run.status().await.unwrap().waits_for == waits)
            .await;
        let holder = "which stranger holds, on far";
        let why = async || run.why().await.unwrap().to_string();
        until("why names the holder", async || why().await.contains(holder)).await;
        let done = SettleKey { end: KeyEnd::Done(Json::of("theirs").unwrap()), ttl_ms: None };
        keys.settle_key(lease, done).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "theirs");
        assert_eq!(counted(&effects), 0);
        assert_eq!(onward.key_duplicates(KEY).await.unwrap().count, 1, "one who waits counts once");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_in_memory_is_told_at_the_end_of_a_hold() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let onward = Onward::with_store(store.clone());
    let lease = held_for(3_600_000, store.as_ref()).await;
    // A hold that is old is looked at every half a minute, so that only the hint comes in time.
    clock.advance(Duration::from_secs(600));
    let linger = Duration::from_secs(600);
    let worker = serve(&onward, &Counter::default()).linger(linger).start().await.unwrap();
    let run = onward.start(WORK, &1).await.unwrap();
    until("somebody waits", async || onward.key_duplicates(KEY).await.unwrap().count == 1).await;
    store.settle_key(lease, SettleKey::free()).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
    assert_eq!(told.expect("it was told").unwrap(), format!("1 as key/{KEY}"));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_dead_holders_key_is_taken_over_when_its_lease_is_over() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let onward = Onward::with_store(store.clone());
    let lease = held_by_stranger(store.as_ref()).await;
    let worker = serve(&onward, &Counter::default()).linger(Duration::ZERO).start().await.unwrap();
    let run = onward.start(WORK, &1).await.unwrap();
    until("it is done", async || {
        clock.advance(Duration::from_millis(500));
        run.status().await.unwrap().state == RunState::Completed
    })
    .await;
    assert!(onward.step_key(KEY).await.unwrap().unwrap().token > lease.token);
    let late = SettleKey { end: KeyEnd::Done(Json::of("late").unwrap()), ttl_ms: None };
    assert!(store.settle_key(lease, late).await.is_err(), "the dead one has no say any more");
    assert_eq!(run.result().await.unwrap(), format!("1 as key/{KEY}"));
    worker.shutdown().await.unwrap();
}

/// Two runs of one key, of which the first lets go of it in some way once its body has begun.
async fn first_ends(onward: &Onward, how: &str) -> (onward::Worker, RunHandle<String>, Counter) {
    let (effects, began) = (Counter::default(), Arc::new(Notify::new()));
    let seen = Arc::clone(&began);
    let (counter, ending) = (Arc::clone(&effects), how.to_owned());
    let function = move |ctx: Ctx, n: u32| {
        let (effects, began, how) = (Arc::clone(&counter), Arc::clone(&began), ending.clone());
        async move {
            let body = async |_| {
                count(&effects);
                if n > 0 {
                    return Ok(format!("by {n}"));
                }
                began.notify_one();
                match how.as_str() {
                    "fails" => Err(Failure::fatal("no")),
                    "panics" => panic!("on purpose"),
                    _ => std::future::pending().await,
                }
            };
            let send = ctx.step("send", body).key(KEY).retry(Retry::never());
            tokio::select! {
                sent = send => sent,
                dropped = ctx.signal::<()>("drop") => {
                    dropped?;
                    ctx.sleep(Duration::from_secs(3600)).await;
                    Ok("too slow".to_owned())
                }
            }
        }
    };
    let grace = Duration::from_millis(1);
    let worker = onward.worker().serve(WORK, function).cancel_grace(grace).start().await.unwrap();
    let first = onward.start(WORK, &0).await.unwrap();
    seen.notified().await;
    let second = onward.start(WORK, &2).await.unwrap();
    match how {
        "is cancelled" => first.cancel().await.unwrap(),
        "drops" => first.signal("drop", &()).await.unwrap(),
        _ => {}
    }
    (worker, second, effects)
}

#[tokio::test]
async fn a_failed_cancelled_or_dropped_holder_frees_its_key() {
    on_each_store(|onward: Onward| async move {
        for how in ["fails", "panics", "is cancelled", "drops"] {
            let (worker, second, effects) = first_ends(&onward, how).await;
            assert_eq!(second.result().await.unwrap(), "by 2", "the first {how}");
            assert_eq!(counted(&effects), 2, "the first {how}");
            assert_eq!(onward.step_key(KEY).await.unwrap().unwrap().state, KeyState::Done);
            onward.release_key(KEY).await.unwrap();
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}

/// A body that is alive, until it is dropped.
struct Alive(Counter);

impl Alive {
    fn new(alive: &Counter) -> Self {
        count(alive);
        Self(Arc::clone(alive))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_shutdown_past_its_grace_gives_runs_back_when_their_bodies_are_gone() {
    on_each_store(|onward: Onward| async move {
        let alive = Counter::default();
        let bodies = Arc::clone(&alive);
        let function = move |ctx: Ctx, _| {
            let alive = Arc::clone(&bodies);
            async move {
                let body = async |_| {
                    let _alive = Alive::new(&alive);
                    std::future::pending::<Result<String, Failure>>().await
                };
                ctx.step("send", body).key(KEY).await
            }
        };
        let worker = onward.worker().serve(WORK, function).shutdown_grace(Duration::ZERO);
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &1).await.unwrap();
        until("it began", async || counted(&alive) == 1).await;
        worker.shutdown().await.unwrap();
        assert_eq!(counted(&alive), 0, "another worker may have the run from here on");
        assert_eq!(onward.step_key(KEY).await.unwrap(), None, "and its key");
        in_state(&run, RunState::Queued).await;
    })
    .await;
}

#[tokio::test]
async fn a_kept_failure_is_everybodys() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let counter = Arc::clone(&effects);
        let function = move |ctx: Ctx, _| {
            let effects = Arc::clone(&counter);
            async move {
                let body = async |_| {
                    count(&effects);
                    Err::<String, _>(Failure::fatal("no such address").code("bounced"))
                };
                ctx.step("send", body).key(KEY).keep_failure().await
            }
        };
        let worker = onward.worker().serve(WORK, function).start().await.unwrap();
        for n in 0..3 {
            let error = onward.start(WORK, &n).await.unwrap().result().await.unwrap_err();
            assert!(error.failure().unwrap().is("bounced"), "{error}");
        }
        assert_eq!(counted(&effects), 1);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_failed_try_lets_another_run_have_the_key() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let counter = Arc::clone(&effects);
        let function = move |ctx: Ctx, n: u32| {
            let effects = Arc::clone(&counter);
            async move {
                let body = async |_| {
                    count(&effects);
                    if n == 0 { Err(Failure::new("down")) } else { Ok(format!("by {n}")) }
                };
                let hourly = Retry::fixed(Duration::from_secs(3600)).tries(5);
                ctx.step("send", body).key(KEY).retry(hourly).await
            }
        };
        let worker = onward.worker().serve(WORK, function).start().await.unwrap();
        let first = onward.start(WORK, &0).await.unwrap();
        in_state(&first, RunState::Waiting).await;
        let second = onward.start(WORK, &2).await.unwrap();
        assert_eq!(second.result().await.unwrap(), "by 2");
        assert_eq!(counted(&effects), 2);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_result_is_forgotten_after_its_time() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let onward = Onward::with_store(store);
    let effects = Counter::default();
    let counter = Arc::clone(&effects);
    let function = move |ctx: Ctx, _| {
        let effects = Arc::clone(&counter);
        async move {
            let body = async |_| Ok::<_, Failure>(count(&effects).to_string());
            ctx.step("send", body).key(KEY).ttl(Duration::from_secs(60)).await
        }
    };
    let worker = onward.worker().serve(WORK, function).start().await.unwrap();
    let mut results = Vec::new();
    for (n, pause) in [(0, 0), (1, 59), (2, 1)] {
        clock.advance(Duration::from_secs(pause));
        results.push(onward.start(WORK, &n).await.unwrap().result().await.unwrap());
    }
    assert_eq!(results, ["1", "1", "2"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_key_with_another_input_fails_the_step() {
    let onward = Onward::open("memory:").await.unwrap();
    let function = async |ctx: Ctx, n: u32| {
        let body = async |_| Ok::<_, Failure>(format!("charged {n}"));
        ctx.step("charge", body).key(KEY).fingerprint(&n).await
    };
    let worker = onward.worker().serve(WORK, function).start().await.unwrap();
    let first = onward.start(WORK, &5).await.unwrap();
    assert_eq!(first.result().await.unwrap(), "charged 5");
    let error = onward.start(WORK, &6).await.unwrap().result().await.unwrap_err();
    let failure = error.failure().unwrap();
    assert!(failure.is("key_conflict"), "{failure}");
    assert!(failure.message.contains(&first.id().to_string()), "it names the other: {failure}");
    let duplicates = onward.key_duplicates(KEY).await.unwrap();
    assert_eq!((duplicates.count, duplicates.latest[0].same_input), (1, false));
    worker.shutdown().await.unwrap();
}

/// A workflow whose key comes from a counter that goes on over replays, as a clock does.
async fn moving_key(builds: [&str; 2]) -> (Onward, RunHandle<String>, Counter) {
    let onward = Onward::open("memory:").await.unwrap();
    let (effects, clock) = (Counter::default(), Counter::default());
    let serve = |build: &str| {
        let (effects, clock) = (Arc::clone(&effects), Arc::clone(&clock));
        let function = move |ctx: Ctx, _| {
            let (effects, clock) = (Arc::clone(&effects), Arc::clone(&clock));
            async move {
                let key = format!("at-{}", count(&clock));
                let body = async |_| Ok::<_, Failure>(count(&effects).to_string());
                let sent = ctx.step("send", body).key(key).await?;
                ctx.sleep(Duration::from_millis(60)).await;
                Ok(sent)
            }
        };
        onward.worker().serve(WORK, function).build(build).linger(Duration::ZERO)
    };
    let first = serve(builds[0]).start().await.unwrap();
    let run = onward.start(WORK, &1).await.unwrap();
    in_state(&run, RunState::Waiting).await;
    first.shutdown().await.unwrap();
    let second = serve(builds[1]).start().await.unwrap();
    until("it was replayed", async || {
        let run = run.status().await.unwrap();
        run.state.is_final() || matches!(run.waits_for, Some(Waits::Stuck { .. }))
    })
    .await;
    second.shutdown().await.unwrap();
    (onward, run, effects)
}

#[tokio::test]
async fn a_key_that_differs_on_replay_is_reported() {
    let (_onward, run, effects) = moving_key(["v1", "v1"]).await;
    let Some(Waits::Stuck { code, detail }) = run.status().await.unwrap().waits_for else {
        panic!("it should be stuck")
    };
    assert_eq!(code, Code::KeyChanged.as_str());
    assert!(detail.contains("send#@at-1") && detail.contains("send#@at-2"), "{detail}");
    assert_eq!(counted(&effects), 1, "it stops before the body");
}

#[tokio::test]
async fn a_key_that_new_code_makes_otherwise_keeps_what_is_recorded() {
    let (_onward, run, effects) = moving_key(["v1", "v2"]).await;
    assert_eq!(run.result().await.unwrap(), "1");
    assert_eq!(counted(&effects), 1);
}

#[tokio::test]
async fn a_holder_that_lost_its_key_gets_what_the_other_did() {
    let onward = Onward::open("memory:").await.unwrap();
    let (go_on, fences) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
    let (go, seen) = (Arc::clone(&go_on), Arc::clone(&fences));
    let function = move |ctx: Ctx, n: u32| {
        let (go_on, fences) = (Arc::clone(&go), Arc::clone(&seen));
        async move {
            let body = async |step: onward::Step| {
                fences.lock().unwrap().push(step.fence().unwrap());
                if n == 0 {
                    go_on.notified().await;
                }
                Ok::<_, Failure>(format!("by {n}"))
            };
            ctx.step("send", body).key(KEY).await
        }
    };
    let worker = onward.worker().serve(WORK, function).start().await.unwrap();
    let first = onward.start(WORK, &0).await.unwrap();
    until("the first executes", async || fences.lock().unwrap().len() == 1).await;
    assert!(onward.release_key(KEY).await.unwrap());
    let second = onward.start(WORK, &2).await.unwrap();
    assert_eq!(second.result().await.unwrap(), "by 2");
    go_on.notify_one();
    assert_eq!(first.result().await.unwrap(), "by 2", "one key, one result");
    let fences = fences.lock().unwrap().clone();
    assert!(fences[0] < fences[1], "the token rises: {fences:?}");
    worker.shutdown().await.unwrap();
}

/// Kills a process at every write of a run with a key, before and after it, and lets another go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_anywhere_leaves_one_result() {
    for writes in 0..10 {
        for death in [Death::Before, Death::After] {
            let data = data();
            let effects = Counter::default();
            let first = Process::on(&data);
            let worker = serve(&first.onward, &effects).start().await.unwrap();
            first.store.die_after(writes, death);
            let ended =
                async { first.onward.start(WORK, &1).key("one").await.unwrap().result().await };
            tokio::select! {
                _ = ended => {}
                () = first.store.died() => {}
            }
            first.kill(worker).await;
            let key = data.keys().unwrap().step_key(KEY.to_owned()).await.unwrap();
            let was_done = key.is_some_and(|key| key.state == KeyState::Done);
            let second = Process::on(&data);
            let worker = serve(&second.onward, &effects).start().await.unwrap();
            let one = second.onward.start(WORK, &1).key("one").await.unwrap();
            let two = second.onward.start(WORK, &2).key("two").await.unwrap();
            let (one, two) = (one.result().await.unwrap(), two.result().await.unwrap());
            assert_eq!(one, two, "{writes} {death:?}");
            let times = counted(&effects);
            // Only a death between the effect and its key lets it happen again.
            let most = if was_done { 1 } else { 2 };
            assert!(times <= most, "{writes} {death:?}: executed {times} times");
            worker.shutdown().await.unwrap();
        }
    }
}

#[tokio::test]
async fn lost_answers_about_keys_change_nothing() {
    for lost in 1..6 {
        let data = data();
        let process = Process::on(&data);
        let effects = Counter::default();
        let worker = serve(&process.onward, &effects).start().await.unwrap();
        let run = process.onward.start(WORK, &1).await.unwrap();
        process.store.lose_next(lost);
        assert_eq!(run.result().await.unwrap(), format!("1 as key/{KEY}"), "{lost} lost");
        process.store.lose_next(0);
        let two = process.onward.start(WORK, &2).await.unwrap();
        assert_eq!(two.result().await.unwrap(), format!("1 as key/{KEY}"));
        assert_eq!(counted(&effects), 1, "{lost} lost");
        assert_eq!(data.keys().unwrap().key_duplicates(KEY.to_owned()).await.unwrap().count, 1);
        let _ = worker.shutdown().await;
    }
}

#[tokio::test]
async fn options_of_a_key_without_one_are_refused() {
    let onward = Onward::open("memory:").await.unwrap();
    let function = async |ctx: Ctx, n: u32| {
        let step = ctx.step("send", async |_| Ok::<_, Failure>(String::new()));
        match n {
            0 => step.ttl(Duration::from_secs(1)).await,
            1 => step.key("").await,
            _ => step.key("k".repeat(600)).await,
        }
    };
    let worker = onward.worker().serve(WORK, function).start().await.unwrap();
    for (n, code) in [(0, Code::InvalidOption), (1, Code::InvalidName), (2, Code::InvalidName)] {
        let error = onward.start(WORK, &n).await.unwrap().result().await.unwrap_err();
        assert!(error.failure().unwrap().is(code.as_str()), "{n}: {error}");
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn keys_can_be_kept_elsewhere_and_shared() {
    let shared = Arc::new(MemoryStore::new());
    let effects = Counter::default();
    let mut results = Vec::new();
    for n in 0..2 {
        let onward = Onward::open("memory:").await.unwrap().with_keys(shared.clone());
        let worker = serve(&onward, &effects).start().await.unwrap();
        results.push(onward.start(WORK, &n).await.unwrap().result().await.unwrap());
        assert!(onward.store().keys().unwrap().step_key(KEY.to_owned()).await.unwrap().is_none());
        worker.shutdown().await.unwrap();
    }
    assert_eq!((counted(&effects), &results[0]), (1, &results[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_file_execute_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    let effects = Counter::default();
    let (a, b) = (Onward::open(&url).await.unwrap(), Onward::open(&url).await.unwrap());
    let workers =
        [serve(&a, &effects).start().await.unwrap(), serve(&b, &effects).start().await.unwrap()];
    let mut runs = Vec::new();
    for n in 0..40 {
        let onward = if n % 2 == 0 { &a } else { &b };
        runs.push(onward.start(WORK, &n).await.unwrap());
    }
    for run in &runs {
        assert_eq!(run.result().await.unwrap(), format!("1 as key/{KEY}"));
    }
    assert_eq!(counted(&effects), 1);
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_copy_takes_step_keys_along() {
    let (from, to) =
        (Onward::open("memory:").await.unwrap(), Onward::open("memory:").await.unwrap());
    from.once(KEY).run(async || Ok::<_, Failure>("sent".to_owned())).await.unwrap();
    let hour = Duration::from_secs(3600);
    let fails = async || Err::<u32, _>(Failure::fatal("no"));
    from.once("other").keep_failure().ttl(hour).run(fails).await.unwrap_err();
    for _ in 0..2 {
        let copied = from.copy_to(&to).await.unwrap();
        assert!(copied.verified);
        assert_eq!(copied.step_keys, 2);
    }
    let result = to.once(KEY).run(async || Ok::<_, Failure>("again".to_owned())).await.unwrap();
    assert_eq!(result, "sent");
    let kept = to.step_key("other").await.unwrap().unwrap();
    let there = from.step_key("other").await.unwrap().unwrap();
    assert_eq!((kept.state, kept.until), (KeyState::Failed, there.until));
    to.release_key(KEY).await.unwrap();
    to.once(KEY).run(async || Ok::<_, Failure>("otherwise".to_owned())).await.unwrap();
    let error = from.copy_to(&to).await.unwrap_err();
    assert_eq!(error.code(), Code::CopyConflict);
    assert!(error.to_string().contains(KEY), "{error}");
}
