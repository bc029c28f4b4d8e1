//! A store that goes back to an earlier state under a live worker: nothing is left with a hole in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::conformance::LossyStore;
use onward::store::Store;
use onward::{Ctx, Failure, Onward, Workflow};
use tokio::sync::Notify;

use crate::stores::on_each_store;

const WORK: Workflow<(), u32> = Workflow::named("work");

/// The server was promoted, or restored from a backup: the worker gives its runs back and joins anew, and what
/// it executes meanwhile is not lost.
#[tokio::test]
async fn a_worker_joins_a_server_anew_that_is_another_by_now() {
    const WAIT: Workflow<(), u32> = Workflow::named("wait");
    on_each_store(async |data| {
        let store = Arc::new(LossyStore::around(Arc::clone(data.store())));
        let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
        let (bodies, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let (counted, opened) = (Arc::clone(&bodies), Arc::clone(&gate));
        let worker =
            onward.worker().lease(Duration::from_millis(300)).linger(Duration::from_secs(60));
        let worker = worker.serve(WAIT, move |ctx: Ctx, ()| {
            let (bodies, gate) = (Arc::clone(&counted), Arc::clone(&opened));
            async move {
                let body = async |_| {
                    bodies.fetch_add(1, Ordering::SeqCst);
                    gate.notified().await;
                    Ok::<_, Failure>(1)
                };
                let one = ctx.step("one", body).at_most_once().await?;
                Ok(one + ctx.signal::<u32>("go").await?)
            }
        });
        let worker = worker.start().await.unwrap();
        let run = onward.start(WAIT, &()).await.unwrap();
        let executes = onward.start(WAIT, &()).await.unwrap();
        let until = async |what: &str, holds: &dyn Fn() -> bool| {
            let waiting = async {
                while !holds() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            assert!(tokio::time::timeout(Duration::from_secs(20), waiting).await.is_ok(), "{what}");
        };
        until("both execute", &|| bodies.load(Ordering::SeqCst) == 2).await;
        store.move_on();
        // The one whose body ends waits for its signal in memory; it is given back, and claimed anew.
        gate.notify_one();
        let first = run.status().await.unwrap().worker;
        let anew = async {
            loop {
                let (one, two) = (run.status().await.unwrap(), executes.status().await.unwrap());
                if [&one, &two].iter().any(|run| run.attempt == 2 && run.worker != first) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), anew).await.is_ok());
        gate.notify_one();
        for run in [run, executes] {
            run.signal("go", &1).await.unwrap();
            assert_eq!(run.result().await.unwrap(), 2, "the body was not interrupted");
        }
        assert_eq!(bodies.load(Ordering::SeqCst), 2);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Each step in turn is acknowledged and gone.
#[tokio::test]
async fn a_step_that_is_gone_executes_again_before_what_follows_it() {
    on_each_store(async |data| {
        for gone in 0..4 {
            let store = Arc::new(LossyStore::around(Arc::clone(data.store())));
            let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
            let bodies = Arc::new(AtomicU32::new(0));
            let (counted, forgetful) = (Arc::clone(&bodies), Arc::clone(&store));
            let worker = onward.worker().serve(WORK, move |ctx: Ctx, ()| {
                let (bodies, store) = (Arc::clone(&counted), Arc::clone(&forgetful));
                async move {
                    let mut sum = 0;
                    for number in 0..4 {
                        let body = async |_| {
                            let executed = bodies.fetch_add(1, Ordering::SeqCst);
                            store.forget_next(usize::from(executed == gone));
                            // Beside something else, so that the last step has a write of its own.
                            tokio::time::sleep(Duration::from_millis(2)).await;
                            Ok::<_, Failure>(number)
                        };
                        let nap = ctx.sleep(Duration::from_millis(1));
                        let (number, ()) = tokio::join!(ctx.step("count", body), nap);
                        sum += number?;
                    }
                    Ok(sum)
                }
            });
            let worker = worker.start().await.unwrap();
            let run = onward.start(WORK, &()).await.unwrap();
            let result = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
            assert_eq!(result.expect("it goes on").unwrap(), 6);
            // The one that is gone, and the one that had begun behind it.
            let again = bodies.load(Ordering::SeqCst) - 4;
            assert!((1..=2).contains(&again), "{again} bodies executed again");
            let history = run.history().await.unwrap();
            let of =
                |name: &str| history.iter().filter(|record| record.step.starts_with(name)).count();
            assert_eq!((of("count"), of("$sleep")), (4, 4), "{history:?}");
            assert_eq!(run.status().await.unwrap().attempt, 2);
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}
