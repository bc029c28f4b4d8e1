//! Signals that came for a run and were not given to it before it went on as another.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onward::conformance::{Held, LossyStore};
use onward::store::MemoryStore;
use onward::{Ctx, Failure, Onward, RunHandle, RunState, Workflow};
use tokio::sync::Notify;

use crate::stores::on_each_store;

const TALLY: Workflow<u32, Vec<u32>> = Workflow::named("tally");

/// The run that goes on takes what it is given, until it is told to end.
async fn all(ctx: &Ctx) -> Result<Vec<u32>, Failure> {
    let mut all = Vec::new();
    loop {
        match ctx.signal("add").await? {
            0 => return Ok(all),
            number => all.push(number),
        }
    }
}

/// Sends three signals with keys, and again, which changes nothing.
async fn send(run: &RunHandle<Vec<u32>>) {
    for number in [1, 2, 3, 1, 2, 3] {
        run.signal("add", &number).key(format!("click-{number}")).await.unwrap();
    }
}

/// What is sent after the run went on is the rest of it; so are repeats, which are known.
async fn assert_all_come_once(run: &RunHandle<Vec<u32>>) {
    let went_on = async {
        while run.own_status().await.unwrap().state != RunState::Completed {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), went_on).await.expect("it goes on");
    send(run).await;
    run.signal("add", &0).await.unwrap();
    let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
    assert_eq!(result.expect("it ends").unwrap(), [1, 2, 3]);
}

/// Both waits have their signals recorded at once; the first is delivered, and the function returns.
#[tokio::test]
async fn signals_that_are_recorded_and_not_delivered_are_handed_on() {
    on_each_store(async |onward| {
        let run = onward.start(TALLY, &0).await.unwrap();
        run.signal("stop", &()).await.unwrap();
        send(&run).await;
        let worker = onward.worker().serve(TALLY, async |ctx: Ctx, lap: u32| {
            if lap == 1 {
                return all(&ctx).await;
            }
            let (one, two) = (ctx.signal::<u32>("add"), ctx.signal::<u32>("add"));
            tokio::select! {
                biased;
                stop = ctx.signal::<()>("stop") => stop?,
                one = one => return Err(Failure::fatal(format!("{one:?}"))),
                two = two => return Err(Failure::fatal(format!("{two:?}"))),
            }
            ctx.continue_as(TALLY, &1)
        });
        let worker = worker.start().await.unwrap();
        assert_all_come_once(&run).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The function returns in the very poll in which its wait is about to have the signal recorded.
#[tokio::test]
async fn signals_that_are_about_to_be_recorded_are_handed_on() {
    on_each_store(async |onward| {
        let run = onward.start(TALLY, &0).await.unwrap();
        send(&run).await;
        let worker = onward.worker().serve(TALLY, async |ctx: Ctx, lap: u32| {
            if lap == 1 {
                return all(&ctx).await;
            }
            let mut polls = 0;
            let allowed = poll_fn(|_| {
                polls += 1;
                if polls < 2 { Poll::Pending } else { Poll::Ready(()) }
            });
            tokio::select! {
                biased;
                add = ctx.signal::<u32>("add") => return Err(Failure::fatal(format!("{add:?}"))),
                () = allowed => {}
            }
            ctx.continue_as(TALLY, &1)
        });
        let worker = worker.start().await.unwrap();
        assert_all_come_once(&run).await;
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The function returns while the record of the signal is on its way to the store.
#[tokio::test]
async fn signals_whose_records_are_on_their_way_are_handed_on() {
    let store = Arc::new(LossyStore::around(Arc::new(MemoryStore::new())));
    let onward = Onward::with_store(store.clone());
    let (leave, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let of = (Arc::clone(&leave), Arc::clone(&left));
    let run = onward.start(TALLY, &0).await.unwrap();
    send(&run).await;
    store.hold(Held::Records);
    let worker = onward.worker().serve(TALLY, move |ctx: Ctx, lap: u32| {
        let (leave, left) = of.clone();
        async move {
            if lap == 1 {
                return all(&ctx).await;
            }
            // Two, since the result of one alone is shown before it is on disk.
            let (one, two) = (ctx.signal::<u32>("add"), ctx.signal::<u32>("add"));
            tokio::select! {
                biased;
                one = one => return Err(Failure::fatal(format!("{one:?}"))),
                two = two => return Err(Failure::fatal(format!("{two:?}"))),
                () = leave.notified() => left.notify_one(),
            }
            ctx.continue_as(TALLY, &1)
        }
    });
    let worker = worker.start().await.unwrap();
    let asked = async {
        while store.asked(Held::Records) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asked).await.expect("the signal is recorded");
    leave.notify_one();
    tokio::time::timeout(Duration::from_secs(20), left.notified()).await.expect("it returns");
    store.let_go(Held::Records);
    assert_all_come_once(&run).await;
    worker.shutdown().await.unwrap();
}
