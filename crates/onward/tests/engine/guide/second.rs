//! Parts of the guide, each with what it needs to compile: its second half.
//!
//! Owns: code that stands in `docs/guide.md` line by line, with the stage around it. Never formatted: the
//! page has it as it is.

#[rustfmt::skip]
mod what_a_workflow_function_may_await {
    use onward::{Ctx, Failure};
    async fn deterministic(ctx: Ctx, _: ()) -> Result<(), Failure> {
        let _today = ctx.now(); // not SystemTime::now()
        let _dice = ctx.random() % 6; // not rand::random()
        let _token = ctx.uuid();
        // Anything else from outside is read in a step, so that it is recorded.
        let limit = ctx.step("read limit", async |_| {
            Ok::<_, Failure>(std::env::var("LIMIT").unwrap_or_default())
        });
        let _limit: String = limit.await?;
        Ok(())
    }
}

#[rustfmt::skip]
mod keys_the_same_request_happens_once {
    use onward::{Code, Key, OnConflict, Onward, Workflow};

    const BILL: Workflow<u64, ()> = Workflow::named("bill");

    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let run = onward.start(BILL, &100).key("order-7").await?;
        let again = onward.start(BILL, &100).key("order-7").await?;
        assert_eq!(again.id(), run.id());
        assert_eq!(run.duplicates().await?.count, 1);

        // The same key with another input is a mistake somewhere, and is refused.
        let error = onward.start(BILL, &999).key("order-7").await.unwrap_err();
        assert_eq!(error.code(), Code::KeyConflict);
        assert_eq!(error.run(), Some(run.id()));

        // The new request wins: the old run is cancelled, the new one waits until it has ended.
        let newer = onward.start(BILL, &999).key("order-7").on_conflict(OnConflict::Replace).await?;
        assert_ne!(newer.id(), run.id());
        assert_eq!(onward.by_key(BILL, "order-7").await?.id(), newer.id());
        let _ = Key::of(["order", "7"]);
        Ok(())
    }
}

#[rustfmt::skip]
mod backfills {
    use onward::{Onward, Workflow};
    const INDEX: Workflow<u64, ()> = Workflow::named("index");
    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let done = onward
            .start_many(INDEX, 0..1_000)
            .key(|id| format!("item-{id}"))
            .priority(-10) // behind the daily work
            .on_progress(|progress| eprintln!("{} items", progress.items))
            .await?;
        assert_eq!((done.started, done.refused), (1_000, 0));
        let again = onward.start_many(INDEX, 0..1_000).key(|id| format!("item-{id}")).await?;
        assert_eq!((again.started, again.existing), (0, 1_000));
        Ok(())
    }
}

#[rustfmt::skip]
mod cancel_deadline_and_retry {
    use std::time::Duration;
    use onward::{Code, Ctx, Failure, Onward, Workflow};
    const LONG: Workflow<(), u32> = Workflow::named("long");

    async fn long_work() -> Result<u32, std::io::Error> { std::future::pending().await }
    async fn long(ctx: Ctx, _: ()) -> Result<u32, Failure> {
        let work = ctx.step("long work", async |step| {
            tokio::select! {
                done = long_work() => Ok(done?),
                () = step.cancelled() => Err(Failure::fatal("stopped half-way")),
            }
        });
        work.await
    }

    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let worker = onward.worker().serve(LONG, long).start().await?;
        let run = onward.start(LONG, &()).timeout(Duration::from_secs(3600)).await?;
        run.cancel().await?;
        assert_eq!(run.result().await.unwrap_err().code(), Code::RunCancelled);
        worker.shutdown().await
    }
}

