//! How long the steps of a workflow take.

use std::time::Duration;

use onward::{Ctx, Failure, Retry, Workflow};
use serde_json::{Value, json};

use super::stage::Stage;

const WELCOME: Workflow<u32, ()> = Workflow::named("welcome");

/// A step that fails once of two tries, steps with a key and with an id, a sleep and a signal.
async fn welcome(ctx: Ctx, user: u32) -> Result<(), Failure> {
    let find = ctx.step("find", async |step| match step.try_number() {
        1 => Err(Failure::new("busy")),
        _ => Ok(()),
    });
    find.retry(Retry::fixed(Duration::from_millis(1)).tries(2)).await?;
    let mail = ctx.step("mail", async |_| Ok::<_, Failure>(()));
    mail.key(format!("welcome-{user}")).await?;
    ctx.step("save", async |_| Ok::<_, Failure>(())).id(user).await?;
    ctx.step("save", async |_| Ok::<_, Failure>(())).await?;
    ctx.step("save", async |_| Ok::<_, Failure>(())).await?;
    ctx.sleep(Duration::from_millis(1)).await;
    ctx.signal::<bool>("read").await?;
    Ok(())
}

#[tokio::test]
async fn steps_are_told_by_name_and_waits_are_left_out() {
    let stage = Stage::open().await;
    let worker = stage.onward.worker().serve(WELCOME, welcome).start().await.unwrap();
    for user in 0..3 {
        let run = stage.onward.start(WELCOME, &user).await.unwrap();
        run.signal("read", &true).await.unwrap();
        run.result().await.unwrap();
    }
    let steps = stage.get("/api/v1/workflows/welcome/steps").await.json();
    let row = |it: &Value| json!([it["step"], it["count"], it["failures"]]);
    let rows: Vec<_> = steps["items"].as_array().unwrap().iter().map(row).collect();
    assert_eq!(rows, [json!(["find", 6, 3]), json!(["mail", 3, 0]), json!(["save", 9, 0])]);
    worker.shutdown().await.unwrap();
    stage.stop().await;
}
