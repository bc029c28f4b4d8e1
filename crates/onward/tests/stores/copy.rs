//! A store is outgrown: its runs are taken to another, nothing is lost, and whoever is still at
//! work is noticed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onward::conformance::stage::{LEASE_MS, Stage, Worker, done, json, keyed, new_run, parked};
use onward::conformance::{LossyStore, stage::BUILD};
use onward::limits::{COPY_BATCH_MAX, COPY_PASSES_MAX, SCHEDULES_DUE_MAX};
use onward::store::{End, ImportSchedule, MemoryStore, Prune, PutSchedule, Store};
use onward::{
    CatchUp, Code, Copied, Ctx, Failure, OnConflict, Onward, Overlap, RunId, RunState,
    ScheduleSpec, Timestamp, Workflow,
};

use crate::harness::Memory;

/// Two memory stores on one clock, to copy from and to.
async fn two() -> (Stage, Stage) {
    let from = Stage::open::<Memory>().await;
    let to = from.reference();
    (from, to)
}

fn onward(stage: &Stage) -> Onward {
    Onward::with_store(stage.store.clone())
}

async fn copy(from: &Stage, to: &Stage) -> Result<Copied, onward::Error> {
    onward(from).copy_to(&onward(to)).await
}

/// As `copy`, and does this after each batch, with the number of the pass.
async fn copy_while(
    from: &Stage,
    to: &Stage,
    meanwhile: impl FnMut(u32) + Send + 'static,
) -> Result<Copied, onward::Error> {
    let mut meanwhile = meanwhile;
    onward(from).copy_to(&onward(to)).on_progress(move |at| meanwhile(at.pass)).await
}

/// Starts a run at once: a memory store has done it before it is asked for the answer.
fn start(store: &Arc<dyn Store>) -> RunId {
    let run = new_run();
    let id = run.id;
    drop(store.start(vec![run]));
    id
}

#[tokio::test]
async fn what_was_copied_is_counted_and_compared() {
    let (from, to) = two().await;
    let worker = from.worker().await;
    let lease = from.running(&worker).await;
    from.record(lease, vec![done(1, "pay", 1), done(2, "mail", 2)]).await.unwrap();
    from.settle(lease, End::Completed(json(3))).await.unwrap();
    from.start(keyed("order-1", 1, OnConflict::Existing)).await;
    from.start(keyed("order-1", 1, OnConflict::Existing)).await;
    from.store.leave(worker.id).await.unwrap();
    to.start(new_run()).await;

    let copied = copy(&from, &to).await.unwrap();
    assert!(copied.verified);
    assert_eq!((copied.copied, copied.existing, copied.taken_back), (2, 0, 0));
    assert_eq!((copied.records, copied.keys, copied.duplicates), (2, 1, 1));
    assert_eq!(copied.runs, [(RunState::Queued, 1), (RunState::Completed, 1)].into());
    assert_eq!(to.snapshot().await.runs.len(), 3, "what the destination had is there");

    let again = copy(&from, &to).await.unwrap();
    assert_eq!((again.copied, again.existing, again.verified), (0, 2, true));
    assert_eq!(again.bytes, copied.bytes);
}

#[tokio::test]
async fn a_store_that_a_live_worker_serves_is_not_copied() {
    let (from, to) = two().await;
    from.start(new_run()).await;
    for (served, which) in [(&from, "source"), (&to, "destination")] {
        let worker = served.worker().await;
        let error = copy(&from, &to).await.unwrap_err();
        assert_eq!(error.code(), Code::StoreServed);
        let (text, until) = (error.to_string(), from.in_ms(LEASE_MS as u64));
        for part in [which, "\"stage\"", &worker.id.to_string(), &until.to_string()] {
            assert!(text.contains(part), "{part} in {text}");
        }
        served.store.leave(worker.id).await.unwrap();
    }
    assert_eq!(to.snapshot().await.runs, []);
    assert!(copy(&from, &to).await.unwrap().verified);
}

