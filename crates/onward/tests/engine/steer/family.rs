//! What an operator does to a parent reaches its children.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Filter, Onward, Query, RunState, Workflow};

use crate::stores::{on_each_clocked_store, on_each_store, until_state};

const PARENT: Workflow<(), u32> = Workflow::named("parent");
const CHILD: Workflow<(), u32> = Workflow::named("child");

#[tokio::test]
async fn a_retry_of_a_parent_gives_its_child_a_fresh_start() {
    on_each_store(|onward: Onward| async move {
        let (mended, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (flag, counted) = (Arc::clone(&mended), Arc::clone(&tries));
        let child = move |ctx: Ctx, ()| {
            let (flag, counted) = (Arc::clone(&flag), Arc::clone(&counted));
            async move {
                ctx.step("prepare", async |_| Ok::<_, Failure>(0)).await?;
                ctx.step("ship", async |_| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    match flag.load(Ordering::SeqCst) {
                        true => Ok(7),
                        false => Err(Failure::fatal("no truck").code("no_truck")),
                    }
                })
                .await
            }
        };
        let worker = onward.worker().serve(CHILD, child).serve(PARENT, async |ctx: Ctx, ()| {
            ctx.step("order", async |_| Ok::<_, Failure>(0)).await?;
            ctx.start(CHILD, &()).result().await
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).await.unwrap();
        let error = run.result().await.unwrap_err();
        assert!(error.failure().unwrap().is("no_truck"), "{error}");
        let child = error.failure().unwrap().child.unwrap();

        // Not mended yet: it fails again, with a new try of the child.
        run.retry().await.unwrap();
        assert!(run.result().await.unwrap_err().failure().unwrap().is("no_truck"));
        assert_eq!(tries.load(Ordering::SeqCst), 2);
        mended.store(true, Ordering::SeqCst);
        run.retry().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        assert_eq!(tries.load(Ordering::SeqCst), 3);
        let child = onward.run(child).status().await.unwrap();
        assert_eq!(child.state, RunState::Completed, "it is the same child");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cancel_reaches_children_and_theirs_before_the_next_sweep() {
    on_each_store(|onward: Onward| async move {
        let child = async |ctx: Ctx, ()| ctx.signal::<u32>("never").await;
        let worker = onward.worker().lease(Duration::from_secs(60)).linger(Duration::ZERO);
        let worker = worker.serve(CHILD, child).serve(PARENT, async |ctx: Ctx, ()| {
            ctx.step("order", async |_| Ok::<_, Failure>(0)).await?;
            ctx.start(CHILD, &()).result().await
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        let filter = Filter { workflow: Some("child".to_owned()), ..Filter::default() };
        let child = onward.list(Query { filter, ..Query::default() }).await.unwrap().runs.remove(0);
        let child = onward.run(child.id);
        until_state(&child, RunState::Waiting).await;
        run.cancel().await.unwrap();
        assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
        let ended = tokio::time::timeout(Duration::from_secs(5), child.ended()).await;
        assert_eq!(ended.unwrap().unwrap().state, RunState::Cancelled);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Joins a child, which ends when it is told to, with a step that fails until it is mended.
async fn join(ctx: Ctx, is_mended: Arc<AtomicBool>) -> Result<u32, Failure> {
    let child = ctx.start(CHILD, &()).detached().result();
    let pay = ctx.step("pay", async |_| match is_mended.load(Ordering::SeqCst) {
        true => Ok(1),
        false => Err(Failure::fatal("no money").code("no_money")),
    });
    let (shipped, paid) = tokio::try_join!(child, pay)?;
    Ok(shipped + paid)
}

async fn until_child(onward: &Onward) -> onward::RunHandle<u32> {
    let filter = Filter { workflow: Some("child".to_owned()), ..Filter::default() };
    let query = Query { filter, ..Query::default() };
    let found = async {
        loop {
            if let Some(child) = onward.list(query.clone()).await.unwrap().runs.pop() {
                return onward.run(child.id).of_type();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.unwrap()
}

/// A child that ended while its parent was failed has told it so: the retried parent goes on with that.
#[tokio::test]
async fn a_retried_parent_hears_of_a_child_that_ended_while_it_was_failed() {
    on_each_store(|onward: Onward| async move {
        let is_mended = Arc::new(AtomicBool::new(false));
        let of = Arc::clone(&is_mended);
        let child = async |ctx: Ctx, ()| ctx.signal::<u32>("go").await;
        let worker = onward.worker().serve(CHILD, child);
        let worker = worker.serve(PARENT, move |ctx: Ctx, ()| join(ctx, Arc::clone(&of)));
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).await.unwrap();
        assert!(run.result().await.unwrap_err().failure().unwrap().is("no_money"));
        let child = until_child(&onward).await;
        child.signal("go", &7).await.unwrap();
        assert_eq!(child.result().await.unwrap(), 7);

        is_mended.store(true, Ordering::SeqCst);
        run.retry().await.unwrap();
        let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(result.expect("it does not wait for ever").unwrap(), 8);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A child whose sleep is counted from the record before it, whenever it is executed.
async fn naps(ctx: Ctx, time: Duration) -> Result<u32, Failure> {
    ctx.step("lie down", async |_| Ok::<_, Failure>(())).await?;
    ctx.sleep(time).await;
    Ok(7)
}

async fn until_napping(onward: &Onward) -> onward::RunHandle<u32> {
    let child = until_child(onward).await;
    let lies = async {
        while child.history().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), lies).await.unwrap();
    child
}

#[tokio::test]
async fn a_parent_out_of_time_hears_of_its_child_when_it_is_retried() {
    on_each_clocked_store(async |store, clock| {
        let onward = Onward::with_store(store);
        let child = async |ctx: Ctx, ()| naps(ctx, Duration::from_secs(500)).await;
        let worker = onward
            .worker()
            .serve(CHILD, child)
            .serve(PARENT, async |ctx: Ctx, ()| ctx.start(CHILD, &()).detached().result().await);
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).timeout(Duration::from_secs(200)).await.unwrap();
        let child = until_napping(&onward).await;
        clock.advance(Duration::from_secs(200));
        let error = run.result().await.unwrap_err();
        assert!(error.failure().unwrap().is(Code::DeadlineExceeded.as_str()), "{error}");
        clock.advance(Duration::from_secs(400));
        assert_eq!(child.result().await.unwrap(), 7);

        run.retry().await.unwrap();
        let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(result.expect("it does not wait for ever").unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A child has no more time than its parent: both go on when the parent is retried, and once is enough.
#[tokio::test]
async fn a_retry_of_a_parent_out_of_time_continues_its_child() {
    on_each_clocked_store(async |store, clock| {
        let onward = Onward::with_store(store);
        let child = async |ctx: Ctx, ()| naps(ctx, Duration::from_secs(300)).await;
        let worker = onward.worker().serve(CHILD, child);
        let worker =
            worker.serve(PARENT, async |ctx: Ctx, ()| ctx.start(CHILD, &()).result().await);
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).timeout(Duration::from_secs(200)).await.unwrap();
        let child = until_napping(&onward).await;
        clock.advance(Duration::from_secs(200));
        for error in [run.result().await, child.result().await] {
            let error = error.unwrap_err();
            assert!(error.failure().unwrap().is(Code::DeadlineExceeded.as_str()), "{error}");
        }
        run.retry().await.unwrap();
        clock.advance(Duration::from_secs(199));
        let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(result.expect("both go on").unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A detached child goes on when its parent is cancelled, and ends as it would have.
#[tokio::test]
async fn a_detached_child_goes_on_when_its_parent_is_cancelled() {
    on_each_store(|onward: Onward| async move {
        let child = async |ctx: Ctx, ()| ctx.signal::<u32>("go").await;
        let worker = onward.worker().linger(Duration::ZERO).serve(CHILD, child);
        let worker = worker.serve(PARENT, async |ctx: Ctx, ()| {
            let alone = ctx.start(CHILD, &()).detached();
            let beside = ctx.start(CHILD, &());
            let (alone, beside) = tokio::join!(alone.result(), beside.result());
            Ok::<_, Failure>(alone? + beside?)
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(PARENT, &()).await.unwrap();
        let filter = Filter { workflow: Some("child".to_owned()), ..Filter::default() };
        let query = Query { filter, ..Query::default() };
        let mut children = Vec::new();
        let both = async {
            while children.len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                children = onward.list(query.clone()).await.unwrap().runs;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), both).await.unwrap();
        let is_detached = |run: &onward::Run| run.parent.as_ref().unwrap().detached;
        let (alone, beside) = match is_detached(&children[0]) {
            true => (onward.run(children[0].id), onward.run(children[1].id)),
            false => (onward.run(children[1].id), onward.run(children[0].id)),
        };
        until_state(&alone, RunState::Waiting).await;
        run.cancel().await.unwrap();
        assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
        assert_eq!(beside.ended().await.unwrap().state, RunState::Cancelled);
        let found = alone.status().await.unwrap();
        assert_eq!((found.state, found.cancel_at), (RunState::Waiting, None));
        alone.signal("go", &7).await.unwrap();
        assert_eq!(alone.of_type::<u32>().result().await.unwrap(), 7);
        worker.shutdown().await.unwrap();
    })
    .await;
}
