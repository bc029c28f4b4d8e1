//! What the SQLite store may take, bytes in a commit and on disk, and what it does with its files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::future::{BoxFuture, join_all};
use onward::limits::{COPY_ROWS_MAX, PAGE_ROWS_MAX, SWEEP_BATCH_MAX};
use onward::store::*;
use onward::store::{SqliteOptions, SqliteStore};
use onward::{Clock, Code, Json, Onward, RunState, Timestamp, WorkerId};

use super::sqlite_store::{Temp, claim_of, done, joined, json, new_run, new_worker, started};

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
    started.into_iter().flat_map(Result::unwrap).for_each(|started| assert!(started.is_ok()));
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

#[tokio::test]
async fn a_prune_is_bounded_in_rows() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    store.start((0..10).map(|_| new_run()).collect()).await.unwrap();
    for claimed in store.claim(claim_of(worker, 1)).await.unwrap().runs {
        let records: Vec<_> =
            (1..=2_000).map(|seq| done(&store, seq, &format!("step {seq}"))).collect();
        store.record(claimed.lease, records.into()).await.unwrap();
        let end = End::Completed(json("1"));
        let settle = Settle { follows: Vec::new(), records: Vec::new(), end, unasked: Vec::new() };
        store.settle(claimed.lease, settle).await.unwrap();
    }
    let mut passes = Vec::new();
    loop {
        let pruned = store.prune(Prune::older_than(std::time::Duration::ZERO)).await.unwrap();
        passes.push(pruned.runs);
        if !pruned.more {
            break;
        }
    }
    // Three times two thousand records are past the limit of five thousand.
    assert_eq!(passes, [3, 3, 3, 1]);
    assert!(store.list(Query::default()).await.unwrap().runs.is_empty());
}

#[tokio::test]
async fn a_batch_of_a_copy_is_bounded_in_rows() {
    let temp = Temp::new();
    let store = temp.open();
    store.start((0..3).map(|_| new_run()).collect()).await.unwrap();
    let records = "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into onward_records (run, seq, step, slot, kind, body, try_number, attempt, began_at, at, foreign_await)
        select r.no, i, 'step ' || i, 0, 'done', '1', 1, 1, 1, 1, 0 from onward_runs r, n";
    temp.raw().execute(records, [(COPY_ROWS_MAX / 2) as i64]).unwrap();
    let first = store.export(None, 10).await.unwrap();
    assert_eq!(first.len(), 2);
    assert_eq!(store.export(Some(first[1].run.id), 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_worker_leaves_in_commits_that_are_bounded() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    for _ in 0..=SWEEP_BATCH_MAX / 100 {
        store.start((0..100).map(|_| new_run()).collect()).await.unwrap();
    }
    let mut held = 0;
    for ticket in 1.. {
        let claims = store.claim(Claim { limit: 200, ..claim_of(worker, ticket) }).await.unwrap();
        held += claims.runs.len();
        if claims.runs.is_empty() {
            break;
        }
    }
    assert!(held > SWEEP_BATCH_MAX, "{held}");
    let before = store.commits();
    store.leave(worker).await.unwrap();
    assert_eq!(store.commits() - before, 2);
    let stats = store.stats().await.unwrap();
    assert!(stats.workers.is_empty());
    let page = store.list(Query { limit: PAGE_ROWS_MAX, ..Query::default() }).await.unwrap();
    assert!(page.runs.iter().all(|run| run.state == RunState::Queued && run.crashes == 0));
}

#[tokio::test]
async fn the_log_is_small_again_after_a_long_reader() {
    let temp = Temp::new();
    let store = temp.open();
    let log = || std::fs::metadata(temp.folder.path().join("onward.db-wal")).unwrap().len();
    let reader = temp.raw();
    reader.execute_batch("begin; select count(*) from onward_runs").unwrap();
    for _ in 0..48 {
        store.start(vec![heavy(1024 * 1024)]).await.unwrap();
    }
    assert!(log() > 40 * 1024 * 1024, "the reader kept {} bytes", log());
    reader.execute_batch("rollback").unwrap();
    // Enough for the log to be copied back, and one more, with which it begins anew.
    for _ in 0..12 {
        store.start(vec![heavy(1024 * 1024)]).await.unwrap();
    }
    assert!(log() <= 32 * 1024 * 1024, "{} bytes are left", log());
}

#[test]
fn a_sync_reaches_the_disk_where_that_takes_more() {
    let temp = Temp::new();
    let store = temp.open();
    assert_eq!(store.writer_pragma("fullfsync"), Some(1));
    assert_eq!(store.writer_pragma("checkpoint_fullfsync"), Some(1));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn files_that_the_store_makes_are_its_owners_alone() {
    let temp = Temp::new();
    let store = temp.open();
    joined(&store).await;
    let folder = temp.folder.path();
    for file in ["onward.db", "onward.db-wal", "onward.db-shm"] {
        assert_eq!(mode(&folder.join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&folder.join("onward.db-workers")), 0o700);
    drop(store);
    // A file that is there keeps what its owner decided.
    std::fs::set_permissions(temp.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
    drop(temp.open());
    assert_eq!(mode(&temp.path()), 0o640);
}

#[tokio::test]
async fn a_store_stays_with_its_file_whatever_led_there() {
    let temp = Temp::new();
    drop(temp.open());
    let link = temp.folder.path().join("link.db");
    symlink(temp.path(), &link).unwrap();
    let store = SqliteStore::open(&link).unwrap();
    let worker = joined(&store).await;
    // Whoever opens the file by its own name finds this worker alive.
    assert!(temp.folder.path().join("onward.db-workers").join(worker.to_string()).exists());
    std::fs::remove_file(&link).unwrap();
    let run = started(&store).await;
    assert!(store.get(Which::Id(run)).await.unwrap().is_some());
    assert_eq!(store.list(Query::default()).await.unwrap().runs.len(), 1);
}

#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_takes_no_write() {
    for put_another in [false, true] {
        let temp = Temp::new();
        let store = temp.open();
        let worker = joined(&store).await;
        store.renew(worker).await.unwrap();
        std::fs::rename(temp.path(), temp.folder.path().join("before.db")).unwrap();
        if put_another {
            std::fs::write(temp.path(), "").unwrap();
        }
        let refused = store.renew(worker).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable(Outage::Replaced, _)), "{refused}");
        let refused = store.start(vec![new_run()]).await.unwrap_err();
        assert_eq!(onward::Error::from(refused).code(), Code::StoreReplaced);
    }
}

#[tokio::test]
async fn a_sweep_removes_the_lock_files_of_the_dead() {
    let temp = Temp::new();
    let store = temp.open();
    let worker = joined(&store).await;
    let file =
        |worker: WorkerId| temp.folder.path().join("onward.db-workers").join(worker.to_string());
    // Its process died before it was entered, or long after it was marked.
    let dead = WorkerId::new();
    std::fs::write(file(dead), "").unwrap();
    store.sweep(Sweep { worker, expired: ExpiredLeases::Leave }).await.unwrap();
    assert!(!file(dead).exists());
    assert!(file(worker).exists());
}

#[tokio::test]
async fn a_uri_is_no_path() {
    let refused = Onward::open("sqlite:file:onward.db").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidOption);
    assert!(refused.to_string().contains("leave out file:"), "{refused}");
}
