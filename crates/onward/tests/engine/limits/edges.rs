//! What is accepted exactly at a limit, and refused one past it.

use std::time::Duration;

use onward::limits::{
    CONCURRENCY_MAX, KEY_BYTES_MAX, LEASE_MIN, NAME_BYTES_MAX, ON_CANCEL_MAX, QUEUE_LIMIT_MAX,
    RATE_COUNT_MAX, RATE_PERIOD_MAX, TAG_VALUE_BYTES_MAX,
};
use onward::{Code, Ctx, Error, Failure, Onward, Workflow};

const UNIT: Workflow<usize, ()> = Workflow::named("unit");

fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>, code: Code) {
    assert_eq!(answer.unwrap_err().code(), code);
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tokio::test]
async fn names_keys_and_tags_have_their_whole_length() {
    let onward = Onward::open("memory:").await.unwrap();
    let start = || onward.start(UNIT, &0);
    let name = text(NAME_BYTES_MAX);
    start().queue(&name).lane(&name).tag(&name, "1").await.unwrap();
    let longer = text(NAME_BYTES_MAX + 1);
    is_refused(start().queue(&longer).await, Code::InvalidName);
    is_refused(start().lane(&longer).await, Code::InvalidName);
    is_refused(start().tag(&longer, "1").await, Code::InvalidName);
    start().key(text(KEY_BYTES_MAX)).await.unwrap();
    is_refused(start().key(text(KEY_BYTES_MAX + 1)).await, Code::InvalidName);
    start().tag("customer", text(TAG_VALUE_BYTES_MAX)).await.unwrap();
    is_refused(start().tag("customer", text(TAG_VALUE_BYTES_MAX + 1)).await, Code::InvalidName);
}

#[tokio::test]
async fn workers_have_their_whole_concurrency_and_their_shortest_lease() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = || onward.worker().serve(UNIT, async |_: Ctx, _| Ok(()));
    let most = worker().concurrency(CONCURRENCY_MAX).lease(LEASE_MIN).start().await.unwrap();
    most.shutdown().await.unwrap();
    let more = worker().concurrency(CONCURRENCY_MAX + 1).start().await;
    is_refused(more.map(drop), Code::InvalidOption);
    let shorter = worker().lease(LEASE_MIN - Duration::from_millis(1)).start().await;
    is_refused(shorter.map(drop), Code::InvalidOption);
}

#[tokio::test]
async fn queues_have_their_whole_limits() {
    let onward = Onward::open("memory:").await.unwrap();
    let queue =
        |limit: u32| onward.queue("ocr").concurrency(limit).per_worker(limit).per_lane(limit);
    queue(QUEUE_LIMIT_MAX).rate(RATE_COUNT_MAX, RATE_PERIOD_MAX).save().await.unwrap();
    let more = QUEUE_LIMIT_MAX + 1;
    is_refused(onward.queue("ocr").concurrency(more).save().await, Code::InvalidOption);
    is_refused(onward.queue("ocr").per_worker(more).save().await, Code::InvalidOption);
    is_refused(onward.queue("ocr").per_lane(more).save().await, Code::InvalidOption);
    let rate = |count, period| onward.queue("ocr").rate(count, period).save();
    is_refused(rate(RATE_COUNT_MAX + 1, RATE_PERIOD_MAX).await, Code::InvalidOption);
    let longer = RATE_PERIOD_MAX + Duration::from_millis(1);
    is_refused(rate(RATE_COUNT_MAX, longer).await, Code::InvalidOption);
}

#[tokio::test]
async fn a_run_has_all_its_calls_on_cancel() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(UNIT, async |ctx: Ctx, calls: usize| {
        for _ in 0..calls {
            ctx.on_cancel(|_| std::future::ready(Ok::<_, Failure>(())));
        }
        ctx.step("done", async |_| Ok::<_, Failure>(())).await
    });
    let worker = worker.start().await.unwrap();
    onward.start(UNIT, &ON_CANCEL_MAX).await.unwrap().result().await.unwrap();
    let more = onward.start(UNIT, &(ON_CANCEL_MAX + 1)).await.unwrap().result().await;
    assert!(more.unwrap_err().failure().unwrap().is(Code::HistoryFull.as_str()));
    worker.shutdown().await.unwrap();
}
