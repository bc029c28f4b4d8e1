//! Forks, with workers that execute.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::{Code, Ctx, Failure, Onward, RunState, Seed, Timestamp, Workflow};

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

const DELIVER: Workflow<(), String> = Workflow::named("deliver");
const SHIP: Workflow<(), u32> = Workflow::named("ship");

/// What became of a child is noted, and then the run fails for it or gives the child's id.
async fn deliver(ctx: Ctx, (): ()) -> Result<String, Failure> {
    let child = ctx.start(SHIP, &()).await?;
    let id = child.id();
    let shipped = child.result().await;
    ctx.step("note", async |_| Ok::<_, Failure>(shipped.is_ok())).await?;
    shipped.map(|_| id.to_string())
}

/// The child of the run that was forked is there, and is named. If it failed, and the fork for it, a retry
/// of the fork starts one of its own: nobody tells it of the other.
#[tokio::test]
async fn a_fork_knows_the_child_that_it_took_along_and_starts_its_own_when_it_is_retried() {
    on_each_store(|onward: Onward| async move {
        let is_mended = Arc::new(AtomicBool::new(false));
        let of = Arc::clone(&is_mended);
        let ship = move |ctx: Ctx, ()| {
            let is_mended = Arc::clone(&of);
            async move {
                let ship = ctx.step("ship", async |_| match is_mended.load(Ordering::SeqCst) {
                    true => Ok(7),
                    false => Err(Failure::fatal("no truck").code("no_truck")),
                });
                ship.await
            }
        };
        let worker = onward.worker().serve(DELIVER, deliver).serve(SHIP, ship);
        let worker = worker.start().await.unwrap();
        let run = onward.start(DELIVER, &()).await.unwrap();
        let failed = run.result().await.unwrap_err();
        let child = failed.failure().unwrap().child.unwrap();
        is_mended.store(true, Ordering::SeqCst);

        let fork = run.fork("note").await.unwrap();
        let error = fork.result().await.unwrap_err();
        assert!(error.failure().unwrap().is("no_truck"), "as it was recorded: {error}");
        assert_eq!(error.failure().unwrap().child, Some(child), "a run that is there");
        let again = fork.fork("note").await.unwrap().result().await.unwrap_err();
        assert_eq!(again.failure().unwrap().child, Some(child), "from a fork, too");
        fork.retry().await.unwrap();
        let own = fork.result().await.unwrap();
        let of_fork = onward.run(own.parse().unwrap()).status().await.unwrap();
        assert_eq!(of_fork.parent.unwrap().run, fork.id());
        assert_eq!(onward.run(child).status().await.unwrap().state, RunState::Failed);
        worker.shutdown().await.unwrap();
    })
    .await;
}

const CONFIRM: Workflow<(), bool> = Workflow::named("confirm");

#[tokio::test]
async fn a_fork_from_after_a_token_was_handed_on_is_refused_and_says_where_to_fork() {
    on_each_store(|onward: Onward| async move {
        let tokens = Arc::new(Mutex::new(Vec::new()));
        let of = Arc::clone(&tokens);
        let confirm = move |ctx: Ctx, ()| {
            let tokens = Arc::clone(&of);
            async move {
                let callback = ctx.callback::<bool>().await?;
                let token = callback.token();
                let mail = ctx.step("mail", async |_| {
                    tokens.lock().unwrap().push(token.clone());
                    Ok::<_, Failure>(())
                });
                mail.await?;
                ctx.step("note", async |_| Ok::<_, Failure>(())).await?;
                let answer = callback.result().await?.unwrap_or(false);
                ctx.step("end", async |_| Ok::<_, Failure>(answer)).await
            }
        };
        let worker = onward.worker().serve(CONFIRM, confirm).start().await.unwrap();
        let run = onward.start(CONFIRM, &()).await.unwrap();
        let handed_on = async |count: usize| {
            let until = async {
                while tokens.lock().unwrap().len() < count {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), until).await.unwrap();
            tokens.lock().unwrap()[count - 1].clone()
        };
        onward.resolve(&handed_on(1).await, &true).await.unwrap();
        assert!(run.result().await.unwrap());

        let refused = run.fork("note").await.unwrap_err();
        assert_eq!((refused.code(), refused.run()), (Code::ForkRefused, Some(run.id())));
        assert!(refused.to_string().contains("fork from \"callback#=1\""), "{refused}");

        // From its step the fork has a token of its own, from the next it hands one on that answers it.
        for (count, step) in [(2, "callback#=1"), (3, "mail")] {
            let fork = run.fork(step).await.unwrap();
            onward.resolve(&handed_on(count).await, &false).await.unwrap();
            assert!(!fork.result().await.unwrap(), "{step}");
        }
        assert!(run.fork("end").await.unwrap().result().await.unwrap(), "it was answered by then");
        worker.shutdown().await.unwrap();
    })
    .await;
}

const NIGHTLY: Workflow<u32, Option<Timestamp>> = Workflow::named("nightly");

/// Which night it is about is no less its input than what it was started with.
#[tokio::test]
async fn a_fork_of_a_scheduled_run_is_about_the_same_time() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(NIGHTLY, async |ctx: Ctx, lap: u32| {
            ctx.step("load", async |_| Ok::<_, Failure>(())).await?;
            let time = ctx.scheduled_at();
            let report = ctx.step("report", async |_| Ok::<_, Failure>(time)).await?;
            if lap == 0 { ctx.continue_as(NIGHTLY, &1) } else { Ok(report) }
        });
        let worker = worker.start().await.unwrap();
        let nightly = onward.schedule("nightly");
        nightly.clone().every(Duration::from_secs(86_400)).start(NIGHTLY, &1).await.unwrap();
        let run = nightly.trigger().await.unwrap().run().unwrap();
        let run = onward.run(run).of_type::<Option<Timestamp>>();
        let time = run.result().await.unwrap();
        assert!(time.is_some());
        for step in ["load", "report"] {
            let fork = run.fork(step).await.unwrap();
            assert_eq!(fork.result().await.unwrap(), time, "from {step}");
            let again = fork.fork(step).key(format!("again {step}")).await.unwrap();
            assert_eq!(again.result().await.unwrap(), time, "from {step} of the fork");
            let goes_on = run.fork(step).input(&0).await.unwrap();
            assert_eq!(goes_on.result().await.unwrap(), time, "from {step}, and on");
            assert!(goes_on.own_status().await.unwrap().continued_as.is_some());
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}
