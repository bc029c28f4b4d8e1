//! Plays a workflow, kills its process at each write, and plays on.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::conformance::{Death, LossyStore};
use onward::store::{MemoryStore, Store};
use onward::{Ctx, Entry, Failure, Onward, Record, RunHandle, RunState, Undoing, Workflow};

const PLAY: Workflow<(), Vec<String>> = Workflow::named("play");

/// A child that a play may start: it gives back what it was given.
pub(crate) const ECHO: Workflow<u32, u32> = Workflow::named("echo");

/// The signals that a play is sent, one after the other.
const POKES: u32 = 6;

/// The body of a workflow under test.
pub(crate) type Script =
    fn(Ctx, Shuffle) -> Pin<Box<dyn Future<Output = Result<Vec<String>, Failure>> + Send>>;

/// Times that differ from attempt to attempt, and the order in which results came.
#[derive(Clone)]
pub(crate) struct Shuffle {
    seed: u64,
    attempt: usize,
    /// What was delivered in each execution of the function in this process.
    notes: Arc<Mutex<Vec<Vec<String>>>>,
    execution: usize,
    drawn: Arc<Mutex<u64>>,
    /// The undos that were executed in this process.
    undone: Arc<Mutex<Vec<String>>>,
}

/// How a play is to end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finale {
    Completed,
    /// It fails by itself, and undoes the steps whose names begin with `do`.
    Failed,
    /// It is cancelled once a few steps are recorded, and undoes those whose names begin with `do`.
    Cancelled,
}

/// The records that a play has before it is cancelled.
const CANCEL_AT_RECORDS: usize = 4;

impl Shuffle {
    fn new(seed: u64, attempt: usize) -> Self {
        let (notes, drawn, undone) = Default::default();
        Self { seed, attempt, notes, execution: 0, drawn, undone }
    }

    fn next_execution(&self) -> Self {
        let mut notes = self.notes.lock().unwrap();
        notes.push(Vec::new());
        Self { execution: notes.len() - 1, ..self.clone() }
    }

    pub(crate) fn attempt(&self) -> usize {
        self.attempt
    }

    /// A pause that depends on the attempt: on replay bodies finish in another order.
    pub(crate) fn pause(&self) -> Duration {
        let mut drawn = self.drawn.lock().unwrap();
        *drawn += 1;
        let mixed = mix(self.seed ^ ((self.attempt as u64) << 32) ^ *drawn);
        Duration::from_micros(mixed % 3_000)
    }

    /// A pause that belongs to a name: a sleep is part of the workflow and must not change.
    pub(crate) fn fixed_pause(&self, name: &str) -> Duration {
        let mixed = name.bytes().fold(self.seed, |sum, byte| mix(sum ^ u64::from(byte)));
        Duration::from_millis(1 + mixed % 3)
    }

    /// Notes that an undo is executed.
    pub(crate) fn undo(&self, step: &str) {
        self.undone.lock().unwrap().push(step.to_owned());
    }

    pub(crate) fn note(&self, name: &str) {
        self.notes.lock().unwrap()[self.execution].push(name.to_owned());
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Where a play's runs are, and what is left of its transactions.
trait House {
    fn store(&self) -> Arc<dyn Store>;

    /// Asserts that what the transactions wrote and what is recorded of them is the same.
    fn check(&self, _history: &[Record]) {}
}

impl House for Arc<MemoryStore> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self) as Arc<dyn Store>
    }
}

impl House for Arc<onward::store::CodedStore> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self) as Arc<dyn Store>
    }
}

/// A SQLite file with a table of the play's own, in which each transaction leaves its name.
struct Ledger {
    store: Arc<onward::store::SqliteStore>,
    db: onward::rusqlite::Connection,
    _folder: tempfile::TempDir,
}

impl Ledger {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("play.db");
        let store = Arc::new(onward::store::SqliteStore::open(&path).unwrap());
        let db = onward::rusqlite::Connection::open(&path).unwrap();
        db.execute_batch("create table notes (step text not null)").unwrap();
        Self { store, db, _folder: folder }
    }
}

impl House for Ledger {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn check(&self, history: &[Record]) {
        let mut all = self.db.prepare("select step from notes order by step").unwrap();
        let notes: Vec<String> =
            all.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let is_kept = |record: &&Record| {
            record.step.contains("keep ")
                && !record.step.starts_with('$')
                && matches!(record.entry, Entry::Done(_))
        };
        let mut kept: Vec<_> = history.iter().filter(is_kept).map(|r| r.step.clone()).collect();
        kept.sort();
        assert_eq!(notes, kept, "each transaction took effect once, with its record");
    }
}

/// Lets the process die before and after its 1st, 2nd, 3rd … write, until it gets through.
pub(crate) fn crash_everywhere(script: Script) {
    crash_everywhere_until(script, Finale::Completed);
}

