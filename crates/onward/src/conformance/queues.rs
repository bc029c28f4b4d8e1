//! Queues: what is set up holds, however often it is said, and is seen by every handle.

use tokio::task::JoinSet;

use super::LossyStore;
use super::stage::*;
use crate::limits::QUEUES_MAX;
use crate::store::{
    Conflict, End, Grant, ImportQueue, PutQueue, QueueImported, Queues, Topic, WholeQueue,
};
use crate::{Queue, QueueCounts, QueueLimits, Rate};

/// The queues of a store, which must have them.
pub(super) fn queues(stage: &Stage) -> &dyn Queues {
    stage.store.queues().unwrap()
}

/// Gives the usual queue these limits.
pub(super) async fn limit(stage: &Stage, limits: QueueLimits) -> Queue {
    queues(stage).put_queue(PutQueue { name: QUEUE.to_owned(), limits }).await.unwrap()
}

fn every_limit() -> QueueLimits {
    QueueLimits {
        concurrency: Some(8),
        per_worker: Some(2),
        rate: Some(Rate { count: 10, period_ms: 1_000 }),
        per_lane: Some(1),
    }
}

/// A queue is set up as it was asked for, and another handle sees it.
pub async fn put_queue_is_kept_as_asked(stage: &Stage) {
    assert_eq!(queues(stage).get_queue(QUEUE.into()).await.unwrap(), None);
    let limits = every_limit();
    let put = limit(stage, limits).await;
    let changed_at = Some(stage.now());
    assert_eq!(put, Queue { name: QUEUE.into(), limits, paused_at: None, changed_at });
    let other = stage.other.queues().unwrap();
    assert_eq!(other.get_queue(QUEUE.into()).await.unwrap(), Some(put));
    let less = QueueLimits { concurrency: Some(3), ..QueueLimits::default() };
    stage.pass(5);
    limit(stage, less).await;
    let found = other.get_queue(QUEUE.into()).await.unwrap().unwrap();
    assert_eq!((found.limits, found.changed_at), (less, Some(stage.now())));
}

/// The same limits again change nothing; none at all leave nothing set up.
pub async fn put_queue_twice(stage: &Stage) {
    let put = limit(stage, every_limit()).await;
    stage.pass(5);
    assert_eq!(limit(stage, every_limit()).await, put);
    for _ in 0..2 {
        assert!(!limit(stage, QueueLimits::default()).await.is_limited());
        assert_eq!(queues(stage).get_queue(QUEUE.into()).await.unwrap(), None);
    }
}

/// A paused queue stays as it is when it is paused again, and keeps its limits.
pub async fn pause_queue_twice(stage: &Stage) {
    limit(stage, every_limit()).await;
    let paused = queues(stage).pause_queue(QUEUE.into()).await.unwrap();
    assert_eq!((paused.paused_at, paused.limits), (Some(stage.now()), every_limit()));
    stage.pass(5);
    assert_eq!(queues(stage).pause_queue(QUEUE.into()).await.unwrap(), paused);
    let still = limit(stage, QueueLimits::default()).await;
    assert_eq!(still.paused_at, paused.paused_at, "limits leave the pause alone");
}

/// A queue that goes on stays as it is when it is told to again.
pub async fn resume_queue_twice(stage: &Stage) {
    queues(stage).pause_queue(QUEUE.into()).await.unwrap();
    for _ in 0..2 {
        let queue = queues(stage).resume_queue(QUEUE.into()).await.unwrap();
        assert_eq!(queue, Queue::named(QUEUE));
        assert_eq!(queues(stage).get_queue(QUEUE.into()).await.unwrap(), None);
        stage.pass(5);
    }
}

/// A queue is cleared once.
pub async fn clear_queue_twice(stage: &Stage) {
    limit(stage, every_limit()).await;
    queues(stage).pause_queue(QUEUE.into()).await.unwrap();
    assert!(queues(stage).clear_queue(QUEUE.into()).await.unwrap());
    assert_eq!(queues(stage).get_queue(QUEUE.into()).await.unwrap(), None);
    assert!(!queues(stage).clear_queue(QUEUE.into()).await.unwrap());
}

