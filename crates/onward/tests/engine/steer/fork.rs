//! Forks, with workers that execute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, Seed, Workflow};

use crate::stores::on_each_store;

const QUOTE: Workflow<u32, u32> = Workflow::named("quote");
const PART: Workflow<u32, u32> = Workflow::named("part");

async fn part(_: Ctx, n: u32) -> Result<u32, Failure> {
    Ok(n * 10)
}

#[tokio::test]
async fn a_fork_does_not_do_again_what_is_recorded_before_its_step() {
    on_each_store(|onward: Onward| async move {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let quote = move |ctx: Ctx, percent: u32| {
            let asked = Arc::clone(&counted);
            async move {
                let cost = ctx.step("ask", async |_| {
                    Ok::<_, Failure>(asked.fetch_add(1, Ordering::SeqCst) * 100 + 200)
                });
                let cost = cost.await?;
                let part = ctx.start(PART, &3).result().await?;
                ctx.sleep(Duration::from_millis(5)).await;
                let word = ctx.signal::<u32>("word").await?;
                let sum = cost + part + word;
                ctx.step("add", async |_| Ok::<_, Failure>(sum + sum * percent / 100)).await
            }
        };
        let worker = onward.worker().serve(QUOTE, quote).serve(PART, part);
        let worker = worker.start().await.unwrap();
        let run = onward.start(QUOTE, &10).await.unwrap();
        run.signal("word", &70).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 330);

        let same = run.fork("add").await.unwrap();
        assert_eq!(same.result().await.unwrap(), 330);
        let dearer = run.fork("add").input(&20).key("dearer").await.unwrap();
        assert_eq!(dearer.result().await.unwrap(), 360);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "the supplier was asked once");
        let found = dearer.status().await.unwrap();
        assert_eq!((found.forked_from, found.key.as_deref()), (Some(run.id()), Some("dearer")));
        assert_eq!(run.status().await.unwrap().output.unwrap().as_str(), "330");

        let (found, was_there) = run.fork("add").input(&20).key("dearer").forked().await.unwrap();
        assert_eq!((found.id(), was_there), (dearer.id(), true), "it was made before");
        for other in [run.fork("add").input(&30), run.fork("add"), run.fork("ask").input(&20)] {
            let refused = other.key("dearer").forked().await.unwrap_err();
            assert_eq!((refused.code(), refused.run()), (Code::KeyTaken, Some(dearer.id())));
        }

        // From before its child and its signal it does both again.
        let again = run.fork("$child/part").await.unwrap();
        again.signal("word", &170).await.unwrap();
        assert_eq!(again.result().await.unwrap(), 440);

        let unknown = run.fork("nothing").await.unwrap_err();
        assert_eq!(unknown.code(), Code::StepNotFound);
        let said = unknown.to_string();
        assert!(said.contains("\"ask\"") && said.contains("\"add\""), "{said}");
        let taken = run.fork("add").key("dearer").await.unwrap_err();
        assert_eq!((taken.code(), taken.run()), (Code::KeyTaken, Some(dearer.id())));
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// An account that the function made up, when it began, and a number that it made up after the last
/// step that is copied, with the time of that.
type Made = (String, i64, u64, i64);

const OPEN: Workflow<(), Made> = Workflow::named("open");

async fn open(ctx: Ctx, (): ()) -> Result<Made, Failure> {
    let (account, began) = (ctx.uuid().to_string(), ctx.now().as_millis());
    ctx.step("create", async |_| Ok::<_, Failure>(account.clone())).await?;
    let number = ctx.random();
    ctx.step("note", async |_| Ok::<_, Failure>(number)).await?;
    let (last, now) = (ctx.random(), ctx.now().as_millis());
    ctx.step("charge", async |_| Ok::<_, Failure>((account.clone(), began, last, now))).await
}

#[tokio::test]
async fn a_fork_goes_on_with_what_its_records_were_made_with() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().serve(OPEN, open).start().await.unwrap();
        let run = onward.start(OPEN, &()).await.unwrap();
        let (account, began, last, _) = run.result().await.unwrap();
        // So that the time is another one.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let fork = run.fork("charge").await.unwrap();
        let of_fork = fork.result().await.unwrap();
        assert_eq!((&of_fork.0, of_fork.1), (&account, began), "what is recorded was done with it");
        assert_ne!(of_fork.2, last, "what comes after is its own");
        let started = fork.status().await.unwrap().started_at.unwrap().as_millis();
        assert_eq!(of_fork.3, started, "so is the time");
        let seeds = fork.status().await.unwrap().notes.origin.unwrap().seeds;
        assert_eq!(seeds, [Seed { run: run.id(), until: 2 }]);

        // A fork of the fork, whose records are of both, and one whose records are of the first alone.
        for step in ["charge", "note"] {
            let again = fork.fork(step).await.unwrap();
            let made = again.result().await.unwrap();
            assert_eq!((&made.0, made.1), (&account, began), "{step}");
            assert!(made.2 != last && made.2 != of_fork.2, "{step}");
            let seeds = again.status().await.unwrap().notes.origin.unwrap().seeds;
            let until = if step == "charge" { 2 } else { 1 };
            assert_eq!(seeds, [Seed { run: run.id(), until }], "{step}");
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}
