//! The same for many items.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use onward::{Ctx, Failure, Onward, RunState, Workflow};

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

/// How many futures there are, and the most there were at a time.
#[derive(Clone, Default)]
struct Count {
    alive: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// A future that is counted for as long as it is kept.
struct Counted<F> {
    future: Pin<Box<F>>,
    count: Count,
}

impl Count {
    fn of<F: Future>(&self, future: F) -> Counted<F> {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(alive, Ordering::SeqCst);
        Counted { future: Box::pin(future), count: self.clone() }
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.get_mut().future.as_mut().poll(cx)
    }
}

impl<F> Drop for Counted<F> {
    fn drop(&mut self) {
        self.count.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ten thousand children: never more than the limit of them have not ended, and never more futures
/// than that are kept, however often the parent is parked and replayed.
async fn ten_thousand_children(onward: Onward) {
    const LIMIT: usize = 100;
    const CHILDREN: u64 = 10_000;
    let count = Count::default();
    let counted = count.clone();
    let parent = move |ctx: Ctx, children: u64| {
        let counted = counted.clone();
        async move {
            let each = |number: u64| counted.of(ctx.start(SQUARE, &number).result());
            let all: Vec<u64> = ctx.all(0..children, LIMIT, each).await?;
            assert!(all.iter().zip(0..).all(|(square, number)| *square == number * number));
            // The sum and not the list: an output is bounded.
            Ok(vec![all.len() as u64, all.iter().sum()])
        }
    };
    let worker = onward.worker().serve(SQUARE, square).serve(SQUARES, parent).concurrency(200);
    let worker = worker.start().await.unwrap();
    let run = onward.start(SQUARES, &CHILDREN).await.unwrap();
    let watching = async {
        let mut most = 0;
        loop {
            let stats = onward.stats().await.unwrap();
            let alive = [RunState::Queued, RunState::Running, RunState::Waiting];
            let live: u64 = alive.iter().filter_map(|state| stats.runs.get(state)).sum();
            // The parent is one of them.
            most = most.max(live.saturating_sub(1));
            assert!(most <= LIMIT as u64, "{:?}", stats.runs);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let result = tokio::select! {
        result = run.result() => result.unwrap(),
        never = watching => never,
    };
    assert_eq!(result, [CHILDREN, (0..CHILDREN).map(|number| number * number).sum()]);
    assert!(count.most.load(Ordering::SeqCst) <= LIMIT, "{:?}", count.most);
    assert_eq!(count.alive.load(Ordering::SeqCst), 0);
    worker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_children_are_alive_a_few_at_a_time_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    ten_thousand_children(Onward::open(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_children_are_alive_a_few_at_a_time_on_postgres() {
    let schema = crate::database::Schema::new();
    ten_thousand_children(Onward::open(&schema.url()).await.unwrap()).await;
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
