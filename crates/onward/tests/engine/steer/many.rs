//! One change to many runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use onward::{Code, Ctx, Failure, Filter, Onward, RunState, Workflow};

use crate::stores::on_each_store;

const WORK: Workflow<u64, u64> = Workflow::named("work");
const OTHER: Workflow<u64, u64> = Workflow::named("other");

fn all_of(workflow: &str) -> Filter {
    Filter { workflow: Some(workflow.to_owned()), ..Filter::default() }
}

async fn counts(onward: &Onward) -> BTreeMap<RunState, u64> {
    onward.stats().await.unwrap().runs
}

#[tokio::test]
async fn every_matching_run_is_changed_once_and_the_rest_is_told_why_not() {
    on_each_store(|onward: Onward| async move {
        onward.start_many(WORK, 0..230).await.unwrap();
        onward.start_many(OTHER, 0..5).await.unwrap();
        let cancelled = onward.start(WORK, &999).await.unwrap();
        cancelled.cancel().await.unwrap();

        let would = onward.matching(all_of("work")).pause().dry_run().await.unwrap();
        assert_eq!((would.matched, would.done, would.failed), (231, 230, 0));
        assert_eq!(would.skipped, [("run_finished", 1)].into());
        assert_eq!(onward.matching(all_of("work")).resume().dry_run().await.unwrap().done, 0);

        let seen = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        let paused = onward.matching(all_of("work")).pause().on_progress(move |so_far| {
            told.lock().unwrap().push(so_far.matched);
        });
        assert_eq!(paused.await.unwrap().done, 230);
        assert_eq!(*seen.lock().unwrap(), [100, 200, 231], "in bounded batches");
        let again = onward.matching(all_of("work")).pause().await.unwrap();
        assert_eq!((again.done, again.skipped["already"]), (0, 230));

        let some = onward.matching(all_of("work")).only(|run| run.input.as_str().len() == 1);
        assert_eq!(some.resume().await.unwrap().done, 10);
        let rest = onward.matching(all_of("work")).cancel().await.unwrap();
        assert_eq!((rest.done, rest.skipped["already"]), (230, 1));
        assert_eq!(counts(&onward).await[&RunState::Queued], 5, "others are left alone");
    })
    .await;
}

