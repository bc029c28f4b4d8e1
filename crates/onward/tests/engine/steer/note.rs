//! What runs note on themselves, over replays and deaths.

use std::sync::Arc;
use std::time::Duration;

use onward::conformance::Death;
use onward::{Code, Ctx, Failure, Filter, Onward, Query, Retry, RunHandle, RunState, Workflow};
use tokio::sync::Notify;

use crate::process::{Process, data};
use crate::stores::{on_each_store, until_state};

const WORK: Workflow<(), u32> = Workflow::named("work");

async fn texts(run: &RunHandle<u32>) -> Vec<String> {
    run.log().await.unwrap().into_iter().map(|line| line.text).collect()
}

#[tokio::test]
async fn a_replay_notes_nothing_again() {
    on_each_store(|onward: Onward| async move {
        let worker = onward.worker().linger(Duration::ZERO).serve(WORK, async |ctx: Ctx, ()| {
            ctx.log("begins");
            ctx.set_tag("phase", "one")?;
            ctx.progress(1, 4);
            let tries = Retry::fixed(Duration::ZERO).tries(2);
            let step = ctx.step("flaky", async |step| {
                step.log(format!("try {}", step.try_number()));
                if step.try_number() == 1 { Err("busy") } else { Ok(1) }
            });
            step.retry(tries).await?;
            ctx.log("flaky is done");
            ctx.signal::<u32>("go").await?;
            ctx.log("goes on");
            ctx.set_tag("phase", "two")?;
            ctx.progress(2, 4);
            ctx.signal::<u32>("go").await
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).tag("tenant", "acme").await.unwrap();
        until_state(&run, RunState::Waiting).await;
        let found = run.status().await.unwrap();
        assert_eq!(found.progress().map(|at| (at.done, at.total)), Some((1, 4)));
        assert_eq!((found.tags["phase"].as_str(), found.tags["tenant"].as_str()), ("one", "acme"));
        let log = run.log().await.unwrap();
        let said = ["begins", "try 1", "try 2", "flaky is done"];
        assert_eq!(texts(&run).await, said);
        let marks: Vec<_> = log.iter().map(|it| (it.step.as_deref(), it.try_number)).collect();
        let body = |number| (Some("flaky"), Some(number));
        assert_eq!(marks, [(None, None), body(1), body(2), (None, None)]);

        run.signal("go", &1).await.unwrap();
        let gone_on = async {
            while run.status().await.unwrap().tags["phase"] != "two" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone_on).await.unwrap();
        assert_eq!(run.status().await.unwrap().progress().unwrap().done, 2);
        run.signal("go", &7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        assert_eq!(texts(&run).await, [&said[..], &["goes on"]].concat());
        let listed = |value: &str| {
            let tags = [("phase".to_owned(), value.to_owned())].into();
            onward.list(Query { filter: Filter { tags, ..Filter::default() }, ..Query::default() })
        };
        assert_eq!(listed("two").await.unwrap().runs.len(), 1);
        assert_eq!(listed("one").await.unwrap().runs.len(), 0);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn notes_are_seen_while_a_body_executes() {
    on_each_store(|onward: Onward| async move {
        let go = Arc::new(Notify::new());
        let held = Arc::clone(&go);
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let go = Arc::clone(&held);
            async move {
                let long = ctx.step("long", async |step| {
                    step.log("half-way");
                    step.progress(1, 2);
                    go.notified().await;
                    Ok::<_, Failure>(1)
                });
                long.await
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        let seen = async {
            while texts(&run).await != ["half-way"] {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), seen).await.unwrap();
        let found = run.status().await.unwrap();
        assert_eq!(
            (found.state, found.progress().unwrap().percent()),
            (RunState::Running, Some(50))
        );
        go.notify_one();
        run.result().await.unwrap();
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn whenever_its_process_dies_each_line_of_a_function_is_there_once_and_is_true() {
    for writes in 0..9 {
        for death in [Death::Before, Death::After] {
            let data = data();
            let serve = |process: &Process, gives: u32| {
                let worker = process.onward.worker().lease(Duration::from_secs(60));
                worker.serve(WORK, move |ctx: Ctx, ()| async move {
                    ctx.log("a");
                    ctx.step("one", async |_| Ok::<_, Failure>(1)).await?;
                    ctx.log("b");
                    ctx.log("c");
                    let two = ctx.step("two", async |_| Ok::<_, Failure>(gives)).await?;
                    ctx.log(format!("two is {two}"));
                    ctx.set_tag("done", "yes")?;
                    Ok(two)
                })
            };
            let process = Process::on(&data);
            process.store.die_after(3 + writes, death);
            let run = process.onward.start(WORK, &()).await;
            let started = serve(&process, 1).start().await;
            let (Ok(run), Ok(worker)) = (run, started) else { continue };
            let ended = tokio::time::timeout(Duration::from_millis(300), run.result());
            let ended = ended.await.is_ok_and(|ended| ended.is_ok());
            if !ended {
                process.kill(worker).await;
            }
            let second = Process::on(&data);
            let worker = serve(&second, 2).start().await.unwrap();
            let run: RunHandle<u32> = second.onward.run(run.id()).of_type();
            let two = run.result().await.unwrap();
            let lines = ["a", "b", "c", &format!("two is {two}")];
            assert_eq!(texts(&run).await, lines, "after {writes} writes, {death:?}");
            assert_eq!(run.status().await.unwrap().tags["done"], "yes");
            worker.shutdown().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_retry_of_a_run_lets_it_note_what_it_does_instead() {
    on_each_store(|onward: Onward| async move {
        let mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flag = Arc::clone(&mended);
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
            let flag = Arc::clone(&flag);
            async move {
                ctx.log("begins");
                let pay = ctx.step("pay", async |_| {
                    match flag.load(std::sync::atomic::Ordering::SeqCst) {
                        true => Ok(1),
                        false => Err(Failure::fatal("declined")),
                    }
                });
                match pay.await {
                    Ok(paid) => {
                        ctx.log("paid");
                        Ok(paid)
                    }
                    Err(failure) => {
                        ctx.log("not paid");
                        ctx.log("gives up");
                        Err(failure)
                    }
                }
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WORK, &()).await.unwrap();
        run.result().await.unwrap_err();
        mended.store(true, std::sync::atomic::Ordering::SeqCst);
        run.retry().await.unwrap();
        run.result().await.unwrap();
        assert_eq!(texts(&run).await, ["begins", "not paid", "gives up", "paid"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_has_a_limited_number_of_tags() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(WORK, async |ctx: Ctx, ()| {
        for number in 0..32 {
            ctx.set_tag(&format!("tag-{number}"), "on")?;
        }
        ctx.set_tag("tag-0", "off")?;
        let full = ctx.set_tag("one more", "on").unwrap_err();
        let empty = ctx.set_tag("", "on").unwrap_err();
        assert!(full.message.contains("one more") && empty.message.contains("empty"));
        Ok(1)
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &()).await.unwrap();
    run.result().await.unwrap();
    let tags = run.status().await.unwrap().tags;
    assert_eq!((tags.len(), tags["tag-0"].as_str()), (32, "off"));
    let _ = Code::InvalidOption;
    worker.shutdown().await.unwrap();
}
