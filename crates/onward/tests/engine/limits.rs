//! Limits that are reached for real: of a run's history, and of a poll.

mod edges;

use futures::future::try_join_all;
use onward::conformance::stage::new_run;
use onward::limits::{
    BLOCKING_POLL_WARN, CLAIM_BYTES_MAX, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, PAYLOAD_BYTES_MAX,
    RESTLESS_POLLS_MAX,
};
use onward::store::{Claim, ClaimMode, NewRun, NewWorker};
use onward::{Code, Ctx, Failure, Json, Onward, RunState, WorkerId, Workflow};

use crate::listener::Listener;
use crate::stores::on_each_store;

const COUNT: Workflow<usize, usize> = Workflow::named("count");

#[tokio::test]
async fn a_poll_that_holds_its_thread_is_named() {
    const BLOCK: Workflow<(), ()> = Workflow::named("block");
    let listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(BLOCK, async |_: Ctx, ()| {
        std::thread::sleep(BLOCKING_POLL_WARN * 2);
        Ok(())
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(BLOCK, &()).await.unwrap();
    run.result().await.unwrap();
    assert!(listener.log_of(run.id()).contains("held its thread"), "{}", listener.log_of(run.id()));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_function_that_never_rests_is_named() {
    const SPIN: Workflow<(), ()> = Workflow::named("spin");
    let listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(SPIN, async |_: Ctx, ()| {
        let mut left = RESTLESS_POLLS_MAX + 1;
        std::future::poll_fn(|cx| {
            left -= 1;
            cx.waker().wake_by_ref();
            if left == 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        Ok(())
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(SPIN, &()).await.unwrap();
    run.result().await.unwrap();
    assert!(
        listener.log_of(run.id()).contains("wakes itself again and again"),
        "{}",
        listener.log_of(run.id())
    );
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_whose_input_does_not_fit_is_named() {
    const READ: Workflow<u32, ()> = Workflow::named("read");
    const SENT: Workflow<String, ()> = Workflow::named("read");
    let listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(READ, async |_: Ctx, _: u32| Ok(())).start().await.unwrap();
    let run = onward.start(SENT, &"seven".to_owned()).await.unwrap();
    let stuck = async {
        while run.status().await.unwrap().state != RunState::Waiting {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), stuck).await.unwrap();
    assert!(
        listener.log_of(run.id()).contains("the run waits, stuck"),
        "{}",
        listener.log_of(run.id())
    );
    worker.shutdown().await.unwrap();
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
    let listener = Listener::new();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    let onward = Onward::open(&url).await.unwrap();
    let worker = onward.worker().serve(COUNT, count).start().await.unwrap();

    let fits = onward.start(COUNT, &HISTORY_RECORDS_MAX).await.unwrap();
    assert_eq!(fits.result().await.unwrap(), HISTORY_RECORDS_MAX);
    assert!(
        listener.log_of(fits.id()).contains("80 % of its limit"),
        "{}",
        listener.log_of(fits.id())
    );

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

/// Fails where only histories count: a claim of large inputs, or of a run with large signals, took as much
/// memory as there was.
#[tokio::test]
async fn a_claim_is_bounded_in_bytes_of_signals_and_inputs_too() {
    const LARGE: Workflow<String, ()> = Workflow::named("large");
    on_each_store(async |onward| {
        let large = "x".repeat(PAYLOAD_BYTES_MAX - 100);
        let first = onward.start(LARGE, &String::new()).priority(1).await.unwrap();
        for _ in 0..4 {
            first.signal("go", &large).await.unwrap();
        }
        let runs = 34;
        // Made of JSON once: it is what takes longest.
        let input = Json::of(&large).unwrap();
        for _ in 0..runs {
            let run = NewRun {
                workflow: "large".to_owned(),
                queue: "default".to_owned(),
                input: input.clone(),
                ..new_run()
            };
            onward.store().start(vec![run]).await.unwrap().remove(0).unwrap();
        }
        let worker = NewWorker {
            id: WorkerId::new(),
            build: "b".to_owned(),
            place: "here".to_owned(),
            queues: vec!["default".to_owned()],
            workflows: vec!["large".to_owned()],
            lease_ms: 60_000,
            concurrency: 100,
        };
        onward.store().join(worker.clone()).await.unwrap();
        let claim = async |ticket| {
            let (queues, workflows) = (worker.queues.clone(), worker.workflows.clone());
            let (build, mode) = (worker.build.clone(), ClaimMode::Ordinary);
            let claim =
                Claim { worker: worker.id, ticket, build, queues, workflows, limit: 100, mode };
            onward.store().claim(claim).await.unwrap()
        };
        let claims = claim(1).await;
        let of_inputs = CLAIM_BYTES_MAX / PAYLOAD_BYTES_MAX - 4;
        let full = 1 + of_inputs..=3 + of_inputs;
        assert!(full.contains(&claims.runs.len()) && claims.more, "{} runs", claims.runs.len());
        assert_eq!(claims.runs[0].lease.run, first.id(), "with all its signals");
        assert_eq!(claim(2).await.runs.len(), 1 + runs - claims.runs.len());
    })
    .await;
}
