//! Opening a database file: settings and migrations.
//!
//! Owns: what every connection is set to, and the schema's version. Never opens a file that a
//! newer program wrote, and never trusts a setting that it has not read back. The file may be
//! the user's own: the store's tables and indexes are named `onward_…`, and the version is in one
//! of them, because `user_version` and `application_id` are the user's.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;
use super::{file, row};
use crate::store::Error as StoreError;
use crate::{Code, Error};

/// The schema's migrations in order; the database says how many it has had.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_signals.sql"),
    include_str!("migrations/0003_step_keys.sql"),
    include_str!("migrations/0004_schedules.sql"),
    include_str!("migrations/0005_steering.sql"),
    include_str!("migrations/0006_queues.sql"),
    include_str!("migrations/0007_audit.sql"),
    include_str!("migrations/0008_laneless.sql"),
    include_str!("migrations/0009_gathered.sql"),
    include_str!("migrations/0010_schedule_lanes.sql"),
    include_str!("migrations/0011_places.sql"),
    include_str!("migrations/0012_late.sql"),
    include_str!("migrations/0013_signal_bytes.sql"),
];

/// Memory for pages of the connection that writes, in KiB: 64 MiB holds the ends of every table
/// and index that hundreds of concurrent runs write to; it is taken only as it is used.
const CACHE_KIB: i64 = 64 * 1024;

/// Bytes that the write-ahead log keeps when it begins anew: what it grows to while nobody reads for long, twice
/// over, so that it is seldom made longer again.
const LOG_BYTES_KEPT: i64 = 32 * 1024 * 1024;

/// Statements that a connection keeps prepared: more than the store has.
const STATEMENTS_KEPT: usize = 128;

/// The pause between two tries to switch to the write-ahead log while somebody else opens.
const SWITCH_PAUSE: Duration = Duration::from_millis(10);

/// Opens the connection that writes, with the schema brought up to date.
pub(super) fn writer(path: &Path, busy_timeout: Duration) -> Result<Connection, Error> {
    check_folder(path)?;
    let at_path =
        |fault: Fault| Error::from(StoreError::from(fault)).about(format!("{}", path.display()));
    let is_new = !path.exists();
    let conn = connect(path, OpenFlags::SQLITE_OPEN_CREATE, busy_timeout).map_err(at_path)?;
    let version = version(&conn).map_err(|fault| at_path(file::cannot_open(path, fault)))?;
    if is_new {
        file::keep_private(path);
    }
    check_version(version).map_err(|error| error.about_file(path, version))?;
    if conn.is_readonly("main").map_err(|error| at_path(error.into()))? {
        return Err(Error::new(Code::StoreReadOnly).about(format!("{}", path.display())));
    }
    set_durable(&conn, busy_timeout).map_err(at_path)?;
    // The store has none; a program's own tables may, and its transactions are executed here.
    conn.pragma_update(None, "foreign_keys", true).map_err(|error| at_path(error.into()))?;
    if version < MIGRATIONS.len() {
        migrate(&conn).map_err(at_path)?;
    }
    Ok(conn)
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path, busy_timeout: Duration) -> Result<Connection, Fault> {
    let conn = connect(path, OpenFlags::empty(), busy_timeout)?;
    conn.pragma_update(None, "query_only", true)?;
    Ok(conn)
}

/// Opens the connection that copies the write-ahead log back.
pub(super) fn copier(path: &Path, busy_timeout: Duration) -> Result<Connection, Fault> {
    let conn = connect(path, OpenFlags::empty(), busy_timeout)?;
    conn.pragma_update(None, "synchronous", "full")?;
    reach_the_disk(&conn)?;
    Ok(conn)
}

fn connect(path: &Path, more: OpenFlags, busy_timeout: Duration) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let opened = Connection::open_with_flags(path, flags);
    let conn = opened.map_err(|error| file::cannot_open(path, error.into()))?;
    conn.busy_timeout(busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    // A statement keeps its plan whatever is bound to it; otherwise some are planned anew each
    // time.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "foreign_keys", false)?;
    Ok(conn)
}