/// Whoever was not answered says the same again, and finds it as it is.
pub async fn lost_answer_of_a_queue(stage: &Stage) {
    let store = LossyStore::around(stage.store.clone());
    let lossy = crate::store::Store::queues(&store).unwrap();
    store.lose_next(1);
    let put = PutQueue { name: QUEUE.to_owned(), limits: every_limit() };
    assert!(lossy.put_queue(put.clone()).await.is_err());
    let left = queues(stage).get_queue(QUEUE.into()).await.unwrap();
    stage.pass(5);
    assert_eq!(Some(lossy.put_queue(put).await.unwrap()), left);
    store.lose_next(1);
    assert!(lossy.pause_queue(QUEUE.into()).await.is_err());
    let left = queues(stage).get_queue(QUEUE.into()).await.unwrap();
    stage.pass(5);
    assert_eq!(Some(lossy.pause_queue(QUEUE.into()).await.unwrap()), left);
}

/// A queue of another store comes in as it is, once; one that is there is left.
pub async fn import_queue_twice(stage: &Stage) {
    let paused_at = Some(stage.now());
    stage.pass(5);
    let limits = every_limit();
    let queue = Queue { limits, paused_at, changed_at: paused_at, ..Queue::named("ocr") };
    let grants = vec![Grant { at: stage.now(), count: 2 }];
    let import = |queue: &Queue, dry_run| {
        let last_lane = Some("acme".to_owned());
        let whole = WholeQueue { queue: queue.clone(), last_lane, grants: grants.clone() };
        queues(stage).import_queue(ImportQueue { whole, dry_run })
    };
    assert_eq!(import(&queue, true).await.unwrap(), QueueImported::New);
    assert_eq!(queues(stage).get_queue("ocr".into()).await.unwrap(), None, "it only looked");
    assert_eq!(import(&queue, false).await.unwrap(), QueueImported::New);
    assert_eq!(import(&queue, false).await.unwrap(), QueueImported::There);
    let other = Queue { paused_at: None, ..queue.clone() };
    assert_eq!(import(&other, false).await.unwrap(), QueueImported::Differs);
    assert_eq!(queues(stage).get_queue("ocr".into()).await.unwrap(), Some(queue.clone()));
    let whole = queues(stage).export_queue("ocr".into()).await.unwrap().unwrap();
    assert_eq!((whole.queue, whole.last_lane.as_deref()), (queue, Some("acme")));
    assert_eq!(whole.grants, grants);
    assert_eq!(queues(stage).export_queue("mail".into()).await.unwrap(), None);
}

/// What is copied to another queue still counts against its rate, and its lanes go on in turn.
pub async fn imported_queue_keeps_its_grants_and_its_turn(stage: &Stage) {
    let worker = stage.worker().await;
    let rate = Some(Rate { count: 4, period_ms: 1_000 });
    let limits = QueueLimits { rate, per_lane: Some(1), ..QueueLimits::default() };
    queues(stage).put_queue(PutQueue { name: QUEUE.into(), limits }).await.unwrap();
    for lane in ["a", "b", "c"] {
        for _ in 0..2 {
            let lane = Some(lane.to_owned());
            stage.start(crate::store::NewRun { lane, ..new_run() }).await;
        }
    }
    assert_eq!(worker.claim(2).await.runs.len(), 2);
    let whole = queues(stage).export_queue(QUEUE.into()).await.unwrap().unwrap();
    assert_eq!(whole.last_lane.as_deref(), Some("b"));
    queues(stage).clear_queue(QUEUE.into()).await.unwrap();
    let import = ImportQueue { whole, dry_run: false };
    assert_eq!(queues(stage).import_queue(import).await.unwrap(), QueueImported::New);
    stage.store.leave(worker.id).await.unwrap();
    let worker = stage.worker().await;
    let lanes = |claims: &crate::store::Claims| -> Vec<_> {
        claims.runs.iter().map(|claimed| claimed.run.lane.clone().unwrap()).collect()
    };
    let claims = worker.claim(9).await;
    assert_eq!(claims.runs.len(), 2, "two were granted before: {:?}", lanes(&claims));
    assert!(lanes(&claims).contains(&"c".to_owned()), "{:?}", lanes(&claims));
}

