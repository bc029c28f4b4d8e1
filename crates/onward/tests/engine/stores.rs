//! The stores that each test is played on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onward::store::{MemoryStore, SqliteOptions, SqliteStore, Store};
use onward::{Onward, RunHandle, RunState, TestClock};

use crate::database::{self, Schema};
use crate::listener::heed_watchdog;

/// Plays a test on every store. None of its runs may miss a wake.
pub(crate) async fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Onward) -> F) {
    heed_watchdog();
    test(Onward::open("memory:").await.unwrap()).await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    test(Onward::open(&url).await.unwrap()).await;
    let schema = Schema::lent();
    test(Onward::open(&schema.url()).await.unwrap()).await;
}

/// Plays a test on every store, each with a clock of its own that the test moves.
pub(crate) async fn on_each_clocked_store<F: Future<Output = ()>>(
    test: impl Fn(Arc<dyn Store>, TestClock) -> F,
) {
    heed_watchdog();
    let clock = TestClock::new();
    test(Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))), clock).await;
    let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::new());
    let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() };
    let sqlite = SqliteStore::open_with(folder.path().join("onward.db"), options).unwrap();
    test(Arc::new(sqlite), clock).await;
    let (schema, clock) = (Schema::lent(), TestClock::new());
    test(database::open(&schema, &clock).await, clock).await;
}

/// Waits until a run is in a state.
pub(crate) async fn until_state<O>(run: &RunHandle<O>, state: RunState) {
    let waiting = async {
        while run.status().await.unwrap().state != state {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(waited.is_ok(), "the run is not {state}: {:?}", run.status().await);
}
