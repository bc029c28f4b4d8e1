//! Runs that runs start.

use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, RunState, Workflow};

use crate::stores::{on_each_store, until_state};

const DOUBLE: Workflow<u32, u32> = Workflow::named("double");
const SUM: Workflow<Vec<u32>, u32> = Workflow::named("sum");

async fn double(ctx: Ctx, number: u32) -> Result<u32, Failure> {
    ctx.step("double", async |_| match number {
        13 => Err(Failure::fatal("unlucky").code("unlucky")),
        _ => Ok(number * 2),
    })
    .await
}

async fn sum(ctx: Ctx, numbers: Vec<u32>) -> Result<u32, Failure> {
    let children = numbers.iter().map(|number| ctx.start(DOUBLE, number).result());
    let doubled = futures::future::try_join_all(children).await?;
    Ok(doubled.iter().sum())
}

#[tokio::test]
async fn children_give_their_results() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(DOUBLE, double).serve(SUM, sum).start().await.unwrap();
        let run = onward.start(SUM, &vec![1, 2, 3]).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 12);
        let runs = onward.list(onward::Query::default()).await.unwrap().runs;
        let children: Vec<_> = runs.iter().filter_map(|run| run.parent.as_ref()).collect();
        assert_eq!(children.len(), 3);
        assert!(children.iter().all(|parent| parent.run == run.id()));
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_childs_failure_arrives_with_its_id() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(DOUBLE, double).serve(SUM, sum).start().await.unwrap();
        let run = onward.start(SUM, &vec![13]).await.unwrap();
        let error = run.result().await.unwrap_err();
        let failure = error.failure().unwrap();
        assert!(failure.is("unlucky"), "{failure}");
        let child = onward.run(failure.child.unwrap()).status().await.unwrap();
        assert_eq!((child.workflow.as_str(), child.state), ("double", RunState::Failed));
        worker.shutdown().await.unwrap();
    })
    .await;
}

const NEST: Workflow<u32, u32> = Workflow::named("nest");

async fn nest(ctx: Ctx, depth: u32) -> Result<u32, Failure> {
    match depth {
        0 => Ok(0),
        _ => Ok(ctx.start(NEST, &(depth - 1)).result().await? + 1),
    }
}

/// Ten levels with one place: each level gives its place up while it waits.
#[tokio::test]
async fn nesting_deeper_than_the_places_of_the_worker_does_not_deadlock() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(NEST, nest).concurrency(1).start().await.unwrap();
        let run = onward.start(NEST, &10).await.unwrap();
        let result = tokio::time::timeout(Duration::from_secs(60), run.result()).await;
        assert_eq!(result.expect("it ends").unwrap(), 10);
        worker.shutdown().await.unwrap();
    })
    .await;
}

const FIRE: Workflow<u32, String> = Workflow::named("fire");

async fn fire(ctx: Ctx, number: u32) -> Result<String, Failure> {
    let child = ctx.start(DOUBLE, &number).await?;
    let id = child.id();
    let doubled = child.result().await?;
    Ok(format!("{id} {doubled}"))
}

#[tokio::test]
async fn an_awaited_start_gives_the_childs_id_before_its_end() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(DOUBLE, double).serve(FIRE, fire).start().await.unwrap();
        let run = onward.start(FIRE, &4).await.unwrap();
        let result = run.result().await.unwrap();
        let (id, doubled) = result.split_once(' ').unwrap();
        assert_eq!(doubled, "8");
        let child = onward.run(id.parse().unwrap()).status().await.unwrap();
        assert_eq!(child.state, RunState::Completed);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A child of a workflow that nobody serves yet: the parent waits, and costs nothing but a row.
#[tokio::test]
async fn a_parent_waits_for_a_child_that_nobody_serves_yet() {
    on_each_store(async |onward| {
        let linger = Duration::from_millis(1);
        let worker = onward.worker().serve(SUM, sum).linger(linger).start().await.unwrap();
        let run = onward.start(SUM, &vec![5]).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        let why = run.why().await.unwrap().to_string();
        assert!(why.starts_with("It waits until its child"), "{why}");
        let other = onward.worker().serve(DOUBLE, double).start().await.unwrap();
        assert_eq!(run.result().await.unwrap(), 10);
        worker.shutdown().await.unwrap();
        other.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_child_is_a_failure_of_its_own_code() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(SUM, sum).start().await.unwrap();
    let run = onward.start(SUM, &vec![5]).await.unwrap();
    let child = loop {
        let runs = onward.list(onward::Query::default()).await.unwrap().runs;
        if let Some(child) = runs.into_iter().find(|run| run.parent.is_some()) {
            break child;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    onward.run(child.id).cancel().await.unwrap();
    let error = run.result().await.unwrap_err();
    let failure = error.failure().unwrap();
    assert!(failure.is(Code::RunCancelled.as_str()), "{failure}");
    assert_eq!(failure.child, Some(child.id));
    worker.shutdown().await.unwrap();
}
