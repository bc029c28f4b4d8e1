//! A worker's tenure: the time between joining a store and leaving it or losing the lease.
//!
//! Owns: whether the lease may still be counted on, and the thread that renews it. The thread is
//! its own, so that a busy runtime does not lose the lease; one that polls its worker no more does.
//! Never touches a run.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::crew::Crew;
use crate::limits::HANG_LEASES_MAX;
use crate::store::{self, Lease, Renewed, Store};
use crate::{Timestamp, WorkerId};

/// Renewals in one lease: two may fail before the lease is in danger.
pub(super) const RENEWALS_PER_LEASE: u32 = 3;

/// One membership of a worker in its store.
pub(crate) struct Tenure {
    pub(crate) worker: WorkerId,
    /// The drivers of this membership. Those of a lost one may still be on their way out when the
    /// next begins.
    pub(crate) crew: Arc<Crew>,
    store: Arc<dyn Store>,
    lease: Duration,
    born: Instant,
    /// Until when, in milliseconds since `born`, the last renewal holds.
    fresh_until_ms: AtomicU64,
    steady: Mutex<Steady>,
    /// When, in milliseconds since `born`, the task that claims was last polled.
    attended_ms: AtomicU64,
    /// Whether that is so long ago that the lease is not renewed.
    left_alone: AtomicBool,
    /// What the worker holds, by the last renewal that nobody has looked at.
    held: Mutex<Option<Vec<Lease>>>,
    /// Whether the store is another than the one that the worker joined.
    is_moved: AtomicBool,
    /// Notified when a renewal is due: whoever is awake says so, and looks at the last one.
    due: Notify,
    over: AtomicBool,
    ended: Notify,
    /// Ends the renewal thread when it is dropped.
    _renewing: Mutex<mpsc::Sender<()>>,
}

/// Since when the lease has been renewed without a gap.
struct Steady {
    /// Nothing since a renewal failed.
    since: Option<Instant>,
    /// Until when, by the store's clock, the last renewal holds. A gap shows here too when the
    /// machine was suspended, which this process's own clock does not notice.
    until: Option<Timestamp>,
}

