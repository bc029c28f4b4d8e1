//! The embedded store: one SQLite file, any number of processes on one machine.
//!
//! Owns: [`SqliteStore`]. Each verb is a function over one transaction in the file named after
//! it, its statements in `sql/`. Never keeps a fact about a run in memory: whatever two processes
//! must agree on is in the file.

mod alive;
mod cancel;
mod claim;
mod commit;
mod export;
mod fault;
mod file;
mod gate;
mod guard;
mod import;
mod inside;
mod limited;
mod log;
mod look;
mod looks;
mod notebook;
mod open;
mod prune;
mod queues;
mod reader;
mod record;
mod row;
mod schedules;
mod settle;
mod signal;
mod start;
mod steer;
mod step_key;
mod sweep;
mod transact;
mod turn;
mod tx;
mod writer;

use std::fmt;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::alive::Alive;
use self::commit::{Points, VerbWrite};
use self::fault::Fault;
use self::file::DatabaseFile;
use self::gate::Gate;
use self::guard::Guard;
pub(crate) use self::inside::{signal_inside, start_inside};
use self::log::Log;
use self::reader::Readers;
use self::tx::Tx;
use self::writer::{Connections, Size, Writer};
use super::*;
use crate::{Code, SystemClock};

/// Runs in one `start` that may be written on the caller's thread.
const SMALL_START: usize = 4;

/// How long a write waits for another program's write lock, unless told otherwise: longer than
/// any commit or checkpoint takes, shorter than a lease.
const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// A store in one SQLite file, on disk when a write returns: write-ahead log, synced at every
/// commit. Writes that come together share a commit.
pub struct SqliteStore {
    file: Arc<DatabaseFile>,
    clock: Arc<dyn Clock>,
    hub: Arc<Hub>,
    writer: Writer,
    /// Keeps users' bodies inside their transactions, on the writer's connection.
    guard: Arc<Guard>,
    /// For the engine, and for people.
    readers: Arc<Readers>,
    people: Arc<Readers>,
    alive: Arc<Alive>,
}

/// How a store is opened.
///
/// ```no_run
/// use onward::store::{SqliteOptions, SqliteStore};
/// use std::time::Duration;
///
/// let options = SqliteOptions { busy_timeout: Duration::from_secs(30), ..SqliteOptions::default() };
/// let store = SqliteStore::open_with("onward.db", options)?;
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Where its times come from.
    pub clock: Arc<dyn Clock>,
    /// How long a write waits for another program's write lock.
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), busy_timeout: BUSY_TIMEOUT_DEFAULT }
    }
}

impl SqliteStore {
    /// Opens the file, or creates it. Blocks: it may have to wait for another program.
    ///
    /// ```no_run
    /// let store = onward::store::SqliteStore::open("onward.db")?;
    /// # Ok::<(), onward::Error>(())
    /// ```
    ///
    /// # Errors
    /// `store_unavailable` when the folder is missing, `store_read_only`, `store_locked`,
    /// `store_full`, `store_corrupt`, and `schema_too_new` for a file of a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, crate::Error> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens the file, or creates it, with these options.
    ///
    /// # Errors
    /// As [`open`](SqliteStore::open).
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, crate::Error> {
        let path = path.as_ref();
        let SqliteOptions { clock, busy_timeout } = options;
        let mut conn = open::writer(path, busy_timeout)?;
        let guard = Guard::of(&mut conn);
        let hub = Arc::new(Hub::default());
        let file = Arc::new(DatabaseFile::at(path).map_err(Error::from)?);
        let log = Log::of(file.path(), busy_timeout).map_err(Error::from)?;
        let alive = Arc::new(Alive::beside(file.path()));
        let gate = Gate::in_folder(alive.folder());
        let connections =
            Connections { writer: conn, log, file: Arc::clone(&file), gate, busy_timeout };
        let writer = Writer::start(connections, Arc::clone(&hub), Arc::clone(&clock))
            .map_err(|error| crate::Error::new(Code::StoreUnavailable).because(error))?;
        let readers = Arc::new(Readers::of_engine(file.path().to_owned(), busy_timeout));
        let people = Arc::new(Readers::of_people(file.path().to_owned(), busy_timeout));
        Ok(Self { file, clock, hub, writer, guard, readers, people, alive })
    }

