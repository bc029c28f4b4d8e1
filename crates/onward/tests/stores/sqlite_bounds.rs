//! What the SQLite store may take: bytes in a commit, bytes on disk, time of the only writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::future::{BoxFuture, join_all};
use onward::store::*;
use onward::store::{SqliteOptions, SqliteStore};
use onward::{Clock, Json, Timestamp};

use super::sqlite_store::{Temp, joined, new_run, new_worker};

/// Each look at it is a millisecond later, so that the times of what was written show the order of commits.
#[derive(Debug, Default)]
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep_until(&self, _: Timestamp) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A run with an input of this many bytes.
fn heavy(bytes: usize) -> NewRun {
    NewRun { input: Json::of(&"x".repeat(bytes)).unwrap(), ..new_run() }
}

/// Twenty-four starts of a megabyte each, which wait for the writer at the same time, and what is done
/// then, before the writer goes on.
async fn behind_heavy_starts<T>(
    temp: &Temp,
    store: &SqliteStore,
    then: impl AsyncFnOnce() -> T,
) -> T {
    let other = temp.raw();
    other.execute_batch("begin immediate").unwrap();
    let starts: Vec<_> = (0..24).map(|_| store.start(vec![heavy(1024 * 1024)])).collect();
    let release = async { other.execute_batch("rollback").unwrap() };
    let (started, then, ()) = futures::join!(join_all(starts), then(), release);
    started.into_iter().flat_map(Result::unwrap).for_each(|started| drop(started.unwrap()));
    then
}

#[tokio::test]
async fn a_group_commit_is_bounded_in_bytes() {
    let temp = Temp::new();
    let store = temp.open();
    let before = store.commits();
    behind_heavy_starts(&temp, &store, async || {}).await;
    let commits = store.commits() - before;
    assert!(commits >= 3, "24 MiB went into {commits} commits");
    let page = store.list(Query { limit: 100, ..Query::default() }).await.unwrap();
    assert_eq!(page.runs.len(), 24);
}

#[tokio::test]
async fn a_renewal_waits_for_one_commit_of_payloads_at_most() {
    let temp = Temp::new();
    let options = SqliteOptions { clock: Arc::new(Ticking::default()), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(temp.path(), options).unwrap();
    let worker = joined(&store).await;
    let renewed =
        behind_heavy_starts(&temp, &store, async || store.renew(worker).await.unwrap()).await;
    let renewed_at = renewed.until.as_millis() - new_worker().lease_ms;
    let page = store.list(Query { limit: 100, ..Query::default() }).await.unwrap();
    let mut before: Vec<_> = page.runs.iter().map(|run| run.created_at.as_millis()).collect();
    before.retain(|at| *at < renewed_at);
    before.dedup();
    assert!(before.len() <= 1, "commits before the renewal: {before:?}");
    // Its time is that of its own commit.
    assert!(page.runs.iter().all(|run| run.created_at.as_millis() != renewed_at));
}
