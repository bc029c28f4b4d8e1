//! Limited queues through the client and its workers, on every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, Why, Worker, Workflow};

use crate::database::Schema;

const NAP: Workflow<u64, u64> = Workflow::named("nap");

/// How many bodies execute, and the most that did.
#[derive(Default)]
struct Meter {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Meter {
    async fn nap(&self, number: u64) -> Result<u64, Failure> {
        let now = 1 + self.now.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        Ok(number)
    }
}

async fn worker(onward: &Onward, meter: &Arc<Meter>) -> Worker {
    let meter = Arc::clone(meter);
    let served = onward.worker().serve(NAP, move |ctx: Ctx, number: u64| {
        let meter = Arc::clone(&meter);
        async move { ctx.step("nap", async |_| meter.nap(number).await).await }
    });
    served.start().await.unwrap()
}

/// Two processes' worth of workers on each store.
async fn on_every_store<F: Future<Output = ()>>(story: impl Fn(Onward, Onward) -> F) {
    let memory = Onward::open("memory:").await.unwrap();
    story(memory.clone(), memory).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    story(Onward::open(&url).await.unwrap(), Onward::open(&url).await.unwrap()).await;
    let schema = Schema::new();
    let url = schema.url();
    story(Onward::open(&url).await.unwrap(), Onward::open(&url).await.unwrap()).await;
}

/// A worker that found the queue full is served as soon as another one makes room: were a hint lost,
/// each run would wait for the look of an idle worker, and the story would take minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_given_on_to_whoever_waits() {
    on_every_store(|one, two| async move {
        let meter = Arc::new(Meter::default());
        one.queue("default").concurrency(1).save().await.unwrap();
        let workers = [worker(&one, &meter).await, worker(&two, &meter).await];
        let mut runs = Vec::new();
        for number in 0..40 {
            let from = if number % 2 == 0 { &one } else { &two };
            runs.push((number, from.start(NAP, &number).await.unwrap()));
        }
        let all = async {
            for (number, run) in &runs {
                assert_eq!(run.result().await.unwrap(), *number);
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
        assert_eq!(meter.most.load(Ordering::SeqCst), 1, "one at a time, over all workers");
        for worker in workers {
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}

/// Nobody polls for a rate: the claim says when it allows the next run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_waited_for() {
    on_every_store(|one, two| async move {
        let meter = Arc::new(Meter::default());
        one.queue("default").rate(2, Duration::from_millis(100)).save().await.unwrap();
        let worker = worker(&two, &meter).await;
        let begun = std::time::Instant::now();
        let mut runs = Vec::new();
        for number in 0..9 {
            runs.push(one.start(NAP, &number).await.unwrap());
        }
        for run in runs {
            run.result().await.unwrap();
        }
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(380), "nine runs are five periods: {took:?}");
        assert!(took < Duration::from_secs(4), "and not much more: {took:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A paused queue holds its runs until it is resumed, by another process, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_queue_goes_on_when_it_is_resumed() {
    on_every_store(|one, two| async move {
        let meter = Arc::new(Meter::default());
        let worker = worker(&two, &meter).await;
        one.queue("default").pause().await.unwrap();
        let run = two.start(NAP, &7).await.unwrap();
        let why = run.why().await.unwrap();
        assert!(matches!(why, Why::QueuePaused { .. }), "{why}");
        assert_eq!(one.queues(None).await.unwrap().queues[0].queued, 1);
        one.queue("default").resume().await.unwrap();
        let result = tokio::time::timeout(Duration::from_secs(10), run.result()).await;
        assert_eq!(result.unwrap().unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let onward = Onward::open("memory:").await.unwrap();
    let second = Duration::from_secs(1);
    let queue = || onward.queue("ocr");
    for setup in [
        queue().concurrency(0),
        queue().per_worker(1_000_001),
        queue().rate(0, second),
        queue().rate(1, Duration::ZERO),
        queue().rate(1, 100_000 * second),
        queue().per_lane(0),
    ] {
        assert_eq!(setup.save().await.unwrap_err().code(), Code::InvalidOption);
    }
    assert_eq!(onward.queue("").pause().await.unwrap_err().code(), Code::InvalidName);
    let start = || onward.start(NAP, &1);
    for start in [
        start().debounce(second),
        start().throttle(second),
        start().key("k").debounce_max(second),
        start().key("k").debounce(second).throttle(second),
    ] {
        assert_eq!(start.await.unwrap_err().code(), Code::InvalidOption);
    }
    assert_eq!(start().lane("").await.unwrap_err().code(), Code::InvalidName);
}

/// Fails where a key may be free before the throttle or debounce is over: then a second run begins within it.
#[tokio::test]
async fn a_key_that_is_kept_too_short_to_gather_starts_is_refused() {
    let onward = Onward::open("memory:").await.unwrap();
    let ms = Duration::from_millis;
    let start = |ttl| onward.start(NAP, &1).key("k").key_ttl(ms(ttl));
    for (start, says) in [
        (start(999).throttle(ms(1_000)), "throttle is 1s"),
        (start(999).debounce(ms(1_000)), "debounce is 1s"),
        (start(1_000).debounce(ms(1_000)).debounce_max(ms(60_000)), "debounce_max is 60s"),
    ] {
        let error = start.await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidOption);
        assert!(error.to_string().contains(says), "{error}");
    }
    let many = onward.start_many(NAP, [1, 2]).key(|n| n.to_string()).key_ttl(ms(999));
    let many = many.throttle(ms(1_000)).await.unwrap();
    assert_eq!((many.started, many.refused), (0, 2));
    assert!(many.refusals.iter().all(|refusal| refusal.error.code() == Code::InvalidOption));
    start(1_000).throttle(ms(1_000)).await.unwrap();
    start(1_000).debounce(ms(1_000)).await.unwrap();
    start(60_000).debounce(ms(1_000)).debounce_max(ms(60_000)).await.unwrap();
}
