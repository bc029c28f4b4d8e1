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