    /// Commits of this store so far, for tests of how writes are gathered.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn commits(&self) -> u64 {
        self.writer.commits()
    }

    /// The statement of a list, for a test of its plans.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn list_statement(query: &Query) -> String {
        look::list_statement(query).0
    }

    /// Reads or sets a setting of the connection that writes, for tests of durability and of a
    /// full disk.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn writer_pragma(&self, pragma: &str) -> Option<i64> {
        let conn = self.writer.connection();
        conn.query_row(&format!("pragma {pragma}"), [], |row| row.get(0)).ok()
    }

    fn small<T: Send + 'static>(
        &self,
        verb: impl FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        self.writer.submit(VerbWrite::new(verb, None), Size::Small)
    }

    fn large<T: Send + 'static>(
        &self,
        verb: impl FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        self.writer.submit(VerbWrite::new(verb, None), Size::Large)
    }

    /// Workers that are not lost, and those of them whose process, on this machine, is gone.
    async fn live_and_dead(&self) -> Result<(Vec<WorkerId>, Vec<WorkerId>), Error> {
        let alive = Arc::clone(&self.alive);
        let look = self.readers.look(move |conn| {
            let sql = include_str!("sql/sweep_live.sql");
            let live = row::all(conn, sql, [], |row| Ok(row::whole_id(row, 0)))?;
            let live: Vec<_> = live.into_iter().flatten().map(row::worker_id).collect();
            let dead = live.iter().copied().filter(|worker| alive.is_dead(*worker)).collect();
            Ok((live, dead))
        });
        look.await
    }
}

impl Store for SqliteStore {
    fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    fn sqlite_file(&self) -> Option<&Path> {
        Some(self.file.path())
    }

    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>> {
        let size = if runs.len() <= SMALL_START { Size::Small } else { Size::Large };
        let points = Points { before: "start.before_commit", after: "start.after_commit" };
        let write = VerbWrite::new(move |tx: &mut Tx<'_>| start::start(tx, &runs), Some(points));
        self.writer.submit(write, size)
    }

    fn join(&self, worker: NewWorker) -> Answer<'_, ()> {
        let id = worker.id;
        if let Err(error) = self.alive.show(id) {
            return Box::pin(ready(Err(unshown(error))));
        }
        let joined = self.small(move |tx| sweep::join(tx, &worker));
        Box::pin(async move {
            let joined = joined.await;
            // Without the file only the lease decides, which is right for an unknown outcome.
            if joined.is_err() {
                self.alive.forget(id);
            }
            joined
        })
    }

