//! Is this workflow safe to retry? The checker lets it die at every point, and says what went wrong.
//!
//! `cargo run -p onward --features testing --example retry_safe`
//!
//! In a project of yours this is a test: `assert!(report.is_safe(), "{report}")`. docs/testing.md has the
//! rest, docs/mistakes.md the classic mistakes.

use onward::testing::{Effects, retry_safe};
use onward::{Ctx, Failure, Workflow};

const ORDER: Workflow<u64, String> = Workflow::named("order");

/// The bank, as the workflow sees it; the real one sends requests, this one notes them.
#[derive(Clone)]
struct Bank {
    effects: Effects,
}

impl Bank {
    async fn charge(&self, key: Option<&str>, cents: u64) -> Result<String, Failure> {
        let effect = self.effects.note("charge").payload(&cents);
        match key {
            Some(key) => effect.key(key).await,
            None => effect.await,
        }
        Ok(format!("charged {cents} cents"))
    }
}

/// Wrong: the bank cannot know that a second call is the first one again.
async fn careless(ctx: Ctx, cents: u64, bank: Bank) -> Result<String, Failure> {
    ctx.step("charge", async |_| bank.charge(None, cents).await).await
}

/// Right: the step's id is the same over tries, crashes and machines.
async fn careful(ctx: Ctx, cents: u64, bank: Bank) -> Result<String, Failure> {
    ctx.step("charge", async |step| bank.charge(Some(step.id()), cents).await).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let wrong = retry_safe(
        ORDER,
        |effects| {
            let bank = Bank { effects };
            move |ctx, cents| careless(ctx, cents, bank.clone())
        },
        &500,
    );
    println!("{}", wrong.check().await);

    let right = retry_safe(
        ORDER,
        |effects| {
            let bank = Bank { effects };
            move |ctx, cents| careful(ctx, cents, bank.clone())
        },
        &500,
    );
    let report = right.check().await;
    println!("{report}");
    println!("safe: {}", report.is_safe());
}
