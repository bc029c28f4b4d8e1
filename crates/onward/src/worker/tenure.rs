//! A worker's tenure: the time between joining a store and leaving it or losing the lease.
//!
//! Owns: whether the lease may still be counted on, and the thread that renews it. The thread is
//! its own, so that a busy runtime does not lose the lease. Never touches a run.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::WorkerId;
use crate::store::{self, Store};

/// Renewals in one lease: two may fail before the lease is in danger.
const RENEWALS_PER_LEASE: u32 = 3;

/// One membership of a worker in its store.
pub(crate) struct Tenure {
    pub(crate) worker: WorkerId,
    lease: Duration,
    born: Instant,
    /// Until when, in milliseconds since `born`, the last renewal holds.
    fresh_until_ms: AtomicU64,
    /// Since when the lease has been renewed without a gap.
    steady_since: Mutex<Instant>,
    over: AtomicBool,
    ended: Notify,
    /// Ends the renewal thread when it is dropped.
    _renewing: Mutex<mpsc::Sender<()>>,
}

impl Tenure {
    /// Starts the renewal thread for a worker that joined at `joined`.
    pub(crate) fn begin(
        store: Arc<dyn Store>,
        worker: WorkerId,
        lease: Duration,
        joined: Instant,
    ) -> std::io::Result<Arc<Self>> {
        let (renewing, ended) = mpsc::channel();
        let tenure = Arc::new(Self {
            worker,
            lease,
            born: joined,
            fresh_until_ms: AtomicU64::new(as_millis(lease)),
            steady_since: Mutex::new(joined),
            over: AtomicBool::new(false),
            ended: Notify::new(),
            _renewing: Mutex::new(renewing),
        });
        let weak = Arc::downgrade(&tenure);
        std::thread::Builder::new().name("onward-lease".to_owned()).spawn(move || {
            let mut pause = lease / RENEWALS_PER_LEASE;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(pause) {
                let Some(tenure) = weak.upgrade() else { return };
                if tenure.is_over() {
                    return;
                }
                pause = tenure.renew(store.as_ref());
            }
        })?;
        Ok(tenure)
    }

    /// Renews once; returns the pause before the next time.
    fn renew(&self, store: &dyn Store) -> Duration {
        let asked = Instant::now();
        match block_on(store.renew(self.worker)) {
            Ok(_) => {
                self.renewed(asked);
                self.lease / RENEWALS_PER_LEASE
            }
            Err(store::Error::LeaseLost) => {
                self.end();
                self.lease
            }
            Err(error) => {
                tracing::warn!(worker = %self.worker, %error, "lease not renewed; again soon");
                self.lease / (RENEWALS_PER_LEASE * 4)
            }
        }
    }

    fn renewed(&self, asked: Instant) {
        if !self.is_fresh() {
            *self.steady_since.lock().unwrap_or_else(PoisonError::into_inner) = asked;
        }
        let until = asked.duration_since(self.born) + self.lease;
        self.fresh_until_ms.store(as_millis(until), Ordering::SeqCst);
    }

    /// Whether the last renewal still holds, so that a step may begin. What is recorded is
    /// guarded by the store in any case; this only keeps side effects from overlapping.
    pub(crate) fn is_fresh(&self) -> bool {
        as_millis(self.born.elapsed()) < self.fresh_until_ms.load(Ordering::SeqCst)
    }

    /// Whether the lease was renewed without a gap for one lease: only then may this worker judge
    /// others, since an outage that hits all looks like the death of each.
    pub(crate) fn is_steady(&self) -> bool {
        let since = *self.steady_since.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_fresh() && since.elapsed() > self.lease
    }

    /// Ends the tenure: the lease is lost, or the worker leaves.
    pub(crate) fn end(&self) {
        if !self.over.swap(true, Ordering::SeqCst) {
            self.ended.notify_waiters();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Resolves when the tenure has ended.
    pub(crate) async fn ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.is_over() {
                return;
            }
            ended.await;
        }
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Waits for a future on this thread, outside any runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        std::thread::park();
    }
}
