//! The victim: serves the workflows on a SQLite file until it is done, or is killed.
//!
//! `onward-crash DB EFFECTS GENERATION LEASE_MS [ROUND RUNS]`: with a round it starts that round's
//! runs by their keys, again at every start, and exits with 0 when all have ended; without one it
//! serves what others start.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use onward_crash::bank;
use onward_crash::effect::Pen;
use onward_crash::flow::{self, Scene};
use onward_crash::form::Form;
use onward_crash::saga::{SAGA, saga};
use tokio::task::JoinSet;

/// Runs at once: fewer than a round has, so that some are queued and claimed.
const CONCURRENCY: usize = 8;

struct Arguments {
    database: String,
    effects: PathBuf,
    generation: u32,
    lease: Duration,
    round: Option<(u32, u32)>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments = arguments()?;
    let scene = Scene {
        pen: Pen::open(&arguments.effects, arguments.generation)?,
        gate: arguments.effects.with_extension("gate"),
    };
    let url = format!("sqlite:{}", arguments.database);
    let onward = Form::from_environment().open(&url).await?;
    let mut db = bank::open(arguments.database.as_ref())?;
    let worker = flow::serve(onward.worker(), &scene)
        .serve(SAGA, saga(&scene, arguments.database.clone().into()))
        .concurrency(CONCURRENCY)
        .lease(arguments.lease)
        .linger(flow::LINGER)
        .start()
        .await?;
    let Some((round, runs)) = arguments.round else {
        return std::future::pending().await;
    };
    let (mut handles, mut sending) = (Vec::new(), JoinSet::new());
    for (workflow, input) in flow::round(round, runs) {
        // A second start, whose key is the order's, only gives the handle.
        if workflow.name() == flow::TRANSFER.name() {
            bank::order(&onward, &mut db, &input)?;
        }
        let is_mailbox = workflow.name() == flow::MAILBOX.name();
        let handle = flow::start(&onward, workflow, &input).await?;
        if is_mailbox {
            let handle = handle.clone();
            sending.spawn(async move { flow::send_letters(&handle).await });
        }
        handles.push(handle);
    }
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    for handle in handles {
        handle.ended().await?;
    }
    worker.shutdown().await?;
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [database, effects, generation, lease_ms, rest @ ..] = given.as_slice() else {
        return Err("usage: onward-crash DB EFFECTS GENERATION LEASE_MS [ROUND RUNS]".into());
    };
    let round = match rest {
        [round, runs] => Some((round.parse()?, runs.parse()?)),
        _ => None,
    };
    Ok(Arguments {
        database: database.clone(),
        effects: effects.into(),
        generation: generation.parse()?,
        lease: Duration::from_millis(lease_ms.parse()?),
        round,
    })
}
