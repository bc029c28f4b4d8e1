//! The stores that each test is played on.

use std::future::Future;
use std::time::Duration;

use onward::{Onward, RunHandle, RunState};

use crate::database::Schema;
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
