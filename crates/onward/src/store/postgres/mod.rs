//! The store for many machines: one Postgres database, any number of processes.
//!
//! Owns: [`PostgresStore`]. What many runs do at once is one statement: a function in the database,
//! in the file of `sql/` named after the verb. What is rare is a transaction that asks questions,
//! in the Rust file named after it. Never keeps a fact about a run in memory, and nothing in a
//! session: a pooler may stand in between.
//!
//! Read on in `near` (a write that is alone, on its `link` to the server), `lane` (how the others are
//! gathered, on a `line` each), `batch` and `starting` (one commit for many runs), and `tx` (a
//! transaction that asks questions).

mod batch;
mod cancel;
mod claim;
mod clock;
mod connect;
mod direct;
mod export;
mod fault;
mod floor;
mod home;
mod host;
mod import;
mod lane;
mod line;
mod link;
mod listen;
mod look;
mod looks;
mod near;
mod notebook;
mod nudge;
mod open;
mod options;
mod pool;
mod prune;
mod queues;
mod record;
mod row;
mod schedules;
mod script;
mod settle;
mod signal;
mod sql;
mod start;
mod starting;
mod steer;
mod step_key;
mod sweep;
mod transact;
mod turn;
mod tx;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use self::batch::{RunWrite, said};
use self::claim::Tickets;
use self::clock::StoreClock;
use self::connect::Connector;
use self::fault::Fault;
use self::floor::Heads;
use self::home::Home;
use self::lane::{Lane, Lanes};
use self::listen::Telling;
use self::near::Near;
pub use self::options::PostgresOptions;
use self::options::Target;
use self::pool::Pool;
pub(crate) use self::signal::signal_said;
use self::sql::Sql;
use self::starting::StartWrite;
pub use self::transact::PostgresTransaction;
use self::tx::{Changes, Tx, snapshot, transact};
use super::*;

/// Connections that commit what runs record together: more do not help.
const LANES: usize = 2;

/// Connections for leases: one, and one beside it while that does not answer.
const VITAL_CONNECTIONS: usize = 2;

/// How often an idle worker looks for work without a hint, since hints come by notification.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(20);

/// A store in a Postgres database, on disk when a write returns. Writes that come together share a
/// commit.
pub struct PostgresStore {
    shared: Arc<Shared>,
    near: Arc<Near>,
    starts: Lane<StartWrite>,
    listening: OnceLock<()>,
    home: Home,
}

/// What every task of the store needs.
pub(crate) struct Shared {
    sql: Sql,
    clock: StoreClock,
    hub: Hub,
    connector: Connector,
    pool: Arc<Pool>,
    /// For leases, which must not wait behind others.
    vital: Arc<Pool>,
    /// For notifications, which must not wait behind the bodies of transactional steps.
    hints: Arc<Pool>,
    timeout: Duration,
    /// Where claims look, which is no fact about a run.
    heads: Heads,
    tickets: Tickets,
    /// Who speaks in a notification.
    sender: String,
    /// What other processes are to be told.
    told: mpsc::UnboundedSender<Telling>,
}

impl Shared {
    /// Wakes whoever waits in this process, and tells the others.
    fn tell(&self, changes: Changes) {
        if !changes.is_empty() {
            changes.tell(&self.hub);
            // Without the task that tells, others look on a timer.
            let _ = self.told.send(Telling::Of(changes));
        }
    }
}

impl PostgresStore {
    /// Opens the database at a URL, and creates the store's schema in it if it is not there.
    ///
    /// ```no_run
    /// # async fn open() -> Result<(), onward::Error> {
    /// let store = onward::store::PostgresStore::open("postgres://app@db/shop").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `store_unavailable` when the server does not answer, `invalid_option` for a URL that cannot
    /// be read, `store_not_durable`, and `schema_too_new` for a schema of a newer version.
    pub async fn open(url: &str) -> Result<Self, crate::Error> {
        Self::open_with(url, PostgresOptions::default()).await
    }

