//! Changed code: which branch a run takes.

use std::time::Duration;

use onward::{Ctx, Failure, RunState, Workflow};

use crate::stores::{on_each_store, until_state};

const PAY: Workflow<(), String> = Workflow::named("pay");

async fn old(ctx: Ctx, (): ()) -> Result<String, Failure> {
    ctx.step("charge", async |_| Ok::<_, Failure>("old".to_owned())).await?;
    ctx.signal::<String>("go").await
}

async fn new(ctx: Ctx, (): ()) -> Result<String, Failure> {
    let version = ctx.version("charge anew", 1..=2).await?;
    let name = if version == 1 { "charge" } else { "charge anew" };
    let charged = ctx.step(name, async |_| Ok::<_, Failure>("new".to_owned())).await?;
    let went = ctx.signal::<String>("go").await?;
    Ok(format!("{charged} {version} {went}"))
}

/// A run that was past the change keeps to its old branch; a new run takes the new one, and both
/// stay with it when they are executed again.
#[tokio::test]
async fn a_run_stays_with_the_version_that_it_began_with() {
    on_each_store(async |onward| {
        let linger = Duration::from_millis(1);
        let first = onward.worker().build("v1").serve(PAY, old).linger(linger);
        let first = first.start().await.unwrap();
        let before = onward.start(PAY, &()).await.unwrap();
        until_state(&before, RunState::Waiting).await;
        first.shutdown().await.unwrap();

        let second = onward.worker().build("v2").serve(PAY, new).linger(linger);
        let second = second.start().await.unwrap();
        let after = onward.start(PAY, &()).await.unwrap();
        until_state(&after, RunState::Waiting).await;
        before.signal("go", "on").await.unwrap();
        after.signal("go", "on").await.unwrap();
        assert_eq!(before.result().await.unwrap(), "old 1 on");
        assert_eq!(after.result().await.unwrap(), "new 2 on");
        second.shutdown().await.unwrap();
    })
    .await;
}

const TALK: Workflow<(), String> = Workflow::named("talk");

/// A run whose only records are signals was past the change all the same.
#[tokio::test]
async fn a_run_that_took_a_signal_was_past_what_comes_before_it() {
    let before = async |ctx: Ctx, (): ()| {
        let first = ctx.signal::<String>("first").await?;
        Ok(first + &ctx.signal::<String>("second").await?)
    };
    let after = async |ctx: Ctx, (): ()| {
        let version = ctx.version("what is said", 1..=2).await?;
        let first = ctx.signal::<String>("first").await?;
        let second = ctx.signal::<String>("second").await?;
        Ok(format!("{version}{first}{second}"))
    };
    on_each_store(async |onward| {
        let linger = Duration::from_millis(1);
        let worker = onward.worker().build("v1").serve(TALK, before).linger(linger);
        let worker = worker.start().await.unwrap();
        let old = onward.start(TALK, &()).await.unwrap();
        old.signal("first", "a").await.unwrap();
        while old.history().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        worker.shutdown().await.unwrap();

        let worker = onward.worker().build("v2").serve(TALK, after).linger(linger);
        let worker = worker.start().await.unwrap();
        let new = onward.start(TALK, &()).await.unwrap();
        new.signal("first", "c").await.unwrap();
        for run in [&old, &new] {
            run.signal("second", "b").await.unwrap();
        }
        assert_eq!(old.result().await.unwrap(), "1ab");
        assert_eq!(new.result().await.unwrap(), "2cb");
        worker.shutdown().await.unwrap();
    })
    .await;
}