#[tokio::test]
async fn a_dead_workers_run_is_copied_as_a_sweep_leaves_it() {
    let (from, to) = two().await;
    let worker = from.worker().await;
    let lease = from.running(&worker).await;
    from.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    from.pass(LEASE_MS as u64 + 1);
    let copied = copy(&from, &to).await.unwrap();
    assert_eq!((copied.copied, copied.taken_back), (1, 1));
    assert_eq!(copied.presumed_dead.iter().map(|dead| dead.id).collect::<Vec<_>>(), [worker.id]);
    assert_eq!(copied.runs, [(RunState::Queued, 1)].into());
    let source = from.run(lease.run).await;
    assert_eq!((source.state, source.worker), (RunState::Running, Some(worker.id)), "untouched");

    // Later the copy is still the same, so that an interrupted one can go on.
    from.pass(3_600_000);
    assert_eq!(copy(&from, &to).await.unwrap().existing, 1);
    let claimed = to.worker().await.take_whole(lease.run).await;
    assert_eq!((claimed.lease.attempt, claimed.history.len()), (2, 1));
    assert_eq!(claimed.builds.get(&1).map(String::as_str), Some(BUILD));
}

#[tokio::test]
async fn a_run_that_is_started_during_the_copy_is_taken_along() {
    let (from, to) = two().await;
    from.start(new_run()).await;
    let store = from.store.clone();
    // After the first pass, and with an id that is older than all that was copied: only going
    // through all of them again finds it.
    let early = onward::store::NewRun { id: RunId::from_u128(7), ..new_run() };
    let id = early.id;
    let mut early = Some(early);
    let copied = copy_while(&from, &to, move |_| {
        if let Some(run) = early.take() {
            drop(store.start(vec![run]));
        }
    });
    let copied = copied.await.unwrap();
    assert_eq!((copied.copied, copied.verified), (2, true));
    assert_eq!(to.state(id).await, RunState::Queued);
}

#[tokio::test]
async fn callers_that_do_not_stop_are_noticed() {
    let (from, to) = two().await;
    from.start(new_run()).await;
    let store = from.store.clone();
    let passes = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&passes);
    let error = copy_while(&from, &to, move |pass| {
        if seen.swap(pass as usize, Ordering::SeqCst) != pass as usize {
            let early = RunId::from_u128(pass.into());
            drop(store.start(vec![onward::store::NewRun { id: early, ..new_run() }]));
        }
    });
    let error = error.await.unwrap_err();
    assert_eq!(error.code(), Code::StoreChanged);
    assert!(error.to_string().contains("still being started"), "{error}");
    assert_eq!(passes.load(Ordering::SeqCst), COPY_PASSES_MAX as usize);
}

#[tokio::test]
async fn a_run_that_changes_during_the_copy_is_noticed() {
    let (from, to) = two().await;
    let run = from.start(new_run()).await;
    let store = from.store.clone();
    let error = copy_while(&from, &to, move |_| drop(store.cancel(run))).await.unwrap_err();
    assert_eq!((error.code(), error.run()), (Code::StoreChanged, Some(run)));
    // It is not overwritten by a second copy either.
    let error = copy(&from, &to).await.unwrap_err();
    assert_eq!((error.code(), error.run()), (Code::CopyConflict, Some(run)));
    assert_eq!(to.state(run).await, RunState::Queued);
}

#[tokio::test]
async fn what_happens_behind_the_last_look_is_noticed_by_the_counts() {
    let (from, to) = two().await;
    let run = from.start(new_run()).await;
    let store = from.store.clone();
    let error = copy_while(&from, &to, move |pass| {
        if pass == 2 {
            drop(store.cancel(run));
        }
    });
    let error = error.await.unwrap_err();
    assert_eq!(error.code(), Code::StoreChanged);
    assert!(error.to_string().contains("0 queued runs, 1 were copied"), "{error}");

    let (from, to) = two().await;
    let run = from.start(new_run()).await;
    from.store.cancel(run).await.unwrap();
    let store = from.store.clone();
    let prune = Prune::older_than(Duration::ZERO);
    let error = copy_while(&from, &to, move |pass| {
        if pass == 2 {
            drop(store.prune(prune.clone()));
        }
    });
    assert_eq!(error.await.unwrap_err().code(), Code::StoreChanged);
}

