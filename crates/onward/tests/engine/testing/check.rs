//! The checker itself: what it executes, what it compares, and what it leaves alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::testing::{Effects, Finding, Report, retry_safe};
use onward::{Ctx, Failure, Retry, Workflow};

const PLAY: Workflow<u32, u32> = Workflow::named("play");

async fn check<F, Fut>(function: F) -> Report
where
    F: Fn(Ctx, u32, Effects) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<u32, Failure>> + Send + 'static,
{
    let build = move |effects: Effects| {
        let function = function.clone();
        move |ctx, input| function(ctx, input, effects.clone())
    };
    retry_safe(PLAY, build, &7).check().await
}

/// An effect under the step's id.
async fn noted(effects: &Effects, name: &str, step: &onward::Step) -> Result<u32, Failure> {
    effects.note(name).key(step.id()).await;
    Ok(1)
}

#[tokio::test]
async fn each_side_of_each_effect_and_record_is_tried() {
    let report = check(async |ctx: Ctx, _, effects: Effects| {
        ctx.step("first", async |step| noted(&effects, "one", &step).await).await?;
        ctx.step("second", async |step| noted(&effects, "two", &step).await).await
    });
    let report = report.await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.effects, 2);
    // Two effects, the first step's record, and the end with the second one's.
    assert_eq!(report.points, 2 * 4);
    assert!(report.to_string().contains("noted 2 effects"), "{report}");
    assert!(report.to_string().contains("8 points at which its process can die"), "{report}");
}

#[tokio::test]
async fn a_workflow_that_notes_nothing_is_told_so() {
    let report =
        check(async |ctx: Ctx, n, _| ctx.step("double", async |_| Ok::<_, Failure>(n * 2)).await);
    let report = report.await;
    assert!(report.is_safe() && report.effects == 0, "{report}");
    assert!(report.to_string().contains("what is not noted cannot be judged"), "{report}");
}

#[tokio::test]
async fn sleeps_tries_and_steps_at_once_pass() {
    let report = check(async |ctx: Ctx, _, effects: Effects| {
        let shaky = ctx.step("shaky", async |step| match step.try_number() {
            1 | 2 => Err(Failure::new("not yet")),
            _ => noted(&effects, "shaky", &step).await,
        });
        shaky.retry(Retry::fixed(Duration::from_secs(3600)).tries(3)).await?;
        ctx.sleep(Duration::from_secs(30 * 24 * 3600)).await;
        let (one, two) = futures::join!(
            ctx.step("one", async |step| noted(&effects, "one", &step).await),
            ctx.step("two", async |step| noted(&effects, "two", &step).await),
        );
        ctx.sleep(Duration::from_millis(10)).await;
        Ok(one? + two?)
    });
    let report = report.await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.effects, 3, "{report}");
}

#[tokio::test]
async fn pauses_with_jitter_make_no_difference() {
    const WHEN: Workflow<(), onward::Timestamp> = Workflow::named("when");
    let build = |effects: Effects| {
        move |ctx: Ctx, ()| {
            let effects = effects.clone();
            async move {
                let shaky = ctx.step("shaky", async |step| match step.try_number() {
                    1..=3 => Err(Failure::new("not yet")),
                    _ => noted(&effects, "shaky", &step).await,
                });
                shaky.retry(Retry::exponential(Duration::from_secs(60)).tries(4)).await?;
                Ok(ctx.now())
            }
        }
    };
    let report = retry_safe(WHEN, build, &()).check().await;
    assert!(report.is_safe(), "{report}");
}

#[tokio::test]
async fn a_step_that_waits_by_the_machine_s_clock_passes() {
    let report = check(async |ctx: Ctx, _, effects: Effects| {
        let slow = ctx.step("slow", async |step| {
            tokio::time::sleep(Duration::from_millis(2)).await;
            noted(&effects, "slow", &step).await
        });
        let quick = ctx.step("quick", async |step| noted(&effects, "quick", &step).await);
        let (slow, quick) = futures::join!(slow, quick);
        Ok(slow? + quick?)
    });
    let report = report.await;
    assert!(report.is_safe(), "{report}");
}

#[tokio::test]
async fn a_run_that_goes_on_as_another_passes() {
    let report = check(async |ctx: Ctx, n, effects: Effects| {
        ctx.step("page", async |step| noted(&effects, "page", &step).await).await?;
        if n < 9 { ctx.continue_as(PLAY, &(n + 1)) } else { Ok(n) }
    });
    let report = report.await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.effects, 3);
}

