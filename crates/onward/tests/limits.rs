//! The limits of a run's history, reached for real.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::{Arc, Mutex};

use futures::future::try_join_all;
use onward::limits::{HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, PAYLOAD_BYTES_MAX};
use onward::{Code, Ctx, Failure, Onward, RunState, Workflow};

const COUNT: Workflow<usize, usize> = Workflow::named("count");

/// What was logged, to look for a warning.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes steps in batches, so that they share commits.
async fn count(ctx: Ctx, steps: usize) -> Result<usize, Failure> {
    let mut left = steps;
    while left > 0 {
        let batch = left.min(500);
        let taken = (0..batch).map(|_| ctx.step("count", async |_| Ok::<_, Failure>(())));
        try_join_all(taken).await?;
        left -= batch;
    }
    Ok(steps)
}

#[tokio::test]
async fn a_history_is_full_at_its_limit_and_warns_before() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || written.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    let onward = Onward::open(&url).await.unwrap();
    let worker = onward.worker().serve(COUNT, count).start().await.unwrap();

    let fits = onward.start(COUNT, &HISTORY_RECORDS_MAX).await.unwrap();
    assert_eq!(fits.result().await.unwrap(), HISTORY_RECORDS_MAX);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("80 % of its limit"), "{text}");

    let over = onward.start(COUNT, &(HISTORY_RECORDS_MAX + 1)).await.unwrap();
    let error = over.result().await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, Code::HistoryFull.as_str());
    assert_eq!(over.history().await.unwrap().len(), HISTORY_RECORDS_MAX);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_history_is_full_by_bytes() {
    const FILL: Workflow<(), usize> = Workflow::named("fill");
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(FILL, async |ctx: Ctx, ()| {
        for _ in 0..=HISTORY_BYTES_MAX / (PAYLOAD_BYTES_MAX - 2) {
            let large = "x".repeat(PAYLOAD_BYTES_MAX - 2);
            ctx.step("fill", async |_| Ok::<_, Failure>(large.clone())).await?;
        }
        ctx.step("one more", async |_| Ok::<_, Failure>(1)).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(FILL, &()).await.unwrap();
    let ended = run.ended().await.unwrap();
    assert_eq!(ended.state, RunState::Failed);
    assert_eq!(ended.failure.unwrap().code, Code::HistoryFull.as_str());
    worker.shutdown().await.unwrap();
}
