//! Steps with a key whose run is told to stop, or ends: nothing begins any more, and no end is lost.

use std::future::poll_fn;
use std::sync::atomic::AtomicBool;
use std::task::Poll;

use onward::Worker;
use onward::conformance::{Held, LossyStore};
use onward::store::{Answer, Duplicates, KeyLease, StepKey, StepKeyPage, Store, TakeKey};
use tokio::sync::watch;

use super::*;

/// Long enough for whatever a test has to do meanwhile.
const LONG: Duration = Duration::from_secs(600);

/// A worker for runs of one step, which may be one that must not execute twice; a run of 9 executes a
/// body until it is cancelled, and says so then.
struct Site {
    onward: Onward,
    effects: Counter,
    told: Arc<Notify>,
    once: bool,
    keyed: bool,
}

impl Site {
    fn new(onward: Onward) -> Self {
        let (effects, told) = Default::default();
        Self { onward, effects, told, once: false, keyed: true }
    }

    async fn serve(&self) -> Worker {
        let shared = (Arc::clone(&self.effects), Arc::clone(&self.told));
        let (once, keyed) = (self.once, self.keyed);
        let worker = self.onward.worker().serve(WORK, move |ctx: Ctx, n| {
            let (effects, told) = shared.clone();
            async move {
                let witness = ctx.step("witness", async |step| {
                    step.cancelled().await;
                    told.notify_one();
                    Ok::<_, Failure>("told".to_owned())
                });
                if n == 9 {
                    return witness.await;
                }
                let send =
                    ctx.step("send", async |_| Ok::<_, Failure>(count(&effects).to_string()));
                let send = if once { send.at_most_once() } else { send };
                if keyed { send.key(KEY).await } else { send.await }
            }
        });
        worker.linger(LONG).cancel_grace(LONG).start().await.unwrap()
    }

    /// Asks a run to stop, in this way, and waits until its driver knows. Another run that is cancelled
    /// after it hears of that no sooner: a worker is told of both marks at once, or of the former first.
    async fn stop(&self, run: &RunHandle<String>, how: &str) {
        let witness = self.onward.start(WORK, &9).await.unwrap();
        in_state(&witness, RunState::Running).await;
        match how {
            "is cancelled" => run.cancel().await.unwrap(),
            _ => run.pause().await.unwrap(),
        }
        witness.cancel().await.unwrap();
        self.told.notified().await;
    }
}

