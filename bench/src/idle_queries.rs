//! `idle_queries`: what a worker with nothing to do asks the server, in transactions a minute.
//!
//! Owns: how long it is watched. Never counts by itself: the server does, for the whole database,
//! so nobody else may use it.

use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Workflow};
use tokio_postgres::Client;

use crate::bench::{Bench, Fallible, Measured};
use crate::place::{Made, Place, connect};

const NOTHING: Workflow<(), ()> = Workflow::named("nothing");

const WATCHED: Duration = Duration::from_secs(60);

const WATCHED_QUICK: Duration = Duration::from_secs(20);

/// How long a worker has to come to rest, and the server to add up what its sessions did before.
const SETTLING: Duration = Duration::from_secs(11);

const COUNT: &str = "
    select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let Made::Schema { url, .. } = &place.made else {
        return Err("only a server counts queries".into());
    };
    let client = connect(url).await?;
    let onward = place.open().await?;
    let worker = onward.worker().serve(NOTHING, nothing).start().await?;
    tokio::time::sleep(SETTLING).await;
    let (begun, before) = (Instant::now(), count(&client).await?);
    tokio::time::sleep(if bench.quick { WATCHED_QUICK } else { WATCHED }).await;
    // Less the one that counted.
    let counted = count(&client).await? - before - 1;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    worker.shutdown().await?;
    Ok(Measured::new("idle_queries", counted as f64 / minutes, "per minute", "<= 30"))
}

async fn count(client: &Client) -> Fallible<i64> {
    Ok(client.query_one(COUNT, &[]).await?.try_get(0)?)
}

async fn nothing(_: Ctx, (): ()) -> Result<(), Failure> {
    Ok(())
}
