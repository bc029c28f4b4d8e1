//! The workflow: charge, then ship. Each step is recorded before the next begins.

use std::time::Duration;

use onward::{Ctx, Failure, Retry, Workflow};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: u64,
    pub cents: u64,
}

pub const ORDER: Workflow<Order, String> = Workflow::named("order");

pub async fn handle(ctx: Ctx, order: Order) -> Result<String, Failure> {
    let receipt = ctx
        .step("charge", async |step| charge(step.id(), order.cents).await)
        .retry(Retry::exponential(Duration::from_millis(200)).tries(5))
        .timeout(Duration::from_secs(30))
        .await?;
    ctx.step("ship", async |step| ship(step.id(), &receipt).await).await
}

/// Stands for a call over the network. It hands the step's id on as the idempotency key, which is
/// the same after every crash and on every machine.
async fn charge(key: &str, cents: u64) -> Result<String, std::io::Error> {
    println!("charging {cents} cents ({key})");
    Ok(format!("receipt for {cents} cents"))
}

async fn ship(key: &str, receipt: &str) -> Result<String, std::io::Error> {
    println!("sending the parcel ({key})");
    Ok(format!("on its way, with a {receipt}"))
}

#[cfg(test)]
mod tests {
    use onward::testing::TestOnward;

    use super::*;

    #[tokio::test]
    async fn an_order_is_charged_and_shipped() -> Result<(), onward::Error> {
        let onward = TestOnward::new().await?;
        onward.worker().serve(ORDER, handle).start().await?;
        let run = onward.start(ORDER, &Order { id: 1, cents: 100 }).await?;
        assert_eq!(run.result().await?, "on its way, with a receipt for 100 cents");
        Ok(())
    }
}
