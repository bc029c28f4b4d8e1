//! The same for many items.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onward::{Ctx, Failure, Onward, Workflow};

use crate::stores::on_each_store;

const SQUARE: Workflow<u64, u64> = Workflow::named("square");
const SQUARES: Workflow<u64, Vec<u64>> = Workflow::named("squares");

async fn square(_: Ctx, number: u64) -> Result<u64, Failure> {
    Ok(number * number)
}

async fn squares(ctx: Ctx, count: u64) -> Result<Vec<u64>, Failure> {
    ctx.all(0..count, 20, |number| ctx.start(SQUARE, &number).result()).await
}

#[tokio::test]
async fn children_of_a_fan_out_give_their_results_in_order() {
    on_each_store(async |onward| {
        let worker = onward.worker().serve(SQUARE, square).serve(SQUARES, squares);
        let worker = worker.start().await.unwrap();
        let run = onward.start(SQUARES, &200).await.unwrap();
        let expected: Vec<u64> = (0..200).map(|number| number * number).collect();
        assert_eq!(run.result().await.unwrap(), expected);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Ten thousand, in a history that has room for them, and never more at once than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_steps_execute_a_few_at_a_time() {
    const MANY: Workflow<u64, u64> = Workflow::named("many");
    let (going, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let onward = Onward::open("memory:").await.unwrap();
    let many = move |ctx: Ctx, count: u64| {
        let (going, most) = (Arc::clone(&going), Arc::clone(&most));
        async move {
            let each = |number: u64| {
                let (going, most) = (Arc::clone(&going), Arc::clone(&most));
                ctx.step("one", move |_| {
                    let (going, most) = (Arc::clone(&going), Arc::clone(&most));
                    async move {
                        let now = going.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        going.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Failure>(number)
                    }
                })
            };
            Ok(ctx.all(0..count, 50, each).await?.iter().sum())
        }
    };
    let worker = onward.worker().serve(MANY, many).start().await.unwrap();
    let run = onward.start(MANY, &10_000).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 49_995_000);
    assert!(seen.load(Ordering::SeqCst) <= 50);
    worker.shutdown().await.unwrap();
}

const PICKY: Workflow<bool, Vec<String>> = Workflow::named("picky");

async fn picky(ctx: Ctx, all: bool) -> Result<Vec<String>, Failure> {
    let each = |number: u32| {
        ctx.step("check", move |_| async move {
            if number == 3 { Err(Failure::fatal("three")) } else { Ok(number) }
        })
    };
    let checked = ctx.all(0..6, 2, each);
    if all {
        let results = checked.results().await;
        return Ok(results.into_iter().map(|result| format!("{result:?}")).collect());
    }
    Ok(checked.await?.iter().map(u32::to_string).collect())
}

#[tokio::test]
async fn a_failure_ends_a_fan_out_or_is_one_of_its_results() {
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(PICKY, picky).start().await.unwrap();
    let failed = onward.start(PICKY, &false).await.unwrap();
    assert_eq!(failed.result().await.unwrap_err().failure().unwrap().message, "three");
    let steps = failed.history().await.unwrap().len();
    assert!((4..=5).contains(&steps), "what comes after the failure does not begin: {steps}");
    let all = onward.start(PICKY, &true).await.unwrap();
    let expected = ["Ok(0)", "Ok(1)", "Ok(2)", "Err(three)", "Ok(4)", "Ok(5)"];
    assert_eq!(all.result().await.unwrap(), expected);
    worker.shutdown().await.unwrap();
}
