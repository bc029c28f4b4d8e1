//! The writer: one connection, and the queue of writes that wait for it.
//!
//! Owns: which writes share a commit. Every write is queued, and the writer's thread takes
//! whatever arrived during the commit before as one transaction. A small write that is alone in
//! the queue and finds the connection free commits in place instead, on its caller's thread,
//! which spares it two thread hops. Never waits for more to come, and never lets a write overtake
//! one that was submitted before it: writes are taken from the queue in order, and only by who
//! holds the connection. The renewal of a lease alone goes before the others, in a commit of its own:
//! it must not wait for other people's payloads, and its time is that of its commit.
//!
//! Nothing is stranded: the thread is told of each queued write, or else the caller's future sees
//! to it, at its first poll or when it is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, ready};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::commit::{self, Committed, Site, VerbWrite, Write};
use super::fault::Fault;
use super::file::DatabaseFile;
use super::gate::Gate;
use super::log::Log;
use super::tx::Tx;
use crate::Clock;
use crate::limits::COMMIT_BATCH_MAX;
use crate::store::{Answer, Error, Hub, Outage};

/// How often the thread looks whether another process wrote, while anybody waits: often enough
/// that a hand-over between processes feels immediate, rare enough to cost no processor time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After how many commits one that is made in place looks at the log, which costs it a few
/// microseconds: a lone write is a few pages of the thousands that the log may have.
const LONE_COMMITS: u64 = 8;

/// How long the thread sleeps while nobody waits.
const DOZE: Duration = Duration::from_secs(60);

/// How much work a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// The renewal of a lease: goes before all that waits, in a commit of its own.
    Vital,
    /// A few rows: may be written on the caller's thread.
    Small,
    /// Anything else: would hold up the caller's runtime.
    Large,
}

/// The only connection of this process that writes.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What a writer works with.
pub(super) struct Connections {
    /// The connection that writes.
    pub(super) writer: Connection,
    /// The log that it writes to.
    pub(super) log: Log,
    /// The file of both.
    pub(super) file: Arc<DatabaseFile>,
    /// Where this process and others take turns.
    pub(super) gate: Gate,
    /// How long a write waits for another program.
    pub(super) busy_timeout: Duration,
}

struct Shared {
    conn: Mutex<Connection>,
    log: Log,
    file: Arc<DatabaseFile>,
    gate: Gate,
    queue: Mutex<Queue>,
    /// Told when a write is queued, when the store closes, and when somebody begins to wait.
    ready: Condvar,
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    busy_timeout: Duration,
    commits: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// What goes before the others, and counts for nothing below.
    vital: VecDeque<Box<dyn Write>>,
    writes: VecDeque<Box<dyn Write>>,
    /// Writes taken out so far: the place of the first one that is still here.
    taken: u64,
    /// Writes in the last commit of the thread. More than one means that callers come together,
    /// and that the next should meet in the queue rather than commit in place.
    last_batch: usize,
    closed: bool,
    /// How the thread sleeps, so that it is told only when it must be.
    sleep: Sleep,
}

impl Queue {
    /// Takes the first writes out.
    fn take(&mut self, count: usize) -> VecDeque<Box<dyn Write>> {
        let rest = self.writes.split_off(count.min(self.writes.len()));
        let taken = std::mem::replace(&mut self.writes, rest);
        self.taken += taken.len() as u64;
        taken
    }

    /// Puts back what a commit had no room for, in its old place.
    fn put_back(&mut self, mut rest: VecDeque<Box<dyn Write>>) {
        self.taken -= rest.len() as u64;
        rest.append(&mut self.writes);
        self.writes = rest;
    }

    fn is_empty(&self) -> bool {
        self.vital.is_empty() && self.writes.is_empty()
    }

