//! The write-ahead log: when it is copied back into the database, and by whom.
//!
//! Owns: a connection of its own that copies, always on the writer's thread, so that no commit
//! and no caller pays for it. Never decides what is durable: a commit is in the log, synced,
//! before it is answered.
//!
//! The log is copied back in two passes. The first, which copies nearly all of it, leaves the
//! writing connection free. The second holds it and copies what was written meanwhile, so that
//! nothing is left and the next write begins the log anew.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::fault::Fault;
use super::open;

/// Pages in the log after which it is copied back: 8 MiB, so that the log stays small and the
/// copying is shared by thousands of records.
const COPY_PAGES: u64 = 2_000;

/// Pages in the log, 16 MiB, at which the readers of what was copied are waited for. Only when
/// none is left can the log begin anew, and readers that come and go may always leave one.
const CROWDED_PAGES: u64 = 2 * COPY_PAGES;

/// How long the writers wait for those readers: longer than an ordinary look. For one that stays
/// longer they wait again when the log has doubled, so it costs them little however long it stays.
const READERS_PATIENCE: Duration = Duration::from_millis(100);

/// Bytes before the first page of the log, and before each page; and where in them the salt is.
/// The file's format is documented and fixed: <https://sqlite.org/fileformat2.html#walformat>.
const LOG_HEADER: u64 = 32;
const LOG_SALT: u64 = 16;
const PAGE_HEADER: u64 = 24;
const PAGE_SALT: u64 = 8;

/// The salt that a log and its pages carry. It changes when the log begins anew, which is how
/// pages of the time before are told apart.
type Salt = [u8; 8];

/// The log of the database that a writer writes to.
pub(super) struct Log {
    path: PathBuf,
    page_bytes: u64,
    copier: Mutex<Connection>,
    seen: Mutex<Seen>,
}

/// The log as it was last looked at.
#[derive(Default)]
struct Seen {
    file: Option<File>,
    salt: Salt,
    /// How many pages the last copy met.
    pages: u64,
    /// At how many pages the readers are waited for.
    crowded: u64,
}

impl Log {
    /// The log of this database; SQLite keeps it beside the file that a link leads to.
    pub(super) fn of(database: &Path, busy_timeout: Duration) -> Result<Self, Fault> {
        let copier = open::copier(database, busy_timeout)?;
        let mut path = OsString::from(database);
        path.push("-wal");
        let page_bytes =
            copier.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0))?;
        Ok(Self {
            path: path.into(),
            page_bytes: page_bytes.into(),
            copier: Mutex::new(copier),
            seen: Mutex::default(),
        })
    }

    /// Whether the log has grown enough since the last copy. Two short reads of the file; one
    /// that fails is made again after the next commit.
    pub(super) fn is_due(&self) -> bool {
        self.look(&mut lock(&self.seen)).unwrap_or(false)
    }

    /// The log has at least so many pages as the page in that place has the log's own salt.
    fn look(&self, seen: &mut Seen) -> io::Result<bool> {
        if seen.file.is_none() {
            seen.file = Some(File::open(&self.path)?);
        }
        let Some(file) = &mut seen.file else { return Ok(false) };
        let Some(salt) = salt_at(file, LOG_SALT)? else { return Ok(false) };
        if salt != seen.salt {
            (seen.salt, seen.pages, seen.crowded) = (salt, 0, CROWDED_PAGES);
        }
        let page = seen.pages + COPY_PAGES - 1;
        let place = LOG_HEADER + page * (PAGE_HEADER + self.page_bytes);
        Ok(salt_at(file, place + PAGE_SALT)? == Some(salt))
    }

    /// Copies the log back. A copy that fails is made again when the log has grown further.
    pub(super) fn copy_back(&self, writer: &Mutex<Connection>) {
        let copier = lock(&self.copier);
        let pages = copy(&copier, "passive");
        let crowded = pages >= Some(lock(&self.seen).crowded);
        let writing = lock(writer);
        let pages = if crowded { restart(&copier) } else { copy(&copier, "passive") };
        drop(writing);
        let mut seen = lock(&self.seen);
        seen.pages = pages.unwrap_or(seen.pages + COPY_PAGES);
        if crowded {
            seen.crowded = 2 * seen.pages.max(CROWDED_PAGES);
        }
    }
}

/// Copies what no reader is in the way of; gives the pages in the log.
fn copy(copier: &Connection, how: &str) -> Option<u64> {
    let sql = format!("pragma wal_checkpoint({how})");
    let pages = copier
        .prepare_cached(&sql)
        .and_then(|mut copy| copy.query_row([], |row| row.get::<_, i64>(1)));
    pages.ok().and_then(|pages| u64::try_from(pages).ok())
}

/// As `copy`, and waits until the log may begin anew.
fn restart(copier: &Connection) -> Option<u64> {
    let _ = copier.busy_timeout(READERS_PATIENCE);
    copy(copier, "restart")
}

/// The salt in this place; nothing when the file ends before it.
fn salt_at(file: &mut File, place: u64) -> io::Result<Option<Salt>> {
    let mut salt = Salt::default();
    file.seek(SeekFrom::Start(place))?;
    match file.read_exact(&mut salt) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(salt)),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