/// Queues are listed by name, with what is in them, whether they are set up or not.
pub async fn queues_come_in_pages(stage: &Stage) {
    let worker = stage.worker().await;
    stage.running(&worker).await;
    let oldest_due_at = Some(stage.in_ms(0));
    for _ in 0..2 {
        stage.start(crate::store::NewRun { queue: "slow".into(), ..new_run() }).await;
        stage.clock.advance(std::time::Duration::from_secs(1));
    }
    let ocr = queues(stage).pause_queue("ocr".into()).await.unwrap();
    let page = queues(stage).list_queues(None, 2).await.unwrap();
    let running = QueueCounts { queue: Queue::named(QUEUE), running: 1, ..QueueCounts::default() };
    assert_eq!(page.queues, [running, QueueCounts { queue: ocr, ..QueueCounts::default() }]);
    assert!(page.more);
    let rest = queues(stage).list_queues(Some("ocr".into()), 2).await.unwrap();
    let slow = QueueCounts { queue: Queue::named("slow"), queued: 2, running: 0, oldest_due_at };
    assert_eq!(rest.queues, [slow], "the one that waits longest was due first");
    assert!(!rest.more);
}

/// What is counted in a queue is told with its limits.
pub async fn queue_use_is_counted(stage: &Stage) {
    let (one, two) = (stage.worker().await, stage.worker().await);
    assert_eq!(queues(stage).queue_use(QUEUE.into(), None).await.unwrap(), None);
    let rate = Some(Rate { count: 2, period_ms: 1_000 });
    limit(stage, QueueLimits { rate, per_lane: Some(5), ..QueueLimits::default() }).await;
    for worker in [&one, &two] {
        let run = crate::store::NewRun { lane: Some("acme".into()), ..new_run() };
        let run = stage.start(run).await;
        worker.take(run).await;
        stage.pass(10);
    }
    let used = queues(stage).queue_use(QUEUE.into(), Some("acme".into())).await.unwrap().unwrap();
    assert_eq!((used.running, used.lane_running), (2, 2));
    let mut held = vec![(one.id, 1), (two.id, 1)];
    held.sort();
    assert_eq!(used.held, held);
    assert_eq!(used.rate_until, Some(stage.in_ms(980)));
    let other = queues(stage).queue_use(QUEUE.into(), Some("other".into())).await.unwrap();
    assert_eq!(other.unwrap().lane_running, 0);
    stage.pass(980);
    let used = queues(stage).queue_use(QUEUE.into(), None).await.unwrap().unwrap();
    assert_eq!((used.rate_until, used.lane_running), (None, 0));
}

/// So many queues are set up at once, and no more.
pub async fn queues_set_up_are_bounded(stage: &Stage) {
    let mut all = JoinSet::new();
    for number in 0..QUEUES_MAX {
        if all.len() == AT_ONCE_MAX {
            all.join_next().await.unwrap().unwrap();
        }
        let store = stage.store.clone();
        all.spawn(async move {
            store.queues().unwrap().pause_queue(format!("q{number:04}")).await.unwrap();
        });
    }
    all.join_all().await;
    let one_more = queues(stage).pause_queue("one more".into()).await;
    assert_conflict(one_more, Conflict::QueuesFull);
    queues(stage).pause_queue("q0000".into()).await.unwrap();
    queues(stage).resume_queue("q0000".into()).await.unwrap();
    queues(stage).pause_queue("one more".into()).await.unwrap();
}

/// A change resolves who waits for work: what was held back may be claimed.
pub async fn waiter_for_work_resolves_at_a_resume(stage: &Stage) {
    queues(stage).pause_queue(QUEUE.into()).await.unwrap();
    let waiter = stage.store.wait(Topic::Work);
    queues(stage).resume_queue(QUEUE.into()).await.unwrap();
    resolves(waiter).await;
}

/// A run that settles makes room in its queue, which resolves who waits for work elsewhere.
pub async fn waiter_for_work_resolves_when_room_is_made(stage: &Stage) {
    let worker = stage.worker().await;
    limit(stage, QueueLimits { concurrency: Some(1), ..QueueLimits::default() }).await;
    let first = stage.running(&worker).await;
    stage.start(new_run()).await;
    let waiters = [stage.store.wait(Topic::Work), stage.other.wait(Topic::Work)];
    stage.settle(first, End::Completed(json(1))).await.unwrap();
    for waiter in waiters {
        resolves(waiter).await;
    }
}

async fn resolves(waiter: crate::store::Waiter) {
    let patience = std::time::Duration::from_secs(10);
    let resolved = tokio::time::timeout(patience, waiter).await;
    assert!(resolved.is_ok(), "the waiter resolves");
}
