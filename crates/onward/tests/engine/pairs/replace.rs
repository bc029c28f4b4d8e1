//! Runs that another replaces, by its key or by their schedule: their children end with them.

use std::sync::Arc;
use std::time::Duration;

use onward::rusqlite::Connection;
use onward::{
    Ctx, Failure, Filter, OnConflict, Onward, Overlap, Query, RunHandle, RunId, RunState, Worker,
    Workflow,
};
use tokio::sync::Semaphore;

use super::soon;
use crate::stores::{on_each_store, until_state};

const WORK: Workflow<u32, u32> = Workflow::named("work");
const CHILD: Workflow<(), u32> = Workflow::named("child");
const KEY: &str = "order-7";

/// Serves runs that wait for a child, and whose undo holds up their end. The next sweep is far away.
struct Site {
    onward: Onward,
    gate: Arc<Semaphore>,
    worker: Worker,
}

impl Site {
    async fn new(onward: &Onward) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let worker = onward.worker().lease(Duration::from_secs(60)).linger(Duration::ZERO);
        let worker = worker.serve(CHILD, async |ctx: Ctx, ()| ctx.signal::<u32>("never").await);
        let of = Arc::clone(&gate);
        let worker = worker.serve(WORK, move |ctx: Ctx, _| {
            let gate = Arc::clone(&of);
            async move {
                let reserve = ctx.step("reserve", async |_| Ok::<_, Failure>(()));
                let reserve = reserve.undo(move |(), _| {
                    let gate = Arc::clone(&gate);
                    async move {
                        let _open = gate.acquire().await.unwrap();
                        Ok::<_, Failure>(())
                    }
                });
                reserve.await?;
                ctx.start(CHILD, &()).result().await
            }
        });
        Self { onward: onward.clone(), gate, worker: worker.start().await.unwrap() }
    }

    /// The child of a run that waits for it.
    async fn child_of(&self, parent: RunId) -> RunHandle<u32> {
        until_state(&self.onward.run(parent), RunState::Waiting).await;
        let filter = Filter { parent: Some(parent), ..Filter::default() };
        let query = Query { filter, ..Query::default() };
        let child = self.onward.list(query).await.unwrap().runs.remove(0);
        let child = self.onward.run(child.id).of_type();
        until_state(&child, RunState::Waiting).await;
        child
    }

    /// Asserts that a child ends while its parent cannot.
    async fn assert_ends(&self, child: RunHandle<u32>, parent: RunId) {
        assert_eq!(soon(child.ended()).await.unwrap().state, RunState::Cancelled);
        let parent = self.onward.run(parent);
        assert!(!parent.status().await.unwrap().state.is_final());
        self.gate.add_permits(1);
        assert_eq!(soon(parent.ended()).await.unwrap().state, RunState::Cancelled);
    }

    /// Starts a run, has it replaced, and asserts that its child ends with it.
    async fn assert_replaced(self, replace: impl AsyncFn(&Onward)) {
        let first = self.onward.start(WORK, &1).key(KEY).await.unwrap();
        let child = self.child_of(first.id()).await;
        replace(&self.onward).await;
        self.assert_ends(child, first.id()).await;
        let second = self.onward.by_key(WORK, KEY).await.unwrap();
        assert_ne!(second.id(), first.id());
        self.worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_is_replaced_takes_its_children_with_it() {
    on_each_store(async |onward| {
        let replace = async |onward: &Onward| {
            onward.start(WORK, &2).key(KEY).on_conflict(OnConflict::Replace).await.unwrap();
        };
        Site::new(&onward).await.assert_replaced(replace).await;
    })
    .await;
}

#[tokio::test]
async fn runs_that_a_backfill_replaces_take_their_children_with_them() {
    on_each_store(async |onward| {
        let replace = async |onward: &Onward| {
            let many = onward.start_many(WORK, [2]).key(|_| KEY);
            let many = many.on_conflict(OnConflict::Replace).await.unwrap();
            assert_eq!((many.started, many.existing, many.refused), (1, 0, 0));
        };
        Site::new(&onward).await.assert_replaced(replace).await;
    })
    .await;
}

/// The children are asked in the transaction that replaces their parent: nobody serves, and nobody sweeps.
#[tokio::test]
async fn a_run_that_is_replaced_in_a_transaction_takes_its_children_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onward.db");
    let onward = Onward::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let site = Site::new(&onward).await;
    let first = onward.start(WORK, &1).key(KEY).await.unwrap();
    let child = site.child_of(first.id()).await;
    site.worker.shutdown().await.unwrap();
    let mut db = Connection::open(&path).unwrap();
    let tx = db.transaction().unwrap();
    let start = onward.start(WORK, &2).key(KEY).on_conflict(OnConflict::Replace);
    start.in_sqlite(&tx).unwrap();
    assert_eq!(child.status().await.unwrap().state, RunState::Waiting);
    tx.commit().unwrap();
    assert_eq!(child.status().await.unwrap().state, RunState::Cancelled);
    assert!(!first.status().await.unwrap().state.is_final(), "it has something to undo");
}

#[tokio::test]
async fn a_trigger_that_cancels_the_run_before_reaches_its_children() {
    on_each_store(async |onward| {
        let site = Site::new(&onward).await;
        let daily = onward.schedule("daily");
        let setup = daily.clone().every(Duration::from_secs(86_400));
        setup.overlap(Overlap::CancelPrevious).start(WORK, &1).await.unwrap();
        let first = daily.trigger().await.unwrap().run().unwrap();
        let child = site.child_of(first).await;
        let second = daily.trigger().await.unwrap().run().unwrap();
        assert_ne!(second, first);
        site.assert_ends(child, first).await;
        site.worker.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_schedule_that_cancels_the_run_before_reaches_its_children() {
    on_each_store(async |onward| {
        let site = Site::new(&onward).await;
        let schedule = onward.schedule("often");
        let put = async |every| {
            let setup = schedule.clone().every(Duration::from_secs(every));
            setup.overlap(Overlap::CancelPrevious).start(WORK, &1).await.unwrap();
        };
        put(86_400).await;
        let first = schedule.trigger().await.unwrap().run().unwrap();
        let child = site.child_of(first).await;
        put(1).await;
        site.assert_ends(child, first).await;
        schedule.remove().await.unwrap();
        site.worker.shutdown().await.unwrap();
    })
    .await;
}
