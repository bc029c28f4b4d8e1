//! A process that a test can kill: a client on a store that goes silent.

use std::sync::Arc;

use onward::conformance::{Death, LossyStore};
use onward::store::{MemoryStore, Store};
use onward::{Onward, Worker};

use crate::listener::heed_watchdog;

/// The data, which outlives the processes.
pub(crate) fn data() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// One process on the data. None of its runs may miss a wake.
pub(crate) struct Process {
    pub(crate) store: Arc<LossyStore>,
    pub(crate) onward: Onward,
}

impl Process {
    pub(crate) fn on(data: &Arc<dyn Store>) -> Self {
        heed_watchdog();
        let store = Arc::new(LossyStore::around(Arc::clone(data)));
        let onward = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
        Self { store, onward }
    }

    /// Nothing that the process does from here on reaches the data, and its runs are given back
    /// as a sweep would do it.
    pub(crate) async fn kill(self, worker: Worker) {
        self.store.die_after(0, Death::Before);
        self.store.inner().leave(worker.id()).await.unwrap();
    }
}
