//! A webhook that is delivered three times and booked once, without any workflow.
//!
//! `cargo run -p onward --example once`
//!
//! `once` is an idempotency key around one piece of work. It needs no worker: the first caller does the
//! work, those who come meanwhile wait for it, and those who come later are given what came of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onward::{Code, Failure, Onward};

/// What the handler of the webhook calls.
async fn deliver(onward: &Onward, event: &str, cents: u64) -> Result<String, onward::Error> {
    onward
        .once(format!("webhook-{event}"))
        .fingerprint(&cents) // the same event with another sum is refused
        .ttl(Duration::from_secs(90 * 24 * 60 * 60)) // longer than anybody delivers again
        .run_with(async |held| book(held.id(), cents).await)
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?;

    // Two at the same time, as two servers behind a load balancer get them.
    let (one, other) =
        tokio::try_join!(deliver(&onward, "evt_1", 4_200), deliver(&onward, "evt_1", 4_200))?;
    println!("{one}; {other}");

    // Once more, an hour later.
    println!("{}", deliver(&onward, "evt_1", 4_200).await?);

    // And one that claims to be the same, and is not.
    match deliver(&onward, "evt_1", 9_900).await {
        Err(error) if error.code() == Code::KeyConflict => println!("refused: {error}"),
        other => return Err(format!("not refused: {other:?}").into()),
    }

    let duplicates = onward.key_duplicates("webhook-evt_1").await?;
    println!("booked {} times, came again {} times", booked(), duplicates.count);

    // A body that fails frees the key: the next delivery tries again.
    println!("evt_2: {:?}", deliver(&onward, "evt_2", 0).await.map_err(|error| error.code()));
    println!("evt_2 again: {:?}", deliver(&onward, "evt_2", 0).await.map_err(|error| error.code()));
    Ok(())
}

static BOOKED: AtomicU64 = AtomicU64::new(0);

fn booked() -> u64 {
    BOOKED.load(Ordering::SeqCst)
}

/// The ledger. The key is the same whoever books, so it can refuse a repeat after a crash too.
async fn book(key: &str, cents: u64) -> Result<String, Failure> {
    println!("→ booking {cents} cents under key {key:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    if cents == 0 {
        return Err(Failure::new("nothing to book"));
    }
    Ok(format!("booking {}", BOOKED.fetch_add(1, Ordering::SeqCst) + 1))
}
