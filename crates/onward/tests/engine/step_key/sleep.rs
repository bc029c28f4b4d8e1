//! A step with a key beside a sleep, in one `select!`: whoever comes first, the key is somebody's or free.

use onward::Worker;

use super::*;

/// Serves a step with the key beside a sleep. A body for the input 0 never ends.
async fn serve_beside(onward: &Onward, effects: &Counter, sleep: Duration) -> Worker {
    let effects = Arc::clone(effects);
    let worker = onward.worker().linger(Duration::ZERO).serve(WORK, move |ctx: Ctx, n| {
        let effects = Arc::clone(&effects);
        async move {
            let body = async |_| {
                count(&effects);
                if n == 0 {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(format!("by {n}"))
            };
            let sent = tokio::select! {
                sent = ctx.step("send", body).key(KEY) => sent?,
                () = ctx.sleep(sleep) => "too late".to_owned(),
            };
            // The other branch is gone, and its key with it, before anything follows.
            ctx.step("go on", async |_| Ok::<_, Failure>(())).await?;
            Ok(sent)
        }
    });
    worker.start().await.unwrap()
}

const SOON: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_body_that_a_sleep_outlasts_frees_its_key() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let worker = serve_beside(&onward, &effects, SOON).await;
        let slow = onward.start(WORK, &0).await.unwrap();
        assert_eq!(slow.result().await.unwrap(), "too late");
        assert_eq!(counted(&effects), 1);
        let next = onward.start(WORK, &2).await.unwrap();
        assert_eq!(next.result().await.unwrap(), "by 2", "it does not wait for a lease to end");
        assert_eq!(counted(&effects), 2);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// The run is parked for whichever comes first: a look at the key, or the end of the sleep.
#[tokio::test]
async fn a_step_that_waits_for_its_key_beside_a_sleep_leaves_it_to_others() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let keys = onward.store().keys().unwrap();
        let stranger = held_by_stranger(keys).await;
        let worker = serve_beside(&onward, &effects, SOON).await;
        let run = onward.start(WORK, &1).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "too late");
        assert_eq!(onward.key_duplicates(KEY).await.unwrap().count, 1, "it had asked for it");
        keys.settle_key(stranger, SettleKey::free()).await.unwrap();
        assert_eq!(onward.step_key(KEY).await.unwrap(), None, "nobody has taken it");
        assert_eq!(counted(&effects), 0);
        let next = onward.start(WORK, &2).await.unwrap();
        assert_eq!(next.result().await.unwrap(), "by 2");
        worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_step_that_is_faster_than_a_sleep_keeps_its_result() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let worker = serve_beside(&onward, &effects, Duration::from_secs(3600)).await;
        for n in 1..=2 {
            let run = onward.start(WORK, &n).await.unwrap();
            assert_eq!(run.result().await.unwrap(), "by 1");
            let steps: Vec<_> =
                run.history().await.unwrap().into_iter().map(|record| record.step).collect();
            assert_eq!(steps, [format!("send#@{KEY}"), "go on".to_owned()]);
        }
        assert_eq!(counted(&effects), 1);
        worker.shutdown().await.unwrap();
    })
    .await;
}