#[tokio::test]
async fn a_key_that_comes_while_the_run_stops_begins_nothing() {
    on_each_store(|onward: Onward| async move {
        for (how, once) in [("is cancelled", false), ("is paused", false), ("is paused", true)] {
            let site = Site { once, ..Site::new(onward.clone()) };
            let stranger = held_by_stranger(onward.store().keys().unwrap()).await;
            let worker = site.serve().await;
            let run = onward.start(WORK, &1).await.unwrap();
            let waits = async || onward.key_duplicates(KEY).await.unwrap().count == 1;
            until("it waits for the key", waits).await;
            site.stop(&run, how).await;
            // The run does not stop before it is answered for the key.
            onward.store().keys().unwrap().settle_key(stranger, SettleKey::free()).await.unwrap();
            let stopped = async || run.status().await.unwrap().state != RunState::Running;
            until("it stops", stopped).await;
            assert_eq!(counted(&site.effects), 0, "it {how}");
            assert_eq!(onward.step_key(KEY).await.unwrap(), None, "it {how}");
            if how == "is paused" {
                run.resume().await.unwrap();
                assert_eq!(run.result().await.unwrap(), "1", "nothing was interrupted");
            }
            onward.release_key(KEY).await.unwrap();
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}

/// With a shutdown in place of a pause.
#[tokio::test]
async fn a_key_that_comes_while_the_worker_ends_begins_nothing() {
    on_each_store(|onward: Onward| async move {
        let site = Site::new(onward.clone());
        let stranger = held_by_stranger(onward.store().keys().unwrap()).await;
        let worker = site.serve().await;
        let run = onward.start(WORK, &1).await.unwrap();
        let waits = async || onward.key_duplicates(KEY).await.unwrap().count == 1;
        until("it waits for the key", waits).await;
        let shutdown = tokio::spawn(worker.shutdown());
        // It tells its drivers at once.
        tokio::task::yield_now().await;
        onward.store().keys().unwrap().settle_key(stranger, SettleKey::free()).await.unwrap();
        shutdown.await.unwrap().unwrap();
        assert_eq!(counted(&site.effects), 0);
        assert_eq!(onward.step_key(KEY).await.unwrap(), None);
        let worker = site.serve().await;
        assert_eq!(run.result().await.unwrap(), "1");
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A body that must not execute twice begins after its begin is recorded, and a stop may come meanwhile.
/// A run that ends has no use for it. One that is paused would find it interrupted, so there it begins.
#[tokio::test]
async fn a_recorded_begin_leads_to_a_body_unless_the_run_ends() {
    on_each_store(|onward: Onward| async move {
        for (how, bodies) in [("is cancelled", 0), ("is paused", 1)] {
            let store = Arc::new(LossyStore::around(Arc::clone(onward.store())));
            let client = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
            let site = Site { once: true, keyed: false, ..Site::new(client) };
            let worker = site.serve().await;
            store.hold(Held::Records);
            let run = site.onward.start(WORK, &1).await.unwrap();
            until("its begin is sent", async || store.asked(Held::Records) == 1).await;
            site.stop(&run, how).await;
            store.let_go(Held::Records);
            let stopped = async || run.status().await.unwrap().state != RunState::Running;
            until("it stops", stopped).await;
            assert_eq!(counted(&site.effects), bodies, "it {how}");
            if how == "is paused" {
                assert_eq!(run.result().await.unwrap(), "1");
            }
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}

/// Serves a step whose body ends in the poll in which the function ends too, in this way. If the key
/// says what came of it, the function returns that.
async fn serve_last_poll(
    onward: &Onward,
    began: &Counter,
    effects: &Counter,
    how: &'static str,
) -> Worker {
    let (began, effects) = (Arc::clone(began), Arc::clone(effects));
    let worker = onward.worker().serve(WORK, move |ctx: Ctx, _| {
        let (began, effects) = (Arc::clone(&began), Arc::clone(&effects));
        async move {
            let ended = AtomicBool::new(false);
            let body = async |step: onward::Step| {
                count(&began);
                if how == "is cancelled" {
                    step.cancelled().await;
                }
                let number = count(&effects).to_string();
                ended.store(true, Ordering::SeqCst);
                Ok::<_, Failure>(number)
            };
            let over = poll_fn(|_| match ended.load(Ordering::SeqCst) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            });
            tokio::select! {
                biased;
                sent = ctx.step("send", body).key(KEY).at_most_once() => sent,
                () = over => match how {
                    "fails" => Err(Failure::fatal("no")),
                    "panics" => panic!("on purpose"),
                    _ => Ok("left".to_owned()),
                },
            }
        }
    });
    worker.cancel_grace(LONG).start().await.unwrap()
}

#[tokio::test]
async fn an_end_in_the_last_poll_is_kept_with_the_key() {
    on_each_store(|onward: Onward| async move {
        for how in ["returns", "fails", "panics", "is cancelled"] {
            let (began, effects) = (Counter::default(), Counter::default());
            let worker = serve_last_poll(&onward, &began, &effects, how).await;
            let first = onward.start(WORK, &1).await.unwrap();
            if how == "is cancelled" {
                // Not sooner: a body whose key comes while its run stops does not begin.
                until("its body executes", async || counted(&began) > 0).await;
                first.cancel().await.unwrap();
            }
            first.ended().await.unwrap();
            let key = onward.step_key(KEY).await.unwrap().expect("it was kept");
            assert_eq!(
                (key.state, key.result),
                (KeyState::Done, Some(Json::of("1").unwrap())),
                "{how}"
            );
            assert_eq!(onward.start(WORK, &2).await.unwrap().result().await.unwrap(), "1", "{how}");
            assert_eq!(counted(&effects), 1, "it {how}");
            onward.release_key(KEY).await.unwrap();
            worker.shutdown().await.unwrap();
        }
    })
    .await;
}

/// Keys whose ends are on their way for as long as they are held back.
#[derive(Debug)]
struct SlowKeys {
    keys: MemoryStore,
    ends: AtomicU32,
    held_back: watch::Sender<bool>,
}

impl Keys for SlowKeys {
    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()> {
        self.ends.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let _ = self.held_back.subscribe().wait_for(|held_back| !held_back).await;
            self.keys.settle_key(lease, settle).await
        })
    }

    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        self.keys.take_key(take)
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        self.keys.renew_key(lease, lease_ms)
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        self.keys.release_key(key)
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        self.keys.step_key(key)
    }

    fn step_keys(&self, after: Option<String>, limit: usize) -> Answer<'_, StepKeyPage> {
        self.keys.step_keys(after, limit)
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        self.keys.key_duplicates(key)
    }

    fn import_key(&self, key: StepKey) -> Answer<'_, bool> {
        self.keys.import_key(key)
    }
}

/// The body has ended, and its end is longer on its way to the key than anybody waits for it.
#[tokio::test(start_paused = true)]
async fn an_end_on_its_way_is_kept_though_nobody_waits_for_it() {
    for how in ["is cancelled", "is shut down"] {
        let keys = MemoryStore::new();
        let held_back = watch::Sender::new(true);
        let keys = Arc::new(SlowKeys { keys, ends: AtomicU32::new(0), held_back });
        let onward = Onward::open("memory:").await.unwrap().with_keys(keys.clone());
        let effects = Counter::default();
        let worker = serve(&onward, &effects).cancel_grace(Duration::ZERO);
        let worker = worker.shutdown_grace(Duration::ZERO).start().await.unwrap();
        let run = onward.start(WORK, &1).await.unwrap();
        until("its end is on its way", async || keys.ends.load(Ordering::SeqCst) == 1).await;
        if how == "is cancelled" {
            run.cancel().await.unwrap();
            run.ended().await.unwrap();
        } else {
            worker.shutdown().await.unwrap();
        }
        keys.held_back.send_replace(false);
        let state = async || onward.step_key(KEY).await.unwrap().map(|key| key.state);
        until("it is kept", async || state().await == Some(KeyState::Done)).await;
        let worker = serve(&onward, &effects).start().await.unwrap();
        let again = onward.start(WORK, &2).await.unwrap();
        assert_eq!(again.result().await.unwrap(), format!("1 as key/{KEY}"), "it {how}");
        assert_eq!(counted(&effects), 1, "it {how}");
        worker.shutdown().await.unwrap();
    }
}