/// As [`crash_everywhere`], with a play that ends so.
pub(crate) fn crash_everywhere_until(script: Script, finale: Finale) {
    crash_everywhere_in(script, finale, || Box::new(Arc::new(MemoryStore::new())));
}

/// As [`crash_everywhere`], in a SQLite file. Steps whose names begin with `keep` are transactions
/// that insert their name into `notes`.
pub(crate) fn crash_everywhere_in_sqlite(script: Script, finale: Finale) {
    crash_everywhere_in(script, finale, || Box::new(Ledger::open()));
}

/// As [`crash_everywhere`], with payloads that are compressed and encrypted.
pub(crate) fn crash_everywhere_encoded(script: Script, finale: Finale) {
    crash_everywhere_in(script, finale, || Box::new(encoded()));
}

fn encoded() -> Arc<onward::store::CodedStore> {
    use onward::codec::{Coding, Compression, Encryption, KeyRing, SecretKey};

    let secret = |byte| SecretKey::new([byte; 32]);
    let ring = KeyRing::new("k1", &secret(1), secret(2)).unwrap();
    let coding = Coding::new().and(Arc::new(Compression::new().bytes_min(8)));
    let coding = coding.and(Arc::new(Encryption::new(ring).refuse_plain()));
    Arc::new(onward::store::CodedStore::around(Arc::new(MemoryStore::new()), coding))
}

fn crash_everywhere_in(script: Script, finale: Finale, build: fn() -> Box<dyn House>) {
    for (seed, death) in [(11, Death::Before), (12, Death::After), (13, Death::Before)] {
        for writes in 0.. {
            let script = (script, finale);
            if play(build().as_ref(), script, (seed, writes, death)) == Played::Through {
                assert!(writes > 3, "the play must have something to crash");
                break;
            }
            assert!(writes < 1_000, "the play does not end");
        }
    }
}

#[derive(PartialEq, Eq)]
enum Played {
    Crashed,
    Through,
}

/// Plays with deaths `writes` apart, so that each attempt gets a little further. A single death
/// would leave later replays of replays untested.
fn play(
    house: &dyn House,
    (script, finale): (Script, Finale),
    (seed, writes, death): (u64, usize, Death),
) -> Played {
    let inner = house.store();
    let mut undone: Vec<String> = Vec::new();
    let mut before: Vec<String> = Vec::new();
    let mut run = None;
    for attempt in 1.. {
        let shuffle = Shuffle::new(seed, attempt);
        let store = Arc::new(LossyStore::around(Arc::clone(&inner)));
        // The first attempt dies early, the later ones have time to replay and go on.
        let life = if attempt == 1 { writes } else { writes + 4 };
        if attempt < 4 {
            store.die_after(life, death);
        }
        let ended = one_process(&store, (script, finale), &shuffle, &mut run);
        let history = history(&inner, run.as_ref());
        for step in shuffle.undone.lock().unwrap().drain(..) {
            assert!(!undone.contains(&step), "process {attempt} undid {step:?} once more");
        }
        undone = Undoing::of(&history).map_or(Vec::new(), |undoing| undoing.undone);
        for notes in shuffle.notes.lock().unwrap().drain(..) {
            let notes = recorded(notes, &history);
            let common = before.len().min(notes.len());
            assert_eq!(
                before[..common],
                notes[..common],
                "process {attempt} took another way (seed {seed}, {death:?} write {writes})"
            );
            if notes.len() > before.len() {
                before = notes;
            }
        }
        house.check(&history);
        if ended {
            check_end(&inner, run.as_ref(), finale);
            return if attempt == 1 { Played::Through } else { Played::Crashed };
        }
    }
    Played::Through
}

/// One life of the process: a runtime of its own, dropped where it stands. Says whether the run
/// ended in it.
fn one_process(
    store: &Arc<LossyStore>,
    (script, finale): (Script, Finale),
    shuffle: &Shuffle,
    run: &mut Option<onward::RunId>,
) -> bool {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(async {
        let (shuffle, pauses) = (shuffle.clone(), shuffle.clone());
        let onward = Onward::with_store(Arc::clone(store) as Arc<dyn Store>);
        let life = async {
            let _worker = onward
                .worker()
                .serve(ECHO, echo)
                .serve(PLAY, move |ctx: Ctx, ()| script(ctx, shuffle.next_execution()))
                .linger(Duration::from_millis(20))
                .start()
                .await
                .unwrap();
            let handle = onward.start(PLAY, &()).key("the play").await.unwrap();
            *run = Some(handle.id());
            let ended = async { handle.ended().await.unwrap() };
            match finale {
                Finale::Cancelled => drop(tokio::join!(cancel(&handle), ended)),
                _ => drop(tokio::join!(poke(&handle, &pauses), ended)),
            }
        };
        let deadline = Duration::from_secs(20);
        tokio::select! {
            () = life => true,
            () = store.died() => false,
            () = tokio::time::sleep(deadline) => {
                let runs = onward.list(onward::Query::default()).await.unwrap().runs;
                panic!("the run neither ends nor dies: {runs:#?}")
            }
        }
    });
    runtime.shutdown_background();
    runtime_of_the_next(store, run);
    ended
}