impl Tenure {
    /// Starts the renewal thread for a worker that joined at `joined`.
    pub(crate) fn begin(
        store: Arc<dyn Store>,
        worker: WorkerId,
        crew: Arc<Crew>,
        lease: Duration,
        joined: Instant,
    ) -> std::io::Result<Arc<Self>> {
        let (renewing, ended) = mpsc::channel();
        let tenure = Arc::new(Self {
            worker,
            crew,
            store,
            lease,
            born: joined,
            fresh_until_ms: AtomicU64::new(as_millis(lease)),
            steady: Mutex::new(Steady { since: Some(joined), until: None }),
            attended_ms: AtomicU64::new(0),
            left_alone: AtomicBool::new(false),
            held: Mutex::default(),
            is_moved: AtomicBool::new(false),
            due: Notify::new(),
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
                pause = tenure.renew();
            }
        })?;
        Ok(tenure)
    }

    /// How long the lease lasts without renewal.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Renews once, unless nobody would execute what is held; returns the pause before the next time.
    fn renew(&self) -> Duration {
        let soon = self.lease / (RENEWALS_PER_LEASE * 4);
        let asked = Instant::now();
        let left_alone = self.is_left_alone();
        if left_alone != self.left_alone.swap(left_alone, Ordering::SeqCst) && left_alone {
            tracing::error!(
                worker = %self.worker,
                "the worker's runtime no longer polls it; its lease will expire, so that others \
                 execute its runs; move blocking work to spawn_blocking",
            );
        }
        if left_alone {
            self.due.notify_waiters();
            return soon;
        }
        let pause = match block_on(self.store.renew(self.worker)) {
            Ok(Renewed { until, held, moved }) => {
                self.renewed(asked, until);
                self.is_moved.fetch_or(moved, Ordering::SeqCst);
                *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
                self.lease / RENEWALS_PER_LEASE
            }
            Err(store::Error::LeaseLost) => {
                self.end();
                self.lease
            }
            Err(error) => {
                tracing::warn!(worker = %self.worker, %error, "lease not renewed; again soon");
                self.steady.lock().unwrap_or_else(PoisonError::into_inner).since = None;
                soon
            }
        };
        self.due.notify_waiters();
        pause
    }

    /// Whether the task that claims was not polled for so long that its runtime must be taken for dead.
    fn is_left_alone(&self) -> bool {
        let attended = Duration::from_millis(self.attended_ms.load(Ordering::SeqCst));
        self.born.elapsed().saturating_sub(attended) > self.lease * HANG_LEASES_MAX
    }

    /// Says with each renewal that the task which polls this is alive. Never ends.
    pub(crate) async fn attend(&self) {
        loop {
            let due = self.due.notified();
            self.attended_ms.store(as_millis(self.born.elapsed()), Ordering::SeqCst);
            due.await;
        }
    }

    /// Renews for as long as the worker takes to leave, though nobody attends: whoever shuts it down
    /// waits no longer than its grace.
    pub(crate) fn leaves(&self) {
        self.attended_ms.store(u64::MAX, Ordering::SeqCst);
    }

    /// Resolves after the next renewal.
    pub(crate) async fn next_renewal(&self) {
        self.due.notified().await;
    }

    /// Whether the store is another than the one that the worker joined: what it lacks is known only when
    /// the runs are replayed.
    pub(crate) fn is_moved(&self) -> bool {
        self.is_moved.load(Ordering::SeqCst)
    }

    /// Whether nothing new is to be begun under it.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_over() || self.is_moved()
    }

    /// Resolves after the renewal that found that the store is another.
    pub(crate) async fn moved(&self) {
        loop {
            let due = self.due.notified();
            if self.is_moved() {
                return;
            }
            due.await;
        }
    }

    /// What the worker holds, by a renewal that was not looked at.
    pub(crate) fn take_held(&self) -> Option<Vec<Lease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn renewed(&self, asked: Instant, store_until: Timestamp) {
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        // Forward, as after a suspended machine, or back: then the leases of all look as if nobody renewed them.
        let jumped = (steady.until).is_some_and(|before| {
            store_until.since(before) > self.gap_max() || store_until < before
        });
        if jumped || !self.is_fresh() {
            steady.since = None;
        }
        steady.since.get_or_insert(asked);
        steady.until = Some(store_until);
        drop(steady);
        let until = asked.duration_since(self.born) + self.lease;
        self.fresh_until_ms.store(as_millis(until), Ordering::SeqCst);
    }

    /// The longest time between two renewals after which this worker still judges others. One of them may
    /// have renewed a whole pause before this worker did, and must have had the time to do so again.
    fn gap_max(&self) -> Duration {
        self.lease - self.lease / RENEWALS_PER_LEASE
    }

    /// Whether the last renewal still holds, so that a step may begin. What is recorded is
    /// guarded by the store in any case; this only keeps side effects from overlapping.
    pub(crate) fn is_fresh(&self) -> bool {
        as_millis(self.born.elapsed()) < self.fresh_until_ms.load(Ordering::SeqCst)
    }

    /// Whether the lease was renewed without a gap for one lease: only then may this worker judge
    /// others, since an outage that hits all looks like the death of each.
    pub(crate) fn is_steady(&self) -> bool {
        let steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = steady.until.is_some_and(|until| self.store.clock().now() < until);
        let since = steady.since.is_some_and(|since| since.elapsed() > self.lease);
        holds && self.is_fresh() && since
    }

    /// Gives back to the store what the worker holds, once its drivers are gone: whoever takes a run over
    /// must not execute a body beside the one that is being dropped here. One that blocks its thread can
    /// be dropped by nobody; after a lease its run is given back all the same.
    pub(crate) async fn leave(&self) -> Result<(), store::Error> {
        if tokio::time::timeout(self.lease, self.crew.emptied()).await.is_err() {
            tracing::error!(worker = %self.worker, "a body blocks its thread and cannot be dropped");
        }
        self.store.leave(self.worker).await?;
        self.end();
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::lossy::LossyStore;
    use crate::store::{MemoryStore, NewWorker};
    use crate::{Clock, TestClock};

    const LEASE: Duration = Duration::from_millis(200);

    async fn tenure(clock: &TestClock) -> (Arc<dyn Store>, Arc<Tenure>) {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
        let tenure = tenure_in(&store, LEASE).await;
        (store, tenure)
    }

    async fn tenure_in(store: &Arc<dyn Store>, lease: Duration) -> Arc<Tenure> {
        let worker = NewWorker {
            id: WorkerId::new(),
            build: "v1".to_owned(),
            place: "test".to_owned(),
            queues: vec!["default".to_owned()],
            workflows: vec!["work".to_owned()],
            lease_ms: i64::try_from(lease.as_millis()).unwrap(),
            concurrency: 1,
        };
        let id = worker.id;
        store.join(worker).await.unwrap();
        Tenure::begin(Arc::clone(store), id, Crew::new(1), lease, Instant::now()).unwrap()
    }

    fn steady_since(tenure: &Tenure) -> Option<Instant> {
        tenure.steady.lock().unwrap().since
    }

    async fn until(mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !holds() {
            assert!(Instant::now() < deadline, "it never came to hold");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_leaves_after_its_drivers() {
        let (store, tenure) = tenure(&TestClock::new()).await;
        let place = tenure.crew.take_place().unwrap();
        let leaves = Arc::clone(&tenure);
        let leaving = tokio::spawn(async move { leaves.leave().await });
        tokio::task::yield_now().await;
        assert!(!tenure.is_over() && store.workers().await.unwrap().len() == 1);
        drop(place);
        leaving.await.unwrap().unwrap();
        assert!(tenure.is_over() && store.workers().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_worker_judges_others_only_after_a_lease_without_a_gap() {
        let clock = TestClock::new();
        let (_store, tenure) = tenure(&clock).await;
        assert!(!tenure.is_steady(), "it has only just joined");
        until(|| tenure.is_steady()).await;
    }

    #[tokio::test]
    async fn a_jump_of_the_stores_clock_is_a_gap() {
        let clock = TestClock::new();
        let (_store, tenure) = tenure(&clock).await;
        until(|| tenure.is_steady()).await;
        // As after a suspended laptop: the store's clock went on, this process did not notice.
        clock.advance(Duration::from_secs(60));
        let jumped = clock.now();
        until(|| {
            let steady = tenure.steady.lock().unwrap();
            steady.until.is_some_and(|until| until > jumped)
        })
        .await;
        assert!(!tenure.is_steady(), "everybody's lease looks expired now");
        until(|| tenure.is_steady()).await;
    }

    /// So long that the thread does not renew in a test: it is done here, by hand.
    const LONG: Duration = Duration::from_secs(600);

    /// Fails where a worker judges another that could not renew in an outage which it came through itself.
    #[tokio::test]
    async fn a_renewal_that_failed_is_a_gap() {
        let lossy = Arc::new(LossyStore::around(Arc::new(MemoryStore::new())));
        let store: Arc<dyn Store> = lossy.clone();
        let tenure = tenure_in(&store, LONG).await;
        tenure.renew();
        assert_eq!(steady_since(&tenure), Some(tenure.born));
        lossy.lose_next(1);
        tenure.renew();
        assert_eq!(steady_since(&tenure), None);
        let mended = Instant::now();
        tenure.renew();
        assert!(steady_since(&tenure) >= Some(mended));
    }

    /// Who joined with another renews a pause before or after it: the other has no time left where two
    /// renewals could not be made.
    #[tokio::test]
    async fn two_renewals_that_are_missing_are_a_gap() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let tenure = tenure_in(&store, LONG).await;
        let at = |seconds: i64| Timestamp::from_millis(1_000 * seconds);
        let asked = Instant::now();
        tenure.renewed(asked, at(600));
        tenure.renewed(asked, at(1_000));
        assert_eq!(steady_since(&tenure), Some(tenure.born));
        tenure.renewed(asked, at(1_401));
        assert_eq!(steady_since(&tenure), Some(asked));
    }

    #[tokio::test]
    async fn a_step_back_of_the_stores_clock_is_a_gap() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let tenure = tenure_in(&store, LONG).await;
        let asked = Instant::now();
        tenure.renewed(asked, Timestamp::from_millis(5_000));
        assert_eq!(steady_since(&tenure), Some(tenure.born));
        tenure.renewed(asked, Timestamp::from_millis(4_999));
        assert_eq!(steady_since(&tenure), Some(asked));
    }

    #[tokio::test]
    async fn a_lost_lease_ends_the_tenure() {
        let clock = TestClock::new();
        let (store, tenure) = tenure(&clock).await;
        store.leave(tenure.worker).await.unwrap();
        tenure.ended().await;
        assert!(tenure.is_over());
    }
}