#[tokio::test]
async fn a_run_that_fails_alike_passes() {
    let report = check(async |ctx: Ctx, _, effects: Effects| {
        ctx.step("charge", async |step| noted(&effects, "charge", &step).await).await?;
        Err(Failure::fatal("the bank said no").code("card_declined"))
    });
    let report = report.await;
    assert!(report.is_safe(), "{report}");
}

#[tokio::test]
async fn at_most_once_is_a_note_and_no_fault() {
    let report = check(async |ctx: Ctx, _, effects: Effects| {
        let fax = async |_| {
            effects.note("fax").await;
            Ok::<_, Failure>(1)
        };
        ctx.step("fax", fax).at_most_once().await
    });
    let report = report.await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.notes.len(), 1, "{report}");
    let note = &report.notes[0].finding;
    assert!(matches!(note, Finding::Interrupted { step } if step == "fax"), "{report}");
}

#[tokio::test]
async fn the_docs_show_a_report_as_it_is() {
    const ORDER: Workflow<u64, ()> = Workflow::named("order");
    let build = |effects: Effects| {
        move |ctx: Ctx, cents: u64| {
            let effects = effects.clone();
            async move {
                let charge = async |_| {
                    effects.note("charge").payload(&cents).await;
                    Ok::<_, Failure>(())
                };
                ctx.step("charge", charge).await?;
                ctx.step("mail", async |step| noted(&effects, "mail", &step).await).await?;
                Ok(())
            }
        }
    };
    let report = retry_safe(ORDER, build, &500).check().await;
    let page = include_str!("../../../../../docs/testing.md");
    assert!(page.contains(&report.to_string()), "{report}");
}

/// A counter of the outside world, which nobody notes.
async fn count(ctx: Ctx, visits: Arc<AtomicU32>) -> Result<u32, Failure> {
    ctx.step("count", async |_| Ok::<_, Failure>(visits.fetch_add(1, Ordering::SeqCst))).await
}

fn counting(
    effects: Effects,
) -> impl Fn(Ctx, u32) -> futures::future::BoxFuture<'static, Result<u32, Failure>> {
    let visits = effects.outside("visits", || AtomicU32::new(1));
    move |ctx, _| Box::pin(count(ctx, Arc::clone(&visits)))
}

#[tokio::test]
async fn an_effect_that_is_not_noted_shows_in_the_result() {
    let report = retry_safe(PLAY, counting, &7).check().await;
    let is_step = |finding: &Finding| {
        matches!(finding, Finding::StepResultDiffers { step, results }
            if step == "count" && results == &["1", "2"])
    };
    let is_end = |finding: &Finding| matches!(finding, Finding::ResultDiffers { .. });
    assert!(report.findings.iter().any(|found| is_step(&found.finding)), "{report}");
    assert!(report.findings.iter().any(|found| is_end(&found.finding)), "{report}");
}

#[tokio::test]
async fn a_step_that_may_vary_is_not_compared() {
    let report = retry_safe(PLAY, counting, &7).may_vary("count").check().await;
    assert!(report.is_safe(), "{report}");
}

#[tokio::test]
async fn a_fake_keeps_its_state_over_a_death_and_not_over_an_execution() {
    let build = |effects: Effects| {
        let receipts = effects.outside("receipts", || AtomicU32::new(0));
        move |ctx: Ctx, _: u32| {
            let (effects, receipts) = (effects.clone(), Arc::clone(&receipts));
            async move {
                let charge = async |step: onward::Step| {
                    let next = || receipts.fetch_add(1, Ordering::SeqCst) + 1;
                    Ok::<_, Failure>(effects.note("charge").key(step.id()).act(next).await)
                };
                ctx.step("charge", charge).await
            }
        }
    };
    // Each execution sees receipt 1: a new world has given none, and a repeated key gives the same.
    let report = retry_safe(PLAY, build, &7).check().await;
    assert!(report.is_safe(), "{report}");
}

