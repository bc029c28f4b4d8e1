//! The writer: one connection, and the queue of writes that wait for it.
//!
//! Owns: which writes share a commit. A write that finds the connection free and nobody queued
//! commits in place, on its caller's thread. Any other is queued, and the writer's thread takes
//! whatever arrived during the commit before as one transaction. Never waits for more to come,
//! and never lets a write overtake one that was submitted before it.
//!
//! Nothing is stranded: the thread is told of every queued write, and takes its batch only while
//! it holds the connection.

use std::collections::VecDeque;
use std::fmt;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::commit::{self, Job, Write};
use super::fault::Fault;
use super::tx::Tx;
use crate::Clock;
use crate::limits::COMMIT_BATCH_MAX;
use crate::store::{Answer, Error, Hub, Outage};

/// How often the thread looks whether another process wrote, while anybody waits: often enough
/// that a hand-over between processes feels immediate, rare enough to cost no processor time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the thread sleeps while nobody waits.
const DOZE: Duration = Duration::from_secs(60);

/// How much work a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
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

struct Shared {
    conn: Mutex<Connection>,
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
    writes: VecDeque<Box<dyn Write>>,
    closed: bool,
    /// How the thread sleeps, so that it is told only when it must be.
    sleep: Sleep,
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
    /// Takes the connection and starts the thread.
    pub(super) fn start(
        conn: Connection,
        hub: Arc<Hub>,
        clock: Arc<dyn Clock>,
        busy_timeout: Duration,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            conn: Mutex::new(conn),
            queue: Mutex::default(),
            ready: Condvar::new(),
            hub,
            clock,
            busy_timeout,
            commits: AtomicU64::new(0),
        });
        let serving = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("onward-sqlite".to_owned())
            .spawn(move || serving.serve())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Submits a write; it is made whether or not the answer is awaited.
    pub(super) fn submit<T, F>(&self, mut job: Job<T, F>, size: Size) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let shared = &self.shared;
        if size == Size::Small
            && let Some(conn) = shared.free_connection()
        {
            if shared.commit_in_place(&conn, &mut job) {
                drop(conn);
                let answer = job.into_answer().unwrap_or_else(|| Err(no_answer()));
                return Box::pin(ready(answer));
            }
            // Another process writes, which may take long: the thread waits for it instead. The
            // connection is still held, so nothing can overtake.
            let receiver = job.receiver();
            shared.push(|queue| queue.writes.push_front(Box::new(job)));
            drop(conn);
            return Box::pin(async { receiver.await.unwrap_or_else(|_| Err(no_answer())) });
        }
        let receiver = job.receiver();
        shared.push(|queue| queue.writes.push_back(Box::new(job)));
        Box::pin(async { receiver.await.unwrap_or_else(|_| Err(no_answer())) })
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
    pub(super) fn connection(&self) -> MutexGuard<'_, Connection> {
        lock(&self.shared.conn)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.push(|queue| queue.closed = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The connection, if it is free and nobody is queued for it.
    fn free_connection(&self) -> Option<MutexGuard<'_, Connection>> {
        let conn = match self.conn.try_lock() {
            Ok(conn) => conn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        lock(&self.queue).writes.is_empty().then_some(conn)
    }

    /// Commits a lone write on its caller's thread; `false` when another process is writing.
    fn commit_in_place(&self, conn: &Connection, write: &mut dyn Write) -> bool {
        let _ = conn.busy_timeout(Duration::ZERO);
        let mut writes = [write];
        let committed = commit::commit(conn, self.clock.as_ref(), &mut writes);
        let _ = conn.busy_timeout(self.busy_timeout);
        match committed {
            Ok(changes) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                changes.tell(&self.hub);
                true
            }
            Err(fault) if fault.is_locked() => false,
            Err(fault) => {
                commit::refuse_all(&mut writes, &fault);
                true
            }
        }
    }

    fn push(&self, change: impl FnOnce(&mut Queue)) {
        let mut queue = lock(&self.queue);
        change(&mut queue);
        if queue.sleep != Sleep::Awake {
            self.wake(&mut queue);
        }
    }

    fn wake(&self, queue: &mut Queue) {
        queue.sleep = Sleep::Awake;
        self.ready.notify_one();
    }

    /// The thread: commits what is queued, and in between looks at the other processes.
    fn serve(&self) {
        let mut seen = None;
        let mut looked = Instant::now();
        loop {
            let open = self.sleep(looked);
            // A panic ends its own batch, whose callers find their answers dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| self.commit_queued()));
            if looked.elapsed() >= LOOK_EVERY && self.hub.is_watched() {
                self.look_at_others(&mut seen);
                looked = Instant::now();
            }
            if !open && lock(&self.queue).writes.is_empty() {
                return;
            }
        }
    }

    /// Sleeps until there is something to do; `false` once the store closes.
    fn sleep(&self, looked: Instant) -> bool {
        let mut queue = lock(&self.queue);
        if queue.writes.is_empty() && !queue.closed {
            let watched = self.hub.is_watched();
            queue.sleep = if watched { Sleep::Brief } else { Sleep::Deep };
            let pause =
                if watched { LOOK_EVERY.saturating_sub(looked.elapsed()) } else { DOZE };
            let waited = self.ready.wait_timeout(queue, pause);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.sleep = Sleep::Awake;
        }
        !queue.closed
    }

    /// Commits whatever is queued by the time the connection is free.
    fn commit_queued(&self) {
        if lock(&self.queue).writes.is_empty() {
            return;
        }
        let conn = lock(&self.conn);
        let mut batch: Vec<Box<dyn Write>> = {
            let mut queue = lock(&self.queue);
            let count = queue.writes.len().min(COMMIT_BATCH_MAX);
            queue.writes.drain(..count).collect()
        };
        let mut writes: Vec<&mut dyn Write> =
            batch.iter_mut().map(|write| &mut **write as &mut dyn Write).collect();
        match commit::commit(&conn, self.clock.as_ref(), &mut writes) {
            Ok(changes) => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                drop(conn);
                changes.tell(&self.hub);
            }
            Err(fault) => commit::refuse_all(&mut writes, &fault),
        }
        batch.into_iter().for_each(Write::answer);
    }

    /// Wakes every waiter if another process wrote. On this connection the version moves only
    /// by others' commits.
    fn look_at_others(&self, seen: &mut Option<i64>) {
        let Ok(conn) = self.conn.try_lock() else { return };
        let version = conn.pragma_query_value(None, "data_version", |row| row.get::<_, i64>(0));
        let Ok(version) = version else { return };
        if seen.replace(version).is_some_and(|seen| seen != version) {
            drop(conn);
            self.hub.notify_all();
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