#[tokio::test]
async fn a_worker_that_joins_during_the_copy_is_noticed() {
    for expired in [false, true] {
        let (from, to) = two().await;
        from.start(new_run()).await;
        let worker = Worker::new(from.store.clone(), BUILD);
        let (store, entry, clock) = (from.store.clone(), worker.entry(), from.clock.clone());
        let error = copy_while(&from, &to, move |pass| {
            drop(store.join(entry.clone()));
            if expired && pass == 2 {
                clock.advance(Duration::from_millis(LEASE_MS as u64 + 1));
            }
        });
        let error = error.await.unwrap_err();
        let code = if expired { Code::StoreChanged } else { Code::StoreServed };
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(&worker.id.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_key_that_another_run_has_is_refused_with_both_runs_named() {
    let (from, to) = two().await;
    let here = from.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let there = to.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let error = copy(&from, &to).await.unwrap_err();
    assert_eq!((error.code(), error.run()), (Code::CopyConflict, Some(here)));
    for part in [&here.to_string(), &there.to_string(), "\"order-1\"", "\"index-attachment\""] {
        assert!(error.to_string().contains(part), "{part} in {error}");
    }
    assert_eq!(to.snapshot().await.runs.len(), 1);
}

#[tokio::test]
async fn a_dry_run_counts_compares_and_writes_nothing() {
    let (from, to) = two().await;
    start(&from.store);
    let dry = onward(&from).copy_to(&onward(&to)).dry_run().await.unwrap();
    assert_eq!((dry.copied, dry.existing, dry.verified), (1, 0, false));
    assert_eq!(to.snapshot().await.runs, []);
    copy(&from, &to).await.unwrap();
    let dry = onward(&from).copy_to(&onward(&to)).dry_run().await.unwrap();
    assert_eq!((dry.copied, dry.existing), (0, 1));
    let run = to.snapshot().await.runs[0].id;
    to.store.cancel(run).await.unwrap();
    let error = onward(&from).copy_to(&onward(&to)).dry_run().await.unwrap_err();
    assert_eq!((error.code(), error.run()), (Code::CopyConflict, Some(run)));
}

#[tokio::test]
async fn a_key_that_expires_during_the_copy_makes_no_difference() {
    let (from, to) = two().await;
    let run = keyed("order-1", 1, OnConflict::Existing);
    let key = run.key.clone().map(|key| onward::store::NewKey { ttl_ms: Some(1_000), ..key });
    from.start(onward::store::NewRun { key, ..run }).await;
    let clock = from.clock.clone();
    let copied =
        copy_while(&from, &to, move |_| clock.advance(Duration::from_millis(1_000))).await.unwrap();
    assert!(copied.verified);
    assert_eq!(copied.keys, 0);
}

#[tokio::test]
async fn a_copy_whose_answer_was_lost_goes_on() {
    let (from, to) = two().await;
    from.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lossy = Arc::new(LossyStore::around(to.store.clone()));
    lossy.lose_next(1);
    let destination = Onward::with_store(lossy);
    let error = onward(&from).copy_to(&destination).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), (Code::StoreUnavailable, true));
    let copied = onward(&from).copy_to(&destination).await.unwrap();
    assert_eq!((copied.copied, copied.existing, copied.verified), (0, 1, true));
}

#[tokio::test]
async fn many_runs_go_in_batches() {
    let (from, to) = two().await;
    let count = 2 * COPY_BATCH_MAX + 1;
    for _ in 0..count {
        start(&from.store);
    }
    let batches = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&batches);
    let copied = copy_while(&from, &to, move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(copied.await.unwrap().copied, count as u64);
    assert_eq!(batches.load(Ordering::SeqCst), 2 * 3, "three to copy, three to compare");
}

#[tokio::test]
async fn a_run_behind_a_parked_one_is_let_go_in_the_destination() {
    let (from, to) = two().await;
    let worker = from.worker().await;
    let first = from.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(first).await;
    from.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    from.settle(lease, parked(0)).await.unwrap();
    let second = from.start(keyed("order-1", 2, OnConflict::Replace)).await;
    from.store.leave(worker.id).await.unwrap();
    copy(&from, &to).await.unwrap();
    let worker = to.worker().await;
    let lease = worker.take(first).await;
    to.settle(lease, End::Cancelled).await.unwrap();
    worker.take(second).await;
}

mod sqlite {
    use super::*;

    const REMIND: Workflow<u32, u32> = Workflow::named("remind");

    /// Steps that were executed, over all workers of a test.
    static STEPS: AtomicUsize = AtomicUsize::new(0);

    async fn remind(ctx: Ctx, n: u32) -> Result<u32, Failure> {
        let count = async |_| Ok::<_, Failure>(STEPS.fetch_add(1, Ordering::SeqCst));
        ctx.step("first", count).await?;
        ctx.sleep(Duration::from_secs(2)).await;
        ctx.step("second", count).await?;
        Ok(n + 1)
    }

    async fn open(folder: &tempfile::TempDir, name: &str) -> Onward {
        Onward::open(&format!("sqlite:{}", folder.path().join(name).display())).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn runs_that_sleep_go_on_in_the_copy_without_repeating_a_step() {
        let folder = tempfile::tempdir().unwrap();
        let (small, large) = (open(&folder, "small.db").await, open(&folder, "large.db").await);
        let worker = small.worker().serve(REMIND, remind).start().await.unwrap();
        let mut ids = Vec::new();
        for n in 0..20 {
            let run = small.start(REMIND, &n).key(format!("remind-{n}")).await.unwrap();
            ids.push(run.id());
        }
        for id in &ids {
            while small.run(*id).status().await.unwrap().state != RunState::Waiting {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let served = small.copy_to(&large).await.unwrap_err();
        assert_eq!(served.code(), Code::StoreServed);
        worker.shutdown().await.unwrap();
        let copied = small.copy_to(&large).await.unwrap();
        assert_eq!((copied.copied, copied.records, copied.keys), (20, 20, 20));
        assert!(copied.verified && copied.presumed_dead.is_empty(), "{copied:?}");

        let worker = large.worker().serve(REMIND, remind).start().await.unwrap();
        for n in 0..20 {
            let run = large.start(REMIND, &n).key(format!("remind-{n}")).await.unwrap();
            assert_eq!(run.id(), ids[n as usize], "the key is held by the same run");
            assert_eq!(run.result().await.unwrap(), n + 1);
        }
        worker.shutdown().await.unwrap();
        assert_eq!(STEPS.load(Ordering::SeqCst), 40);
    }

    const DECLINED: Workflow<u32, u32> = Workflow::named("declined");

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_failed_under_a_worker_is_the_same_in_every_kind_of_store() {
        let folder = tempfile::tempdir().unwrap();
        let memory = || Onward::with_store(Arc::new(MemoryStore::new()));
        let (first, second, third) = (memory(), open(&folder, "second.db").await, memory());
        let declined = async |ctx: Ctx, _: u32| {
            let retry = onward::Retry::fixed(Duration::from_millis(1)).tries(3);
            let busy = async |_| Err::<u32, _>(Failure::new("busy").code("busy").details(&[1, 2]));
            ctx.step("pay", busy).retry(retry).await
        };
        let worker = first.worker().serve(DECLINED, declined).start().await.unwrap();
        let run = first.start(DECLINED, &1).await.unwrap();
        assert_eq!(run.result().await.unwrap_err().code(), Code::RunFailed);
        worker.shutdown().await.unwrap();
        assert_eq!(first.copy_to(&second).await.unwrap().records, 3);
        assert!(second.copy_to(&third).await.unwrap().verified);
        assert!(first.copy_to(&third).await.unwrap().verified);
        let retried = third.run(run.id()).retry().await;
        assert!(retried.is_ok(), "{retried:?}");
        let history = third.run(run.id()).history().await.unwrap();
        assert!(history.iter().all(|record| record.voided_at.is_some()), "{history:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_cannot_be_read_is_named_and_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let (small, large) = (open(&folder, "small.db").await, open(&folder, "large.db").await);
        let id = small.start(REMIND, &1).await.unwrap().id();
        let conn = rusqlite::Connection::open(folder.path().join("small.db")).unwrap();
        conn.execute("update onward_runs set waits_for = '{'", []).unwrap();
        let error = small.copy_to(&large).await.unwrap_err();
        assert_eq!(error.code(), Code::StoreCorrupt);
        assert!(error.to_string().contains(&format!("run {id} cannot be read")), "{error}");
    }
}

mod postgres {
    use super::*;
    use crate::database::Schema;

    const INDEX: Workflow<u32, u32> = Workflow::named("index");

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_moves_to_postgres_and_back_and_nothing_is_lost() {
        let (folder, schema) = (tempfile::tempdir().unwrap(), Schema::new());
        let url = |name| format!("sqlite:{}", folder.path().join(name).display());
        let file = Onward::open(&url("small.db")).await.unwrap();
        let index = async |ctx: Ctx, n: u32| {
            let found = ctx.step("find", async |_| Ok::<_, Failure>(n + 1)).await?;
            if n % 10 == 3 {
                ctx.step("refuse", async |_| Err::<(), _>(Failure::fatal("no"))).await?;
            }
            ctx.sleep(Duration::from_secs(if n % 10 == 4 { 3_600 } else { 0 })).await;
            Ok(found)
        };
        let worker = file.worker().serve(INDEX, index).start().await.unwrap();
        let count = 2 * COPY_BATCH_MAX as u32 + 8;
        let started = file.start_many(INDEX, 0..count).key(|n| format!("item-{n}"));
        started.tag("import", "7").await.unwrap();
        let at_rest = |runs: &std::collections::BTreeMap<RunState, u64>| {
            let busy = [RunState::Queued, RunState::Running];
            busy.iter().all(|state| runs.get(state).is_none_or(|count| *count == 0))
        };
        while !at_rest(&file.stats().await.unwrap().runs) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.shutdown().await.unwrap();
        let nightly = nightly_from(file.store().clock().now());
        file.store().schedules().unwrap().put_schedule(nightly).await.unwrap();

        let server = Onward::open(&schema.url()).await.unwrap();
        let up = file.copy_to(&server).await.unwrap();
        assert!(up.verified && up.copied == u64::from(count), "{up:?}");
        assert_eq!(up.runs.len(), 3, "{up:?}");
        let back = Onward::open(&url("back.db")).await.unwrap();
        let down = server.copy_to(&back).await.unwrap();
        assert_eq!(down, up);
        assert_eq!(file.copy_to(&back).await.unwrap().existing, u64::from(count));
        let run = server.start(INDEX, &4).key("item-4").await.unwrap();
        assert_eq!(run.status().await.unwrap().state, RunState::Waiting);
        let schedules = file.schedules(None).await.unwrap().schedules;
        assert_eq!(schedules.len(), 1);
        for copy in [&server, &back] {
            assert_eq!(copy.schedules(None).await.unwrap().schedules, schedules);
        }
    }
}

fn nightly(stage: &Stage) -> PutSchedule {
    nightly_from(stage.now())
}

fn nightly_from(now: Timestamp) -> PutSchedule {
    PutSchedule {
        name: "nightly".to_owned(),
        spec: ScheduleSpec::Every { every_ms: 3_600_000, anchor: now },
        workflow: "report".to_owned(),
        input: json(1),
        queue: "default".to_owned(),
        lane: Some("acme".to_owned()),
        priority: 0,
        timeout_ms: None,
        tags: BTreeMap::new(),
        overlap: Overlap::Skip,
        catch_up: CatchUp::One,
        next_at: Some(Timestamp::from_millis(now.as_millis() + 3_600_000)),
    }
}

#[tokio::test]
async fn schedules_are_copied_and_compared() {
    let (from, to) = two().await;
    let (source, copy_of) = (from.store.schedules().unwrap(), to.store.schedules().unwrap());
    for number in 0..SCHEDULES_DUE_MAX + 3 {
        let put = PutSchedule { name: format!("s{number:03}"), ..nightly(&from) };
        source.put_schedule(put).await.unwrap();
    }
    source.pause_schedule("s001".to_owned()).await.unwrap();
    from.start(new_run()).await;
    from.pass(60_000);

    let dry = onward(&from).copy_to(&onward(&to)).dry_run().await.unwrap();
    assert_eq!(dry.schedules as usize, SCHEDULES_DUE_MAX + 3);
    assert!(to.snapshot().await.schedules.is_empty());
    // An earlier copy got as far as the first one.
    let schedule = source.get_schedule("s000".to_owned()).await.unwrap().unwrap();
    copy_of.import_schedule(ImportSchedule { schedule, dry_run: false }).await.unwrap();
    let copied = copy(&from, &to).await.unwrap();
    assert!(copied.verified);
    assert_eq!((copied.copied, copied.schedules), (1, dry.schedules));
    assert_eq!(to.snapshot().await.schedules, from.snapshot().await.schedules);
    assert_eq!(copy(&from, &to).await.unwrap().copied, 0, "again, and nothing is new");
}

#[tokio::test]
async fn a_schedule_that_differs_in_the_destination_is_refused() {
    let (from, to) = two().await;
    from.store.schedules().unwrap().put_schedule(nightly(&from)).await.unwrap();
    let other = PutSchedule { priority: 7, ..nightly(&to) };
    to.store.schedules().unwrap().put_schedule(other).await.unwrap();
    let before = to.snapshot().await;
    let error = copy(&from, &to).await.unwrap_err();
    assert_eq!(error.code(), Code::CopyConflict);
    assert!(error.to_string().contains("schedule \"nightly\""), "{error}");
    to.assert_unchanged(&before).await;
}

#[tokio::test]
async fn a_schedule_that_changes_or_goes_meanwhile_is_noticed() {
    for removed in [false, true] {
        let (from, to) = two().await;
        let source = from.store.clone();
        source.schedules().unwrap().put_schedule(nightly(&from)).await.unwrap();
        from.start(new_run()).await;
        // The first pass has copied it when the second begins.
        let refused = copy_while(&from, &to, move |pass| {
            let schedules = source.schedules().unwrap();
            match (pass, removed) {
                (2, true) => drop(schedules.remove_schedule("nightly".to_owned())),
                (2, false) => drop(schedules.pause_schedule("nightly".to_owned())),
                _ => {}
            }
        });
        let error = refused.await.unwrap_err();
        assert_eq!(error.code(), Code::StoreChanged, "{error}");
    }
}

#[tokio::test]
async fn queues_and_lanes_are_copied_and_compared() {
    let (from, to) = two().await;
    let (source, copy_of) = (from.store.queues().unwrap(), to.store.queues().unwrap());
    let limits = onward::QueueLimits { per_lane: Some(1), ..Default::default() };
    let put = |limits| onward::store::PutQueue { name: "ocr".to_owned(), limits };
    source.put_queue(put(limits)).await.unwrap();
    source.pause_queue("mail".to_owned()).await.unwrap();
    let laned = onward::store::NewRun {
        queue: "ocr".to_owned(),
        lane: Some("acme".to_owned()),
        ..new_run()
    };
    let run = from.start(laned).await;
    from.pass(60_000);

    let dry = onward(&from).copy_to(&onward(&to)).dry_run().await.unwrap();
    assert_eq!(dry.queues, 2);
    assert!(to.snapshot().await.queues.is_empty());
    let copied = copy(&from, &to).await.unwrap();
    assert!(copied.verified);
    assert_eq!((copied.copied, copied.queues), (1, 2));
    assert_eq!(to.snapshot().await.queues, from.snapshot().await.queues);
    assert_eq!(to.run(run).await.lane.as_deref(), Some("acme"));
    assert_eq!(copy(&from, &to).await.unwrap().copied, 0, "again, and nothing is new");

    let other = onward::QueueLimits { concurrency: Some(2), ..limits };
    copy_of.put_queue(put(other)).await.unwrap();
    let error = copy(&from, &to).await.unwrap_err();
    assert_eq!(error.code(), Code::CopyConflict);
    assert!(error.to_string().contains("queue \"ocr\""), "{error}");
}

#[tokio::test]
async fn a_queue_that_changes_or_goes_meanwhile_is_noticed() {
    for cleared in [false, true] {
        let (from, to) = two().await;
        let source = from.store.clone();
        source.queues().unwrap().pause_queue("ocr".to_owned()).await.unwrap();
        from.start(new_run()).await;
        // The first pass has copied it when the second begins.
        let refused = copy_while(&from, &to, move |pass| {
            let queues = source.queues().unwrap();
            let limits = onward::QueueLimits { concurrency: Some(1), ..Default::default() };
            let put = onward::store::PutQueue { name: "ocr".to_owned(), limits };
            match (pass, cleared) {
                (2, true) => drop(queues.clear_queue("ocr".to_owned())),
                (2, false) => drop(queues.put_queue(put)),
                _ => {}
            }
        });
        let error = refused.await.unwrap_err();
        assert_eq!(error.code(), Code::StoreChanged, "{error}");
    }
}