#[tokio::test]
async fn a_function_that_waits_for_something_foreign_does_not_hang_the_check() {
    let build = |_: Effects| async |_: Ctx, _: u32| std::future::pending().await;
    let check = retry_safe(PLAY, build, &7).within(Duration::from_millis(50));
    let report = check.check().await;
    assert!(matches!(report.findings[0].finding, Finding::NotEnded { .. }), "{report}");
    assert!(report.to_string().contains("not from its ctx, took too long"), "{report}");
    assert_eq!(report.points, 0);
}

#[tokio::test]
async fn a_foreign_await_is_found() {
    let build = |effects: Effects| {
        let lives = effects.outside("lives", || AtomicU32::new(0));
        move |ctx: Ctx, _: u32| {
            let life = lives.fetch_add(1, Ordering::SeqCst);
            let effects = effects.clone();
            async move {
                // Whatever answers first outside the run decides, and not the same each time.
                tokio::time::sleep(Duration::from_millis(1)).await;
                let name = if life == 0 { "left" } else { "right" };
                ctx.step(name, async |step| noted(&effects, "go", &step).await).await?;
                ctx.step("end", async |step| noted(&effects, "end", &step).await).await
            }
        }
    };
    let report = retry_safe(PLAY, build, &7).check().await;
    let is_foreign = |finding: &Finding| matches!(finding, Finding::Mismatch { code, .. } if code == "foreign_await");
    assert!(report.findings.iter().any(|found| is_foreign(&found.finding)), "{report}");
}

#[tokio::test]
async fn a_panic_of_the_builder_reaches_the_test() {
    fn broken(_: Effects) -> fn(Ctx, u32) -> std::future::Ready<Result<u32, Failure>> {
        panic!("the fakes cannot be built")
    }
    let check = tokio::spawn(retry_safe(PLAY, broken, &7).check());
    let panic = check.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the fakes cannot be built"));
}

#[tokio::test]
async fn an_input_that_has_no_json_form_is_refused_in_words() {
    use std::collections::BTreeMap;
    const ODD: Workflow<BTreeMap<(u8, u8), u8>, ()> = Workflow::named("odd");
    let build = |_: Effects| async |_: Ctx, _: BTreeMap<(u8, u8), u8>| Ok(());
    let report = retry_safe(ODD, build, &BTreeMap::from([((1, 2), 3)])).check().await;
    assert!(!report.is_safe());
    assert!(report.to_string().contains("not_serializable"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_beside_one_another_do_not_mix() {
    let one = || {
        tokio::spawn(check(async |ctx: Ctx, _, effects: Effects| {
            ctx.step("a", async |step| noted(&effects, "a", &step).await).await?;
            ctx.step("b", async |step| noted(&effects, "b", &step).await).await
        }))
    };
    for check in [one(), one(), one(), one()] {
        let report = check.await.unwrap();
        assert!(report.is_safe() && report.effects == 2 && report.points == 8, "{report}");
    }
}

const CHILD: Workflow<u32, u32> = Workflow::named("child");

fn child(
    effects: Effects,
) -> impl Fn(Ctx, u32) -> futures::future::BoxFuture<'static, Result<u32, Failure>> {
    move |ctx, n| {
        let effects = effects.clone();
        Box::pin(async move {
            ctx.step("work", async |step| noted(&effects, "work", &step).await).await?;
            Ok(n + 1)
        })
    }
}

#[tokio::test]
async fn children_are_checked_with_their_parents() {
    let build = |_: Effects| {
        async |ctx: Ctx, n: u32| {
            let one = ctx.start(CHILD, &n).result().await?;
            ctx.start(CHILD, &one).result().await
        }
    };
    let report = retry_safe(PLAY, build, &7).serve(CHILD, child).check().await;
    assert!(report.is_safe(), "{report}");
    assert_eq!(report.effects, 2, "{report}");
}

#[tokio::test]
async fn a_workflow_that_waits_for_a_signal_is_checked_with_it() {
    let build = |effects: Effects| {
        move |ctx: Ctx, _: u32| {
            let effects = effects.clone();
            async move {
                let n = ctx.signal::<u32>("go").await?;
                ctx.step("go", async |step| noted(&effects, "go", &step).await).await?;
                Ok(n)
            }
        }
    };
    let without = retry_safe(PLAY, build, &7).check().await;
    assert!(matches!(without.findings[0].finding, Finding::NotEnded { .. }), "{without}");
    let with = retry_safe(PLAY, build, &7).signal("go", &3).check().await;
    assert!(with.is_safe(), "{with}");
}