    /// Whether the write in this place is the only one here.
    fn is_alone(&self, place: u64) -> bool {
        self.taken == place && self.writes.len() == 1 && self.vital.is_empty()
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Sleep {
    #[default]
    Awake,
    /// Until the next look at the other processes.
    Brief,
    /// Because nobody waits.
    Deep,
}

impl Writer {
    /// Takes the connections and starts the thread.
    pub(super) fn start(
        connections: Connections,
        hub: Arc<Hub>,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let Connections { writer, log, file, gate, busy_timeout } = connections;
        // Whoever begins a transaction waits by itself.
        let _ = writer.busy_timeout(Duration::ZERO);
        let shared = Arc::new(Shared {
            conn: Mutex::new(writer),
            log,
            file,
            gate,
            queue: Mutex::default(),
            ready: Condvar::new(),
            hub,
            clock,
            busy_timeout,
            commits: AtomicU64::new(0),
        });
        // Read before anybody can wait: a thread that comes up late would take a commit that a
        // waiter is to be told of for the beginning.
        let seen = version(&lock(&shared.conn));
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("onward-sqlite".to_owned())
            .spawn(move || serving.serve(seen))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Submits a write. Its place among the writes is taken here, at the call; it is made when the
    /// answer is first polled or dropped, or sooner.
    pub(super) fn submit<T, F>(&self, mut write: VerbWrite<T, F>, size: Size) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let receiver = write.receiver();
        let place = self.shared.push(Box::new(write), size);
        Box::pin(Submitted { shared: Arc::clone(&self.shared), receiver, place })
    }

    /// Says that somebody begins to wait, so that other processes' commits matter.
    pub(super) fn watch(&self) {
        let mut queue = lock(&self.shared.queue);
        if queue.sleep == Sleep::Deep {
            self.shared.wake(&mut queue);
        }
    }

    /// Commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// The connection, for settings that tests read and change.
    #[cfg(feature = "conformance")]
    pub(super) fn connection(&self) -> MutexGuard<'_, Connection> {
        lock(&self.shared.conn)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        self.shared.wake(&mut queue);
        drop(queue);
        // A write may hold what holds the store, and be the last to do so: then the thread itself
        // comes here, and ends by itself.
        let here = std::thread::current().id();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != here
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Queues a write. The thread is told at once, unless the write may be committed in place by
    /// its first poll: then its place is returned, and whoever holds that sees to it.
    fn push(&self, write: Box<dyn Write>, size: Size) -> Option<u64> {
        let mut queue = lock(&self.queue);
        if size == Size::Vital {
            queue.vital.push_back(write);
            self.wake(&mut queue);
            return None;
        }
        let place = queue.taken + queue.writes.len() as u64;
        let alone = queue.writes.is_empty() && queue.last_batch <= 1;
        queue.writes.push_back(write);
        if alone && size == Size::Small {
            return Some(place);
        }
        self.wake(&mut queue);
        None
    }

    fn wake(&self, queue: &mut Queue) {
        if queue.sleep != Sleep::Awake {
            queue.sleep = Sleep::Awake;
            self.ready.notify_one();
        }
    }

    /// Commits the write in `place` on this thread if it is alone and the connection is free;
    /// otherwise the thread does.
    fn commit_in_place(&self, place: u64) {
        let conn = match self.conn.try_lock() {
            Ok(conn) => Some(conn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut queue = lock(&self.queue);
        match conn {
            Some(conn) if queue.is_alone(place) => {
                let batch = queue.take(1);
                drop(queue);
                batch.into_iter().for_each(|write| self.commit_lone(&conn, write));
                drop(conn);
                let commits = self.commits.load(Ordering::Relaxed);
                if commits.is_multiple_of(LONE_COMMITS) && self.log.is_due() {
                    self.wake(&mut lock(&self.queue));
                }
            }
            _ => self.wake(&mut queue),
        }
    }

    /// Commits a write that was alone, without waiting for another process that writes: that may
    /// take long, so the thread waits instead. Until the connection is let go nothing overtakes.
    fn commit_lone(&self, conn: &Connection, mut write: Box<dyn Write>) {
        let mut writes = [&mut *write as &mut dyn Write];
        match self.commit(conn, Duration::ZERO, &mut writes) {
            Ok(committed) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                committed.changes.tell(&self.hub);
            }
            Err(fault) if fault.is_locked() => {
                let mut queue = lock(&self.queue);
                queue.put_back(VecDeque::from([write]));
                return self.wake(&mut queue);
            }
            Err(fault) => commit::refuse_all(&mut writes, &fault),
        }
        write.answer();
    }

    /// The thread: commits what is queued, and in between copies the log back and looks at the
    /// other processes. `seen`: their last commit that is known.
    fn serve(&self, mut seen: Option<i64>) {
        let mut looked = Instant::now();
        loop {
            let open = self.sleep(looked);
            // A panic ends its own batch, whose callers find their answers dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| self.commit_queued()));
            if self.log.is_due() {
                self.log.copy_back(&self.conn);
            }
            if looked.elapsed() >= LOOK_EVERY && self.hub.is_watched() {
                self.look_at_others(&mut seen);
                looked = Instant::now();
            }
            if !open && lock(&self.queue).is_empty() {
                return;
            }
        }
    }

    /// Sleeps until there is something to do; `false` once the store closes.
    fn sleep(&self, looked: Instant) -> bool {
        let mut queue = lock(&self.queue);
        if queue.is_empty() && !queue.closed {
            let watched = self.hub.is_watched();
            queue.sleep = if watched { Sleep::Brief } else { Sleep::Deep };
            let pause = if watched { LOOK_EVERY.saturating_sub(looked.elapsed()) } else { DOZE };
            let waited = self.ready.wait_timeout(queue, pause);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.sleep = Sleep::Awake;
        }
        !queue.closed
    }

    /// Commits whatever is queued by the time the connection is free: what is vital, or else the first of the
    /// others.
    fn commit_queued(&self) {
        if lock(&self.queue).is_empty() {
            return;
        }
        let conn = lock(&self.conn);
        let batch = {
            let mut queue = lock(&self.queue);
            if queue.vital.is_empty() {
                let batch = queue.take(COMMIT_BATCH_MAX);
                queue.last_batch = batch.len();
                batch
            } else {
                std::mem::take(&mut queue.vital)
            }
        };
        // A lone write may have been committed in place meanwhile.
        if !batch.is_empty() {
            self.commit_batch(conn, batch);
        }
    }

    fn commit_batch(&self, conn: MutexGuard<'_, Connection>, mut batch: VecDeque<Box<dyn Write>>) {
        let mut writes: Vec<&mut dyn Write> =
            batch.iter_mut().map(|write| &mut **write as &mut dyn Write).collect();
        match self.commit(&conn, self.busy_timeout, &mut writes) {
            Ok(committed) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                let rest = batch.split_off(committed.count);
                if !rest.is_empty() {
                    lock(&self.queue).put_back(rest);
                }
                drop(conn);
                committed.changes.tell(&self.hub);
            }
            Err(fault) => commit::refuse_all(&mut writes, &fault),
        }
        batch.into_iter().for_each(Write::answer);
    }

    fn commit(
        &self,
        conn: &Connection,
        patience: Duration,
        writes: &mut [&mut dyn Write],
    ) -> Result<Committed, Fault> {
        self.file.check()?;
        let site = Site { clock: self.clock.as_ref(), gate: &self.gate, patience };
        commit::commit(conn, &site, writes)
    }

    /// Wakes every waiter if another process wrote since the last look.
    fn look_at_others(&self, seen: &mut Option<i64>) {
        let conn = match self.conn.try_lock() {
            Ok(conn) => conn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let version = version(&conn);
        drop(conn);
        if std::mem::replace(seen, version) != version {
            self.hub.notify_all();
        }
    }
}

/// A number that moves with every commit of another connection, and with none of this one.
fn version(conn: &Connection) -> Option<i64> {
    conn.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
}

/// A write whose answer is awaited.
struct Submitted<T> {
    shared: Arc<Shared>,
    receiver: oneshot::Receiver<Result<T, Error>>,
    /// Its place, until somebody has seen to its commit.
    place: Option<u64>,
}

impl<T> Future for Submitted<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(place) = self.place.take() {
            self.shared.commit_in_place(place);
        }
        let answer = ready!(Pin::new(&mut self.receiver).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(no_answer())))
    }
}

impl<T> Drop for Submitted<T> {
    fn drop(&mut self) {
        if self.place.is_some() {
            self.shared.wake(&mut lock(&self.shared.queue));
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("commits", &self.commits()).finish()
    }
}

/// The error of a write whose thread is gone: whether it was written is unknown.
fn no_answer() -> Error {
    Error::Unavailable(Outage::NoAnswer, "the writer ended before it answered".into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