    /// Opens the database at a URL, with these options.
    ///
    /// # Errors
    /// As [`open`](PostgresStore::open).
    pub async fn open_with(url: &str, options: PostgresOptions) -> Result<Self, crate::Error> {
        let Target { config, tls, options } = Target::of(url, options)?;
        let timeout = options.connect_timeout;
        let connector = Connector::new(config, &tls, timeout)?;
        let (told, telling) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            sql: Sql::of(&options.schema),
            clock: StoreClock::new(options.clock),
            hub: Hub::default(),
            pool: Pool::new(connector.clone(), options.pool_size, timeout),
            vital: Pool::new(connector.clone(), VITAL_CONNECTIONS, timeout),
            hints: Pool::new(connector.clone(), 1, timeout),
            connector,
            timeout: options.statement_timeout,
            heads: Heads::default(),
            tickets: Tickets::default(),
            sender: format!("{:016x}", WorkerId::new().as_u128() as u64),
            told,
        });
        let (keep, kept) = std::sync::mpsc::channel();
        let last = listen::told(Arc::clone(&shared));
        let home = Home::start(kept, last).map_err(connect::no_thread)?;
        home.spawn(listen::tell(Arc::clone(&shared), telling));
        let opening = Arc::clone(&shared);
        let opened = home.handle().spawn(async move { open::open(&opening, options.create).await });
        match opened.await {
            Ok(opened) => opened?,
            Err(gone) => return Err(crate::Error::new(crate::Code::StoreUnavailable).because(gone)),
        }
        let _here = home.handle().enter();
        let start = || {
            let (lane, task) = Lane::start(Arc::clone(&shared));
            let _ = keep.send(task);
            lane
        };
        let lanes = Lanes::new((0..LANES).map(|_| start()));
        let near = Near::new(Arc::clone(&shared), lanes);
        let (starts, task) = Lane::start(Arc::clone(&shared));
        let _ = keep.send(task);
        Ok(Self { shared, near, starts, listening: OnceLock::new(), home })
    }

    /// Whether lone writes are sent by their callers from now on, as on a runtime with threads they are after
    /// the first few. For tests.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn is_near(&self) -> bool {
        self.near.is_near()
    }

    /// A statement as this store's schema has it, and the time to bind to it, for a transaction of
    /// the user's own.
    pub(crate) fn inside(&self, sql: &'static str) -> (String, Option<i64>) {
        (self.shared.sql.text(sql).into_owned(), self.shared.clock.given())
    }

    fn write(&self, lease: Lease, settle: Settle, ends: bool) -> Answer<'static, Settled> {
        let (answer, answered) = oneshot::channel();
        let Settle { follows, records, end, unasked } = settle;
        let end = ends.then_some(end);
        let way = self.near.begin();
        self.near.submit(RunWrite { lease, follows, records, end, unasked, way, answer });
        Box::pin(said(answered))
    }

    /// A write that asks questions, in a transaction of its own.
    fn in_transaction<V, T>(
        &self,
        verb: V,
        write: impl for<'t> Fn(&'t mut Tx, &'t V) -> BoxFuture<'t, Result<T, Fault>>
        + Send
        + Sync
        + 'static,
    ) -> Answer<'static, T>
    where
        V: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (shared, verb, write) = (Arc::clone(&self.shared), Arc::new(verb), Arc::new(write));
        self.home.answer(async move {
            transact(&shared, |tx| {
                let (verb, write) = (Arc::clone(&verb), Arc::clone(&write));
                Box::pin(async move { write(tx, &verb).await })
            })
            .await
        })
    }
}

impl Store for PostgresStore {
    fn clock(&self) -> &dyn Clock {
        &self.shared.clock
    }

    fn postgres(&self) -> Option<&PostgresStore> {
        Some(self)
    }

    fn idle_look_every(&self) -> Duration {
        IDLE_LOOK_EVERY
    }