fn check_folder(path: &Path) -> Result<(), Error> {
    let wrong = |about: String| Err(Error::new(Code::InvalidStorePath).about(about));
    if path.is_dir() {
        return wrong(format!("{} is a folder", path.display()));
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            wrong(format!("the folder {} does not exist", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Makes an answered commit survive a power cut: write-ahead log, synced at every commit.
fn set_durable(conn: &Connection, busy_timeout: Duration) -> Result<(), Fault> {
    // Counts for a new file only.
    conn.pragma_update(None, "page_size", 4096)?;
    switch_to_log(conn, busy_timeout)?;
    conn.pragma_update(None, "synchronous", "full")?;
    let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |row| row.get(0))?;
    if synchronous != 2 {
        return Err(Fault::data(format!("synchronous is {synchronous}, not FULL")));
    }
    reach_the_disk(conn)?;
    // The log is copied back by the writer's thread, never within a commit.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    // What a long reader made it grow to is given back when it begins anew.
    conn.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(())
}

/// On macOS an ordinary sync leaves what it wrote in the disk's own memory. Elsewhere this changes nothing.
fn reach_the_disk(conn: &Connection) -> Result<(), Fault> {
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)?;
    Ok(())
}

/// Switches to the write-ahead log. SQLite does not wait for its lock here, so this does.
fn switch_to_log(conn: &Connection, busy_timeout: Duration) -> Result<(), Fault> {
    let begun = Instant::now();
    loop {
        let mode = conn
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get::<_, String>(0))
            .map_err(Fault::from);
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(Fault::data(format!("the journal mode stays {mode}"))),
            Err(fault) if fault.is_locked() && begun.elapsed() < busy_timeout => {
                thread::sleep(SWITCH_PAUSE);
            }
            Err(fault) => return Err(fault),
        }
    }
}

/// A schema that this program does not know.
struct TooNew;

impl TooNew {
    fn about_file(&self, path: &Path, version: usize) -> Error {
        let known = MIGRATIONS.len();
        let about = format!("{} has schema {version}, this program knows {known}", path.display());
        Error::new(Code::SchemaTooNew).about(about)
    }
}

fn check_version(version: usize) -> Result<(), TooNew> {
    if version > MIGRATIONS.len() { Err(TooNew) } else { Ok(()) }
}

/// Whether a database has the schema of this version.
pub(super) fn is_current(conn: &Connection) -> Result<bool, Fault> {
    Ok(version(conn)? == MIGRATIONS.len())
}

/// How many migrations the database has had; none when the store's tables are not there.
fn version(conn: &Connection) -> Result<usize, Fault> {
    if row::first(conn, include_str!("sql/schema_there.sql"), [], |_| Ok(()))?.is_none() {
        return Ok(0);
    }
    let sql = include_str!("sql/schema_version.sql");
    let version = row::first(conn, sql, [], |row| Ok(row.get::<_, i64>(0)?))?;
    usize::try_from(version.ok_or_else(|| Fault::data("the schema has no version"))?)
        .map_err(Fault::data)
}

/// Brings the schema up to date, all of it or nothing. Two programs may do so at once: the
/// second finds it done.
fn migrate(conn: &Connection) -> Result<(), Fault> {
    conn.execute_batch("begin immediate")?;
    let migrated = version(conn).and_then(|version| {
        for migration in MIGRATIONS.iter().skip(version) {
            conn.execute_batch(migration)?;
        }
        if version < MIGRATIONS.len() {
            conn.execute(include_str!("sql/schema_set.sql"), [row::limit(MIGRATIONS.len())])?;
        }
        Ok(conn.execute_batch("commit")?)
    });
    if migrated.is_err() && !conn.is_autocommit() {
        let _ = conn.execute_batch("rollback");
    }
    migrated
}
