//! Runs that go on as others, steered through the handle on the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Filter, Onward, Query, RunHandle, RunState, Workflow};

use crate::stores::{on_each_store, until_state};

const COUNT: Workflow<u32, u32> = Workflow::named("count");
const CHILD: Workflow<(), ()> = Workflow::named("child");

/// Goes on as others until nothing is left, and then waits for a word.
async fn count(ctx: Ctx, left: u32) -> Result<u32, Failure> {
    match left {
        0 => ctx.signal("word").await,
        _ => ctx.continue_as(COUNT, &(left - 1)),
    }
}

/// Waits until the last of the runs waits.
async fn until_last_waits(run: &RunHandle<u32>) {
    let waiting = async {
        loop {
            let last = run.status().await.unwrap();
            if last.state == RunState::Waiting && last.input.as_str() == "0" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
}

#[tokio::test]
async fn every_verb_through_the_first_handle_reaches_the_last_run() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().linger(Duration::ZERO).serve(COUNT, count);
        let worker = worker.start().await.unwrap();
        let run = onward.start(COUNT, &3).await.unwrap();
        until_last_waits(&run).await;
        let last = run.status().await.unwrap();
        let own = run.own_status().await.unwrap();
        assert_eq!((own.id, own.state), (run.id(), RunState::Completed));
        assert!(own.continued_as.is_some() && last.id != own.id);
        assert!(run.why().await.unwrap().to_string().contains("\"word\""));

        run.pause().await.unwrap();
        assert!(run.status().await.unwrap().paused_at.is_some());
        run.signal("word", &7).await.unwrap();
        run.resume().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        for refused in [run.pause().await, run.cancel().await, run.resume().await] {
            let refused = refused.unwrap_err();
            assert_eq!((refused.code(), refused.run()), (Code::RunFinished, Some(last.id)));
        }

        let run = onward.start(COUNT, &3).await.unwrap();
        until_last_waits(&run).await;
        run.cancel().await.unwrap();
        assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
        assert_eq!(run.status().await.unwrap().state, RunState::Cancelled);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_retry_through_the_first_handle_reaches_the_run_that_failed() {
    on_each_store(|onward: Onward| async move {
        let is_mended = Arc::new(AtomicBool::new(false));
        let of = Arc::clone(&is_mended);
        let worker = onward.worker().serve(COUNT, move |ctx: Ctx, left: u32| {
            let is_mended = Arc::clone(&of);
            async move {
                if left > 0 {
                    return ctx.continue_as(COUNT, &(left - 1));
                }
                let pay = ctx.step("pay", async |_| match is_mended.load(Ordering::SeqCst) {
                    true => Ok(7),
                    false => Err(Failure::fatal("no money")),
                });
                pay.await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(COUNT, &2).await.unwrap();
        assert_eq!(run.result().await.unwrap_err().code(), Code::RunFailed);
        is_mended.store(true, Ordering::SeqCst);
        run.retry().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        let refused = run.retry().await.unwrap_err();
        assert_eq!(refused.code(), Code::RunNotFailed);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_is_followed_however_often_it_went_on() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().serve(COUNT, count).start().await.unwrap();
        let run = onward.start(COUNT, &150).await.unwrap();
        until_last_waits(&run).await;
        run.signal("word", &7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_reaches_the_children_of_the_runs_before() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().lease(Duration::from_secs(60)).linger(Duration::ZERO);
        let worker = worker.serve(CHILD, async |ctx: Ctx, ()| ctx.signal::<()>("never").await);
        let worker = worker.serve(COUNT, async |ctx: Ctx, left: u32| {
            if left == 0 {
                return ctx.signal("word").await;
            }
            ctx.start(CHILD, &()).await?;
            ctx.continue_as(COUNT, &(left - 1))
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(COUNT, &3).await.unwrap();
        until_last_waits(&run).await;
        let filter = Filter { workflow: Some("child".to_owned()), ..Filter::default() };
        let children = onward.list(Query { filter, ..Query::default() }).await.unwrap().runs;
        assert_eq!(children.len(), 3);
        for child in &children {
            until_state(&onward.run(child.id), RunState::Waiting).await;
        }
        run.cancel().await.unwrap();
        for child in children {
            let child = onward.run(child.id);
            let ended = tokio::time::timeout(Duration::from_secs(20), child.ended()).await;
            assert_eq!(ended.unwrap().unwrap().state, RunState::Cancelled);
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

const DOUBLE: Workflow<u32, u32> = Workflow::named("double");

/// The end of a child that the first run did not wait for is not taken for that of the second's.
#[tokio::test]
async fn a_run_that_goes_on_is_given_the_result_of_its_own_child() {
    on_each_store(|onward: Onward| async move {
        let double = async |_: Ctx, n: u32| Ok::<_, Failure>(n * 2);
        let worker = onward.worker().serve(DOUBLE, double);
        let worker = worker.serve(COUNT, async |ctx: Ctx, left: u32| {
            if left == 0 {
                return ctx.start(DOUBLE, &50).result().await;
            }
            ctx.start(DOUBLE, &1).await?;
            ctx.signal::<()>("go").await?;
            ctx.continue_as(COUNT, &0)
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(COUNT, &1).await.unwrap();
        let filter = Filter { workflow: Some("double".to_owned()), ..Filter::default() };
        let query = Query { filter, ..Query::default() };
        let ended = async {
            while !onward
                .list(query.clone())
                .await
                .unwrap()
                .runs
                .iter()
                .any(|run| run.state.is_final())
            {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
        run.signal("go", &()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 100);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_goes_on_as_one_of_its_own_workflow_only() {
    const OTHER: Workflow<u32, u32> = Workflow::named("other");
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(COUNT, async |ctx: Ctx, n| ctx.continue_as(OTHER, &n));
    let worker = worker.start().await.unwrap();
    let run = onward.start(COUNT, &1).await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
    let error = result.expect("it does not go on").unwrap_err();
    let failure = error.failure().unwrap();
    assert!(failure.is(Code::InvalidOption.as_str()), "{failure}");
    assert!(failure.message.contains("\"count\"") && failure.message.contains("\"other\""));
    worker.shutdown().await.unwrap();
}