    fn start(&self, runs: Vec<NewRun>) -> Answer<'_, Vec<Result<Started, Error>>> {
        let (answer, answered) = oneshot::channel();
        self.starts.submit(StartWrite { runs, answer });
        Box::pin(said(answered))
    }

    fn join(&self, worker: NewWorker) -> Answer<'_, ()> {
        self.home.answer(sweep::join(Arc::clone(&self.shared), worker))
    }

    fn renew(&self, worker: WorkerId) -> Answer<'_, Renewed> {
        self.home.answer(sweep::renew(Arc::clone(&self.shared), worker))
    }

    fn leave(&self, worker: WorkerId) -> Answer<'_, ()> {
        self.home.answer(sweep::leave(Arc::clone(&self.shared), worker))
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        self.home.answer(claim::claim(Arc::clone(&self.shared), claim))
    }

    fn record(&self, lease: Lease, append: Append) -> Answer<'_, ()> {
        let Append { follows, records } = append;
        let settle = Settle { follows, ..Settle::new(records, End::Released) };
        let written = self.write(lease, settle, false);
        Box::pin(async move { written.await.map(drop) })
    }

    fn transact(&self, transact: Transact) -> Answer<'_, Transacted> {
        Box::pin(transact::transact(&self.home, Arc::clone(&self.shared), transact))
    }

    fn settle(&self, lease: Lease, settle: Settle) -> Answer<'_, Settled> {
        self.write(lease, settle, true)
    }

    fn signal(&self, signal: NewSignal) -> Answer<'_, Signalled> {
        self.home.answer(signal::signal(Arc::clone(&self.shared), signal))
    }

    fn inbox(&self, run: RunId, after: u64) -> Answer<'_, Inbox> {
        self.home.answer(signal::inbox(Arc::clone(&self.shared), run, after))
    }

    fn cancel(&self, run: RunId) -> Answer<'_, Run> {
        let shared = Arc::clone(&self.shared);
        self.home
            .answer(async move { transact(&shared, |tx| Box::pin(cancel::cancel(tx, run))).await })
    }

    fn retry(&self, run: RunId) -> Answer<'_, Run> {
        let shared = Arc::clone(&self.shared);
        self.home
            .answer(async move { transact(&shared, |tx| Box::pin(cancel::retry(tx, run))).await })
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        self.home.answer(sweep::sweep(Arc::clone(&self.shared), sweep))
    }

    fn prune(&self, prune: Prune) -> Answer<'_, Pruned> {
        self.home.answer(prune::prune(Arc::clone(&self.shared), prune))
    }

    fn wait(&self, topic: Topic) -> Waiter {
        let waiter = self.shared.hub.wait(topic);
        self.listening.get_or_init(|| {
            self.home.handle().spawn(listen::listen(Arc::clone(&self.shared)));
        });
        waiter
    }

    fn get(&self, which: Which) -> Answer<'_, Option<Run>> {
        self.home.answer(look::get(Arc::clone(&self.shared), which))
    }

    fn list(&self, query: Query) -> Answer<'_, RunPage> {
        self.home.answer(look::list(Arc::clone(&self.shared), query))
    }

    fn history(&self, run: RunId, after: Option<u64>, limit: usize) -> Answer<'_, HistoryPage> {
        self.home.answer(look::history(Arc::clone(&self.shared), run, after, limit))
    }

    fn duplicates(&self, run: RunId) -> Answer<'_, Duplicates> {
        self.home.answer(look::duplicates(Arc::clone(&self.shared), run))
    }

    fn stats(&self) -> Answer<'_, Stats> {
        self.home.answer(look::stats(Arc::clone(&self.shared)))
    }

    fn workers(&self) -> Answer<'_, Vec<WorkerInfo>> {
        self.home.answer(look::workers(Arc::clone(&self.shared)))
    }

    fn unawaited_standbys(&self) -> Answer<'_, u64> {
        self.home.answer(look::unawaited_standbys(Arc::clone(&self.shared)))
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

impl Portable for PostgresStore {
    fn export(&self, after: Option<RunId>, limit: usize) -> Answer<'_, Vec<WholeRun>> {
        let shared = Arc::clone(&self.shared);
        self.home.answer(async move {
            snapshot(&shared, |tx| Box::pin(export::export(tx, after, limit))).await
        })
    }

    fn import(&self, import: Import) -> Answer<'_, Imported> {
        let (shared, import) = (Arc::clone(&self.shared), Arc::new(import));
        self.home.answer(async move {
            transact(&shared, |tx| Box::pin(import::import(tx, Arc::clone(&import)))).await
        })
    }
}

impl Schedules for PostgresStore {
    fn put_schedule(&self, put: PutSchedule) -> Answer<'_, crate::Schedule> {
        self.in_transaction(put, |tx, put| Box::pin(schedules::put(tx, put)))
    }

    fn get_schedule(&self, name: String) -> Answer<'_, Option<crate::Schedule>> {
        self.home.answer(schedules::get(Arc::clone(&self.shared), name))
    }

    fn list_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, SchedulePage> {
        self.home.answer(schedules::list(Arc::clone(&self.shared), after, limit))
    }

    fn due_schedules(&self, after: Option<String>, limit: usize) -> Answer<'_, DueSchedules> {
        self.home.answer(schedules::due(Arc::clone(&self.shared), after, limit))
    }

    fn fire_schedule(&self, fire: Fire) -> Answer<'_, Fired> {
        self.in_transaction(fire, |tx, fire| Box::pin(schedules::fire(tx, fire)))
    }

    fn pause_schedule(&self, name: String) -> Answer<'_, crate::Schedule> {
        self.in_transaction(name, |tx, name| Box::pin(schedules::pause(tx, name)))
    }

    fn resume_schedule(&self, resume: Resume) -> Answer<'_, crate::Schedule> {
        self.in_transaction(resume, |tx, resume| Box::pin(schedules::resume(tx, resume)))
    }

    fn remove_schedule(&self, name: String) -> Answer<'_, bool> {
        self.home.answer(schedules::remove(Arc::clone(&self.shared), name))
    }

    fn import_schedule(&self, import: ImportSchedule) -> Answer<'_, ScheduleImported> {
        self.in_transaction(import, |tx, import| Box::pin(schedules::import(tx, import)))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.shared.sql.schema();
        f.debug_struct("PostgresStore").field("schema", &schema).finish_non_exhaustive()
    }
}
