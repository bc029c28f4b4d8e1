//! Ten thousand documents: a run for each, a hundred at a time, and their results in order.
//!
//! `cargo run -p onward --example fan_out`
//!
//! The run that fans out holds a hundred waits and the results, never ten thousand futures. Each
//! document is a run of its own: it has its own retries, may execute on any machine, and is not done
//! again when the others fail or the process dies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onward::{Ctx, Failure, Onward, Retry, RunState, Workflow};
use serde::{Deserialize, Serialize};

const INDEX_ALL: Workflow<u64, Summary> = Workflow::named("index-all");
const INDEX: Workflow<u64, u64> = Workflow::named("index-document");
const DOCUMENTS: u64 = 10_000;

#[derive(Debug, Serialize, Deserialize)]
struct Summary {
    words: u64,
    unreadable: Vec<u64>,
}

async fn index_all(ctx: Ctx, documents: u64) -> Result<Summary, Failure> {
    let each = |document| ctx.start(INDEX, &document).result();
    // `.results()` goes on after a failure; without it the first one ends the fan-out.
    let results = ctx.all(0..documents, 100, each).results().await;

    let mut summary = Summary { words: 0, unreadable: Vec::new() };
    for (document, result) in (0..).zip(results) {
        match result {
            Ok(words) => summary.words += words,
            Err(failure) if failure.is("unreadable") => summary.unreadable.push(document),
            Err(failure) => return Err(failure),
        }
    }
    Ok(summary)
}

async fn index(ctx: Ctx, document: u64) -> Result<u64, Failure> {
    let soon = Retry::fixed(Duration::from_millis(20)).tries(5);
    ctx.step("read and index", async |step| read_and_index(step.id(), document).await)
        .retry(soon)
        .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let onward =
        Onward::open(&format!("sqlite:{}", dir.path().join("onward.db").display())).await?;
    let worker = onward
        .worker()
        .serve(INDEX_ALL, index_all)
        .serve(INDEX, index)
        .concurrency(200)
        .start()
        .await?;

    let begin = Instant::now();
    let run = onward.start(INDEX_ALL, &DOCUMENTS).key("reindex-2026-03").await?;
    let mut progress = tokio::time::interval(Duration::from_millis(500));
    let summary = loop {
        tokio::select! {
            summary = run.result() => break summary?,
            _ = progress.tick() => {
                let runs = onward.stats().await?.runs;
                let count = |state| runs.get(&state).copied().unwrap_or_default();
                let done = count(RunState::Completed) + count(RunState::Failed);
                println!("{done:>6} of {DOCUMENTS} documents, {:.1?}", begin.elapsed());
            }
        }
    };
    println!(
        "{DOCUMENTS} documents, {} words, unreadable: {:?}",
        summary.words, summary.unreadable
    );
    println!("the service was called {} times", CALLS.load(Ordering::SeqCst));
    worker.shutdown().await?;
    Ok(())
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// A service that is overloaded now and then, and cannot read two of the documents.
async fn read_and_index(_key: &str, document: u64) -> Result<u64, Failure> {
    let call = CALLS.fetch_add(1, Ordering::SeqCst);
    match document {
        4_711 | 8_150 => Err(Failure::fatal("the file is damaged").code("unreadable")),
        _ if call % 500 == 499 => Err(Failure::new("503, try again")),
        _ => Ok(document % 100),
    }
}