    fn renew(&self, worker: WorkerId) -> Answer<'_, Renewed> {
        let verb = move |tx: &mut Tx<'_>| sweep::renew(tx, worker);
        self.writer.submit(VerbWrite::new(verb, None), Size::Vital)
    }

    fn leave(&self, worker: WorkerId) -> Answer<'_, ()> {
        Box::pin(async move {
            while self.large(move |tx| sweep::leave(tx, worker)).await? {}
            self.alive.forget(worker);
            Ok(())
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        let points = Points { before: "claim.before_commit", after: "claim.after_commit" };
        let build = claim.build.clone();
        let write = VerbWrite::new(move |tx: &mut Tx<'_>| claim::claim(tx, &claim), Some(points));
        let taken = self.writer.submit(write, Size::Large);
        Box::pin(async move {
            let claims = taken.await?;
            if !claims.runs.iter().any(claim::is_loaded_later) {
                return Ok(claims);
            }
            self.large(move |tx| claim::load(tx, &build, &claims)).await
        })
    }

    fn record(&self, lease: Lease, append: Append) -> Answer<'_, ()> {
        let points = Points { before: "record.before_commit", after: "record.after_commit" };
        let verb = move |tx: &mut Tx<'_>| record::record(tx, lease, &append);
        self.writer.submit(VerbWrite::new(verb, Some(points)), Size::Small)
    }

    /// On the writer's thread, whatever its size: a body may take long, and must not hold up the
    /// caller's runtime.
    fn transact(&self, transact: Transact) -> Answer<'_, Transacted> {
        let points = Points { before: "transact.before_commit", after: "transact.after_commit" };
        let mut execution = transact::Execution::new(transact, Arc::clone(&self.guard));
        let verb = move |tx: &mut Tx<'_>| execution.execute(tx);
        let answer = self.writer.submit(VerbWrite::new(verb, Some(points)), Size::Large);
        Box::pin(async move { transact::answer(answer.await) })
    }

    fn settle(&self, lease: Lease, settle: Settle) -> Answer<'_, Settled> {
        let points = Points { before: "settle.before_commit", after: "settle.after_commit" };
        let verb = move |tx: &mut Tx<'_>| settle::settle(tx, lease, &settle);
        self.writer.submit(VerbWrite::new(verb, Some(points)), Size::Small)
    }

    fn signal(&self, signal: NewSignal) -> Answer<'_, Signalled> {
        let points = Points { before: "signal.before_commit", after: "signal.after_commit" };
        let verb = move |tx: &mut Tx<'_>| signal::signal(tx, &signal);
        self.writer.submit(VerbWrite::new(verb, Some(points)), Size::Small)
    }

    fn inbox(&self, run: RunId, after: u64) -> Answer<'_, Inbox> {
        self.readers.look(move |conn| signal::inbox(conn, run, after))
    }

    fn cancel(&self, run: RunId) -> Answer<'_, Run> {
        self.small(move |tx| cancel::cancel(tx, run))
    }

    fn retry(&self, run: RunId) -> Answer<'_, Run> {
        self.small(move |tx| cancel::retry(tx, run))
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        Box::pin(async move {
            let (mut live, dead) = self.live_and_dead().await?;
            let swept = self.large(move |tx| sweep::sweep(tx, &sweep, &dead)).await?;
            live.retain(|worker| !swept.lost.contains(worker));
            self.alive.bury(&live);
            Ok(swept)
        })
    }

    fn prune(&self, prune: Prune) -> Answer<'_, Pruned> {
        self.large(move |tx| prune::prune(tx, &prune))
    }

    fn wait(&self, topic: Topic) -> Waiter {
        let waiter = self.hub.wait(topic);
        self.writer.watch();
        waiter
    }

    fn get(&self, which: Which) -> Answer<'_, Option<Run>> {
        let now = self.clock.now();
        self.readers.look(move |conn| look::get(conn, &which, now))
    }

    fn list(&self, query: Query) -> Answer<'_, RunPage> {
        self.people.look(move |conn| look::list(conn, &query))
    }

    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage> {
        self.people.look(move |conn| look::history(conn, run, after, limit))
    }

    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates> {
        self.people.look(move |conn| look::duplicates(conn, run))
    }

    fn stats(&self) -> Answer<'_, Stats> {
        let alive = Arc::clone(&self.alive);
        self.people.look(move |conn| {
            let mut stats = look::stats(conn)?;
            stats.workers.retain(|worker| !alive.is_dead(worker.id));
            Ok(stats)
        })
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerInfo>> {
        let alive = Arc::clone(&self.alive);
        self.people.look(move |conn| {
            let mut workers = look::workers(conn)?;
            workers.retain(|worker| !alive.is_dead(worker.id));
            Ok(workers)
        })
    }

    fn keys(&self) -> Option<&dyn Keys> {
        Some(self)
    }

    fn portable(&self) -> Option<&dyn Portable> {
        Some(self)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }

    fn steer(&self) -> Option<&dyn Steer> {
        Some(self)
    }

    fn notebook(&self) -> Option<&dyn Notebook> {
        Some(self)
    }

    fn queues(&self) -> Option<&dyn Queues> {
        Some(self)
    }

    fn looks(&self) -> Option<&dyn Looks> {
        Some(self)
    }

    fn deletes(&self) -> Option<&dyn Delete> {
        Some(self)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Portable for SqliteStore {
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>> {
        self.people.look(move |conn| export::export(conn, after, limit))
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        self.large(move |tx| import::import(tx, &import))
    }
}

impl Schedules for SqliteStore {
    fn put_schedule(&self, put: PutSchedule) -> Answer<'_, crate::Schedule> {
        self.small(move |tx| schedules::put(tx, &put))
    }

    fn get_schedule(&self, name: String) -> Answer<'_, Option<crate::Schedule>> {
        self.readers.look(move |conn| schedules::get(conn, &name))
    }

    fn list_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, SchedulePage> {
        self.people.look(move |conn| schedules::list(conn, after, limit))
    }

    fn due_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, DueSchedules> {
        let now = self.clock.now();
        self.readers.look(move |conn| schedules::due(conn, after, limit, now))
    }

    fn fire_schedule(&self, fire: Fire) -> Answer<'_, Fired> {
        let points = Points { before: "fire.before_commit", after: "fire.after_commit" };
        let verb = move |tx: &mut Tx<'_>| schedules::fire(tx, &fire);
        self.writer.submit(VerbWrite::new(verb, Some(points)), Size::Large)
    }

    fn pause_schedule(&self, name: String) -> Answer<'_, crate::Schedule> {
        self.small(move |tx| schedules::pause(tx, &name))
    }

    fn resume_schedule(&self, resume: Resume) -> Answer<'_, crate::Schedule> {
        self.small(move |tx| schedules::resume(tx, &resume))
    }

    fn remove_schedule(&self, name: String) -> Answer<'_, bool> {
        self.small(move |tx| schedules::remove(tx, &name))
    }

    fn import_schedule(&self, import: ImportSchedule) -> Answer<'_, ScheduleImported> {
        self.small(move |tx| schedules::import(tx, &import))
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.file.path()).finish()
    }
}

/// The error of a worker whose lock file could not be made.
fn unshown(error: std::io::Error) -> Error {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
    let outage = match error.kind() {
        PermissionDenied | ReadOnlyFilesystem => Outage::ReadOnly,
        StorageFull => Outage::Full,
        _ => Outage::NoAnswer,
    };
    Error::Unavailable(outage, Box::new(error))
}