#[tokio::test]
async fn failed_runs_are_retried_by_a_filter() {
    on_each_store(|onward: Onward| async move {
        let mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flag = Arc::clone(&mended);
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, n: u64| {
            let flag = Arc::clone(&flag);
            async move {
                ctx.step("work", async |_| match flag.load(std::sync::atomic::Ordering::SeqCst) {
                    true => Ok(n),
                    false => Err(Failure::fatal("broken")),
                })
                .await
            }
        });
        let worker = worker.start().await.unwrap();
        let mut runs = Vec::new();
        for n in 0..20 {
            runs.push(onward.start(WORK, &n).tag("import", "7").await.unwrap());
        }
        for run in &runs {
            assert_eq!(run.result().await.unwrap_err().code(), Code::RunFailed);
        }
        mended.store(true, std::sync::atomic::Ordering::SeqCst);
        let tags = [("import".to_owned(), "7".to_owned())].into();
        let filter = Filter { tags, states: vec![RunState::Failed], ..Filter::default() };
        let retried = onward.matching(filter.clone()).retry().await.unwrap();
        assert_eq!((retried.matched, retried.done), (20, 20));
        for run in &runs {
            run.result().await.unwrap();
        }
        assert_eq!(onward.matching(filter).retry().await.unwrap().matched, 0);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// What ends, or is asked to end, between the look and the change is passed over with why, and is no
/// failure: nothing is wrong with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_end_meanwhile_are_passed_over() {
    on_each_store(|onward: Onward| async move {
        for verb in ["pause", "resume", "cancel"] {
            let run = onward.start(OTHER, &1).await.unwrap();
            if verb == "resume" {
                run.pause().await.unwrap();
            }
            let steered = steered_while(&onward, verb, move |ends| {
                if ends.id == run.id() {
                    at_once(run.cancel()).unwrap();
                }
                ends.id == run.id()
            });
            let steered = steered.await;
            assert_eq!(steered.failed, 0, "{verb}: {steered:?}");
            // Who wants to cancel a run that was cancelled meanwhile has what it wants.
            if verb != "cancel" {
                assert_eq!(steered.skipped, [("run_finished", 1)].into(), "{verb}");
            }
        }
    })
    .await;
}

async fn steered_while(
    onward: &Onward,
    verb: &str,
    only: impl Fn(&onward::Run) -> bool + Send + Sync + 'static,
) -> onward::Steered {
    let matching = onward.matching(all_of("other")).only(only);
    let steered = match verb {
        "pause" => matching.pause(),
        "resume" => matching.resume(),
        _ => matching.cancel(),
    };
    steered.await.unwrap()
}

/// A run that its holder is about to end is passed over as one that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_that_are_asked_to_end_meanwhile_are_passed_over() {
    on_each_store(|onward: Onward| async move {
        let (held, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begun, let_go) = (Arc::clone(&held), Arc::clone(&release));
        let worker = onward.worker().serve(OTHER, move |ctx: Ctx, n: u64| {
            let (begun, let_go) = (Arc::clone(&begun), Arc::clone(&let_go));
            async move {
                let hold = ctx.step("hold", async |_| {
                    begun.notify_one();
                    let_go.notified().await;
                    Ok::<_, Failure>(n)
                });
                hold.await
            }
        });
        let worker = worker.cancel_grace(Duration::from_secs(60)).start().await.unwrap();
        let run = onward.start(OTHER, &1).await.unwrap();
        held.notified().await;
        let asked = run.clone();
        let steered = steered_while(&onward, "pause", move |_| {
            at_once(asked.cancel()).unwrap();
            true
        });
        let steered = steered.await;
        assert_eq!((steered.done, steered.failed), (0, 0), "{steered:?}");
        assert_eq!(steered.skipped, [("run_finished", 1)].into());
        release.notify_one();
        run.ended().await.unwrap();
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Waits where nothing can be awaited.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

#[tokio::test]
async fn a_pace_is_kept() {
    let onward = Onward::open("memory:").await.unwrap();
    onward.start_many(WORK, 0..30).await.unwrap();
    let began = Instant::now();
    onward.matching(all_of("work")).pause().pace(100).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(280), "{:?}", began.elapsed());
}

#[tokio::test]
async fn named_runs_are_changed_and_what_does_not_allow_it_is_counted() {
    on_each_store(|onward: Onward| async move {
        let ended = onward.start(WORK, &1).await.unwrap();
        ended.cancel().await.unwrap();
        let open = onward.start(WORK, &1).await.unwrap();
        let nowhere = onward::RunId::new();
        let ids = || vec![ended.id(), open.id(), nowhere];
        let would = onward.these(ids()).delete().dry_run().await.unwrap();
        assert_eq!((would.matched, would.done), (3, 3), "whether they allow it is not looked at");
        let deleted = onward.these(ids()).delete().await.unwrap();
        // One that is not there is gone, as was asked for.
        assert_eq!((deleted.done, deleted.skipped["run_not_ended"]), (2, 1), "{deleted:?}");
        assert_eq!(ended.status().await.unwrap_err().code(), Code::RunNotFound);
        assert_eq!(open.status().await.unwrap().state, RunState::Queued);
        let paused = onward.these(ids()).pause().await.unwrap();
        assert_eq!((paused.done, paused.skipped["run_not_found"]), (1, 2), "{paused:?}");
    })
    .await;
}

#[tokio::test]
async fn only_runs_that_have_ended_are_deleted_over_a_filter() {
    on_each_store(|onward: Onward| async move {
        for ends in [true, true, false] {
            let run = onward.start(WORK, &1).await.unwrap();
            if ends {
                run.cancel().await.unwrap();
            }
        }
        let all = || all_of("work");
        let would = onward.matching(all()).delete().dry_run().await.unwrap();
        assert_eq!((would.done, would.skipped["run_not_ended"]), (2, 1));
        let deleted = onward.matching(all()).delete().await.unwrap();
        assert_eq!((deleted.done, deleted.skipped["run_not_ended"]), (2, 1));
        assert_eq!(onward.matching(all()).delete().await.unwrap().matched, 1);
    })
    .await;
}
