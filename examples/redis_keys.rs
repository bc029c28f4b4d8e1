//! Two programs with stores of their own, and one welcome mail: their keys are in a Redis that they share.
//!
//! `REDIS_URL=redis://127.0.0.1 cargo run -p onward --features redis --example redis_keys`
//!
//! A step with a key executes once over all runs that share a place for their keys. What Redis does not
//! promise is in docs/keys.md: it may forget a key, and then the mail is sent again, under the same id.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Ctx, Failure, Onward, RunId, Workflow};

/// A run is given the key of its mail.
const SIGN_UP: Workflow<String, String> = Workflow::named("sign-up");

async fn sign_up(ctx: Ctx, key: String) -> Result<String, Failure> {
    ctx.step("welcome mail", async |step| send(step.id()).await)
        .key(key.as_str())
        .ttl(Duration::from_secs(60 * 60))
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").or_else(|_| std::env::var("ONWARD_TEST_REDIS"));
    let url = url.map_err(|_| "set REDIS_URL to the address of a Redis, as redis://127.0.0.1")?;

    // The shop and the forum know nothing of each other's runs.
    let shop = Onward::open("memory:").keys(&url).await?;
    let forum = Onward::open("memory:").keys(&url).await?;
    let selling = shop.worker().serve(SIGN_UP, sign_up).start().await?;
    let talking = forum.worker().serve(SIGN_UP, sign_up).start().await?;

    // A program of yours would take "welcome-user-7". This one is to send again when it is run again.
    let key = format!("shared-welcome-{}", RunId::new());
    let (one, other) = tokio::join!(shop.start(SIGN_UP, &key), forum.start(SIGN_UP, &key));
    let (one, other) = (one?, other?);
    let (one, other) = tokio::try_join!(one.result(), other.result())?;
    println!("the shop: {one}");
    println!("the forum: {other}");
    println!("mails sent: {}", SENT.load(Ordering::SeqCst));

    // Outside any workflow the same key gives the same result.
    let again = shop.once(key.as_str()).run(async || send("never").await).await?;
    println!("once more: {again}");
    println!("mails sent: {}", SENT.load(Ordering::SeqCst));

    selling.shutdown().await?;
    talking.shutdown().await?;
    Ok(())
}

static SENT: AtomicU32 = AtomicU32::new(0);

/// The mail service. The id derives from the key, so whoever sends presents the same.
async fn send(id: &str) -> Result<String, Failure> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let number = SENT.fetch_add(1, Ordering::SeqCst) + 1;
    println!("→ mail {number} under {:?}", id.split('-').next().unwrap_or_default());
    Ok(format!("mail {number}"))
}