/// Sends the play its signals: numbers from 0 on, at shuffled times, each with its key, so that a
/// later process sends the same. A play that has ended takes none.
async fn poke(handle: &RunHandle<Vec<String>>, shuffle: &Shuffle) {
    for number in 0..POKES {
        tokio::time::sleep(shuffle.pause()).await;
        let sent = handle.signal("poke", &number).key(format!("poke {number}")).await;
        if sent.is_err() {
            return;
        }
    }
}

/// Cancels the play once it has a few records, or asks for it again.
async fn cancel(handle: &RunHandle<Vec<String>>) {
    while handle.history().await.unwrap().len() < CANCEL_AT_RECORDS {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // One that has ended takes none.
    let _ = handle.cancel().await;
}

async fn echo(ctx: Ctx, number: u32) -> Result<u32, Failure> {
    ctx.step("echo", async |_| Ok::<_, Failure>(number)).await
}

/// What the next process finds: the dead worker's runs are given back, as a sweep would do.
fn runtime_of_the_next(store: &Arc<LossyStore>, run: &mut Option<onward::RunId>) {
    let store = Arc::new(LossyStore::around(store.inner()));
    block_on(async {
        for worker in store.stats().await.unwrap().workers {
            store.leave(worker.id).await.unwrap();
        }
        let onward = Onward::with_store(store);
        if let Ok(handle) = onward.by_key(PLAY, "the play").await {
            *run = Some(handle.id());
        }
    });
}

fn history(inner: &Arc<dyn Store>, run: Option<&onward::RunId>) -> Vec<Record> {
    let Some(run) = run else { return Vec::new() };
    let onward = Onward::with_store(Arc::clone(inner));
    block_on(async { onward.run(*run).history().await.unwrap_or_default() })
}

/// The notes up to the first whose result is not in the store: a process that dies has seen at
/// most one such result, and nothing that it did after that counts.
fn recorded(notes: Vec<String>, history: &[Record]) -> Vec<String> {
    let mut known: Vec<String> = Vec::new();
    for record in history {
        match &record.entry {
            // Known by what it carries, or that a child has ended: its number is the store's.
            Entry::Arrived(body) => {
                let name = record.step.rsplit_once('#').unwrap().0;
                known.extend([name.to_owned(), format!("{name} {body}")]);
            }
            Entry::Done(_) | Entry::Fired => known.push(record.step.clone()),
            _ => {}
        }
    }
    let unknown = notes.iter().filter(|note| !known.contains(note)).count();
    assert!(unknown <= 1, "results were delivered that are not recorded: {notes:?}, {known:?}");
    notes.into_iter().take_while(|note| known.contains(note)).collect()
}

fn check_end(inner: &Arc<dyn Store>, run: Option<&onward::RunId>, finale: Finale) {
    let history = history(inner, run);
    let onward = Onward::with_store(Arc::clone(inner));
    let handle: RunHandle<Vec<String>> = onward.run(*run.unwrap()).of_type();
    let status = block_on(handle.status()).unwrap();
    let expected = match finale {
        Finale::Completed => RunState::Completed,
        Finale::Failed => RunState::Failed,
        Finale::Cancelled => RunState::Cancelled,
    };
    assert_eq!(status.state, expected, "{:?} {:?}", status.failure, status.waits_for);
    if finale != Finale::Completed {
        assert!(status.failure.is_none_or(|failure| failure.is("turned")));
        check_undone(&history);
    }
    let mut steps: Vec<_> = history.iter().map(|record| &record.step).collect();
    steps.sort();
    let all = steps.len();
    steps.dedup();
    assert_eq!(steps.len(), all, "one record per step");
}

/// All that was done before the play turned back is undone, in reverse, and nothing was done after.
fn check_undone(history: &[Record]) {
    let place = history.iter().position(|record| record.step == "$undo");
    let place = place.unwrap();
    let is_done = |record: &&Record| matches!(record.entry, Entry::Done(_));
    let done = history[..place].iter().rev().filter(is_done).map(|record| record.step.as_str());
    let done: Vec<_> = done.filter(|step| step.starts_with("do ")).collect();
    let undoing = Undoing::of(history).unwrap();
    let undone: Vec<_> = undoing.undone.iter().filter(|step| step.starts_with("do ")).collect();
    assert_eq!(undone, done, "the reverse of what was recorded");
    assert!(undoing.left.is_empty(), "{:?}", undoing.left);
    let tail: Vec<_> = history[place + 1..].iter().map(|record| record.step.clone()).collect();
    assert!(tail.iter().all(|step| step.starts_with('$')), "nothing began after it: {tail:?}");
    let undos = undone.iter().map(|step| format!("$undo/{step}"));
    assert!(tail.iter().filter(|step| step.starts_with("$undo/")).cloned().eq(undos), "{tail:?}");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}
