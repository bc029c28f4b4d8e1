//! How runs end that turn back, on each store.

use std::time::Duration;

use onward::limits::PAYLOAD_BYTES_MAX;
use onward::{Code, Ctx, Entry, Failure, Json, OnConflict, Onward, Retry, RunHandle, RunState};
use serde::Deserialize;

use super::{Log, WORK, steps_of, undoing};
use crate::stores::{on_each_store, until_state};

#[derive(Deserialize)]
struct Details {
    left_undone: Vec<Left>,
    left_count: usize,
    outcome: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
struct Left {
    step: String,
    code: String,
}

#[tokio::test]
async fn a_failed_run_is_undone_in_reverse() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                log.step(&ctx, "reserve", 1).await?;
                ctx.step("look", async |_| Ok::<_, Failure>(0)).await?;
                log.step(&ctx, "charge", 2).await?;
                log.step(&ctx, "charge", 3).await?;
                Err(Failure::fatal("no more").code("sold_out"))
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        let ended = run.ended().await.unwrap();
        assert_eq!(ended.state, RunState::Failed);
        assert!(ended.failure.unwrap().is("sold_out"));
        let undone = ["undo charge 3", "undo charge 2", "undo reserve 1"];
        assert_eq!(log.lines()[3..], undone);
        let steps = ["$undo", "$undo/charge#2", "$undo/charge", "$undo/reserve"];
        assert_eq!(steps_of(&run).await[4..], steps);
        let undoing = undoing(&run).await;
        assert_eq!(undoing.undone, ["charge#2", "charge", "reserve"]);
        assert_eq!((undoing.left.len(), undoing.outcome), (0, Some(RunState::Failed)));
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn only_what_is_done_is_undone() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let (first, second) = (log.step(&ctx, "a", 1), log.step(&ctx, "b", 2));
                let late = log.clone();
                let slow = ctx
                    .step("slow", async |_| std::future::pending::<Result<u32, Failure>>().await);
                let slow = slow.undo(move |_, _| {
                    late.add("undo slow");
                    std::future::ready(Ok::<_, Failure>(()))
                });
                let late = log.clone();
                let fails = ctx.step("fails", async |_| Err::<u32, _>(Failure::fatal("no")));
                let fails = fails.undo(move |_, _| {
                    late.add("undo fails");
                    std::future::ready(Ok::<_, Failure>(()))
                });
                let never = log.step(&ctx, "never", 3);
                let all = async { tokio::try_join!(first, second) };
                let ((a, b), c, d) = tokio::try_join!(all, slow, fails)?;
                never.await?;
                Err(Failure::fatal(format!("{a} {b} {c} {d}")))
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        assert_eq!(run.ended().await.unwrap().state, RunState::Failed);
        let mut lines = log.lines().split_off(2);
        lines.sort();
        assert_eq!(lines, ["undo a 1", "undo b 2"]);
        let (undone, steps) = (undoing(&run).await.undone, steps_of(&run).await);
        let recorded = steps.iter().filter(|step| ["a", "b"].contains(&step.as_str())).rev();
        assert!(undone.iter().eq(recorded), "the reverse of {steps:?}: {undone:?}");
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A run that is asked to end while it waits, and has ended so.
async fn cancelled_while_it_waits(onward: &Onward) -> RunHandle<()> {
    let run = onward.start(WORK, &()).await.unwrap();
    until_state(&run, RunState::Waiting).await;
    run.cancel().await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    run
}

#[tokio::test]
async fn a_cancelled_run_that_waits_is_undone() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                for number in 1..=2 {
                    let log = log.clone();
                    ctx.on_cancel(move |step| {
                        log.add(format!("call {number} of {}", step.try_number()));
                        std::future::ready(Ok::<_, Failure>(()))
                    });
                }
                log.step(&ctx, "reserve", 1).await?;
                ctx.sleep(Duration::from_secs(60 * 60)).await;
                log.step(&ctx, "never", 2).await?;
                Ok(())
            }
        });
        let worker = worker.start().await.unwrap();
        let run = cancelled_while_it_waits(&onward).await;
        let lines = ["reserve", "call 2 of 1", "call 1 of 1", "undo reserve 1"];
        assert_eq!(log.lines(), lines);
        let error = run.retry().await.unwrap_err();
        assert_eq!(error.code(), Code::RunUndone);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_call_on_cancel_needs_no_other_record() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                ctx.on_cancel(move |_| {
                    log.add("told");
                    std::future::ready(Ok::<_, Failure>(()))
                });
                ctx.sleep(Duration::from_secs(60 * 60)).await;
                Ok(())
            }
        });
        let worker = worker.start().await.unwrap();
        let run = cancelled_while_it_waits(&onward).await;
        assert_eq!(log.lines(), ["told"]);
        assert_eq!(steps_of(&run).await, ["$on_cancel", "$undo", "$on_cancel/1"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_body_is_dropped_before_the_undos() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().cancel_grace(Duration::from_millis(20));
        let worker = worker.serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                log.step(&ctx, "reserve", 1).await?;
                let held = Held(log.clone());
                ctx.step("deaf", async |_| {
                    held.0.add("deaf");
                    std::future::pending::<Result<(), Failure>>().await
                })
                .await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        log.until("deaf").await;
        run.cancel().await.unwrap();
        assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
        assert_eq!(log.lines(), ["reserve", "deaf", "dropped", "undo reserve 1"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Notes when it is dropped.
struct Held(Log);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

#[tokio::test]
async fn a_deadline_that_passes_while_nobody_serves_is_undone() {
    on_each_store(async |onward| {
        let log = Log::default();
        let serve = |onward: &Onward| {
            let of = log.clone();
            onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
                let log = of.clone();
                async move {
                    log.step(&ctx, "reserve", 1).await?;
                    ctx.sleep(Duration::from_secs(60 * 60)).await;
                    Ok(())
                }
            })
        };
        let worker = serve(&onward).start().await.unwrap();
        let timeout = Duration::from_millis(500);
        let run = onward.start(WORK, &()).timeout(timeout).await.unwrap();
        until_state(&run, RunState::Waiting).await;
        worker.shutdown().await.unwrap();
        let deadline = run.status().await.unwrap().deadline_at.unwrap();
        onward.store().clock().sleep_until(deadline).await;
        let worker = serve(&onward).start().await.unwrap();
        let ended = run.ended().await.unwrap();
        assert!(ended.failure.unwrap().is(Code::DeadlineExceeded.as_str()));
        assert_eq!(log.lines(), ["reserve", "undo reserve 1"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_undone_is_told_and_the_rest_is_undone() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                log.step(&ctx, "reserve", 1).await?;
                let charge = ctx.step("charge", async |_| Ok::<_, Failure>(7));
                let of = log.clone();
                let charge = charge.undo(move |cents: u32, step| {
                    of.add(format!("refund {cents}, try {}", step.try_number()));
                    std::future::ready(Err::<(), _>(Failure::new("closed").code("bank_closed")))
                });
                charge.undo_retry(Retry::fixed(Duration::from_millis(1)).tries(3)).await?;
                log.step(&ctx, "ship", 3).await?;
                Err(Failure::fatal("lost").code("parcel_lost"))
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).key("order").await.unwrap();
        let failure = run.ended().await.unwrap().failure.unwrap();
        assert!(failure.is(Code::UndoFailed.as_str()), "{failure}");
        let details: Details = failure.details.as_ref().unwrap().read().unwrap();
        let left: Vec<_> = details.left_undone.iter().map(|l| (&*l.step, &*l.code)).collect();
        assert_eq!((left, details.left_count), (vec![("charge", "bank_closed")], 1));
        assert_eq!(details.outcome, "failed");
        assert!(details.failure.unwrap().is("parcel_lost"));
        let refunds = ["refund 7, try 1", "refund 7, try 2", "refund 7, try 3", "undo reserve 1"];
        assert_eq!(log.lines()[3..], refunds);
        let history = run.history().await.unwrap();
        let tried = |step| history.iter().filter(move |record| record.step == step);
        let kinds: Vec<_> = tried("$undo/charge").map(|record| record.entry.kind()).collect();
        assert_eq!(kinds.len(), 3);
        assert!(tried("$undo/charge").any(|record| matches!(record.entry, Entry::Failed(_))));
        assert_eq!(undoing(&run).await.left, ["charge"]);
        assert_eq!(run.retry().await.unwrap_err().code(), Code::RunUndone);
        let again = onward.start(WORK, &()).key("order").on_conflict(OnConflict::RetryFailed);
        let error = again.await.unwrap_err();
        assert_eq!((error.code(), error.run()), (Code::RunUndone, Some(run.id())));
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_undo_that_fails_is_tried_again() {
    on_each_store(async |onward| {
        let log = Log::default();
        let of = log.clone();
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, ()| {
            let log = of.clone();
            async move {
                let charge = ctx.step("charge", async |_| Ok::<_, Failure>(7));
                let charge = charge.undo(move |_, step| {
                    log.add(step.id().split_once('/').unwrap().1);
                    let number = step.try_number();
                    std::future::ready(if number < 3 { Err(Failure::new("busy")) } else { Ok(()) })
                });
                // Longer than a busy machine takes to record the failed try.
                charge.undo_retry(Retry::fixed(Duration::from_millis(500)).tries(5)).await?;
                Err(Failure::fatal("lost").code("parcel_lost"))
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        let ended = run.ended().await.unwrap();
        assert!(ended.failure.unwrap().is("parcel_lost"));
        assert_eq!(log.lines(), ["$undo/charge"; 3], "the id is the same over tries and attempts");
        assert!(ended.attempt > 1, "a pause between two tries parks the run");
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// What a failure has besides its message is anything, up to the limit of a payload.
#[tokio::test]
async fn a_failure_with_details_is_undone_as_any_other() {
    for details in [
        r#"{"declined":[1,2.50,"no"]}"#.to_owned(),
        format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2)),
    ] {
        on_each_store(async |onward| {
            let (log, details) = (Log::default(), Json::parse(&details).unwrap());
            let of = (log.clone(), details.clone());
            let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
                let (log, details) = of.clone();
                async move {
                    log.step(&ctx, "charge", 7).await?;
                    Err(Failure::fatal("lost").code("parcel_lost").details(&details))
                }
            });
            let worker = worker.start().await.unwrap();
            let run = onward.start(WORK, &()).await.unwrap();
            let failure = run.ended().await.unwrap().failure.unwrap();
            assert!(failure.is("parcel_lost"), "{failure}");
            assert_eq!(log.lines(), ["charge", "undo charge 7"]);
            // They are left out only where there is no room for them.
            let fits = details.as_str().len() < PAYLOAD_BYTES_MAX / 2;
            assert_eq!(failure.details, fits.then_some(details));
            assert_eq!(undoing(&run).await.undone, ["charge"]);
            worker.shutdown().await.unwrap();
        })
        .await;
    }
}