#[rustfmt::skip]
mod undo {
    use onward::{Ctx, Failure};
    async fn charge(_: &str, _: u64) -> Result<String, std::io::Error> { Ok("r1".into()) }
    async fn refund(_: &str, _: &str) -> Result<(), std::io::Error> { Ok(()) }
    async fn ship(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    async fn order(ctx: Ctx, cents: u64) -> Result<(), Failure> {
        let receipt: String = ctx
            .step("charge", async |step| charge(step.id(), cents).await)
            .undo(async |receipt: String, step| refund(step.id(), &receipt).await)
            .await?;
        ctx.step("ship", async |_| ship(&receipt).await).await
    }
}

#[rustfmt::skip]
mod long_histories {
    use onward::{Ctx, Failure, Workflow};
    const COPY_ALL: Workflow<u64, ()> = Workflow::named("copy-all");
    async fn copy_page(_: u64) -> Result<Option<u64>, std::io::Error> { Ok(None) }
    async fn copy_all(ctx: Ctx, mut page: u64) -> Result<(), Failure> {
        for _ in 0..1_000 {
            match ctx.step("copy page", |_| copy_page(page)).await? {
                Some(next) => page = next,
                None => return Ok(()),
            }
        }
        ctx.continue_as(COPY_ALL, &page)
    }
}

#[rustfmt::skip]
mod workers {
    use std::time::Duration;
    use onward::{Ctx, Failure, Onward, Workflow};
    const MAIL: Workflow<String, ()> = Workflow::named("mail");
    async fn mail(_: Ctx, _: String) -> Result<(), Failure> { Ok(()) }
    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let worker = onward
            .worker()
            .serve(MAIL, mail)
            .queues(["default", "bulk"])
            .concurrency(50)
            .lease(Duration::from_secs(10))
            .start()
            .await?;
        // At SIGTERM: stop claiming, let bodies finish (25 s), give the rest back.
        worker.shutdown().await?;
        Ok(())
    }
}

#[rustfmt::skip]
mod a_worker_as_a_service {
    use onward::{Ctx, Failure, Onward, Workflow};
    use tokio::signal::unix::{SignalKind, signal};

    const MAIL: Workflow<String, ()> = Workflow::named("mail");

    async fn mail(ctx: Ctx, to: String) -> Result<(), Failure> {
        ctx.step("send", async |_| Ok::<_, Failure>(println!("to {to}"))).await
    }

    #[tokio::main]
    async fn main() -> Result<(), Box<dyn std::error::Error>> {
        tracing_subscriber::fmt().init();
        let onward = Onward::open("sqlite:onward.db").await?;
        let worker = onward.worker().serve(MAIL, mail).start().await?;
        // What a terminal sends, and what a service manager sends.
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => pressed?,
            _ = terminate.recv() => {}
        }
        worker.shutdown().await?;
        Ok(())
    }
}

#[rustfmt::skip]
mod moving_to_another_store {
    use onward::Onward;
    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let (small, large) = (Onward::open("memory:").await?, Onward::open("memory:").await?);
        let copied = small.copy_to(&large).await?;
        assert!(copied.verified);
        println!("{} runs, {} records, {} keys", copied.copied, copied.records, copied.keys);
        Ok(())
    }
}

#[rustfmt::skip]
mod testing {
    use std::sync::Arc;
    use std::time::Duration;

    use onward::store::MemoryStore;
    use onward::{Ctx, Failure, Onward, RunState, TestClock, Workflow};

    const REMIND: Workflow<String, String> = Workflow::named("remind");

    async fn remind(ctx: Ctx, user: String) -> Result<String, Failure> {
        ctx.sleep(Duration::from_secs(3 * 24 * 60 * 60)).await;
        ctx.step("send", async |_| Ok::<_, Failure>(format!("reminded {user}"))).await
    }

    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let clock = TestClock::new();
        let onward = Onward::with_store(Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))));
        let worker = onward.worker().serve(REMIND, remind).start().await?;
        let run = onward.start(REMIND, &"Ada".to_owned()).await?;

        // Wait for the condition, not for luck: the run has parked.
        while run.status().await?.state != RunState::Waiting {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        clock.advance(Duration::from_secs(3 * 24 * 60 * 60));
        assert_eq!(run.result().await?, "reminded Ada");
        worker.shutdown().await
    }
}
