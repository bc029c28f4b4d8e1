//! `idle_queries`: what a worker with nothing to do asks the server, in statements a minute.
//!
//! Owns: how long it is watched. Counts what the worker sends and not what the server did: a server
//! adds the transactions of its own vacuum, which are more the more was written before.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Workflow};

use crate::bench::{Bench, Fallible, Measured};
use crate::place::{Made, Place};
use crate::relay::Relay;

const NOTHING: Workflow<(), ()> = Workflow::named("nothing");

const WATCHED: Duration = Duration::from_secs(60);

const WATCHED_QUICK: Duration = Duration::from_secs(20);

/// How long a worker has to come to rest: its first lease, after which it may judge others.
const SETTLING: Duration = Duration::from_secs(11);

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let Made::Schema { .. } = &place.made else {
        return Err("only a server is asked".into());
    };
    let relay = Relay::to(place.url()).await?;
    let onward = Onward::open(&relay.url).await?;
    let worker = onward.worker().serve(NOTHING, nothing).start().await?;
    tokio::time::sleep(SETTLING).await;
    let (begun, before) = (Instant::now(), relay.asked());
    tokio::time::sleep(if bench.quick { WATCHED_QUICK } else { WATCHED }).await;
    let asked = relay.asked() - before;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    worker.shutdown().await?;
    Ok(Measured::new(asked as f64 / minutes, "per minute", "<= 30"))
}

async fn nothing(_: Ctx, (): ()) -> Result<(), Failure> {
    Ok(())
}
