//! The gate: who writes next, where several processes write.
//!
//! Owns: a file beside the database that whoever waits for SQLite's write lock keeps locked meanwhile. SQLite's
//! lock is taken by whoever asks in the right moment, so a process that writes without a pause gets it
//! again and again; at the gate it lets the one that waits go first. Never decides who may write: without
//! the file, or past a waiter that does not move, everybody asks SQLite alone.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::fault::Fault;

/// The pause between two looks at the gate or at SQLite's lock: a fraction of a commit.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How long the one that waits is let go first: longer than it takes to see that the lock is free. A process that
/// was stopped at the gate must hold up nobody for long.
const COURTESY: Duration = Duration::from_millis(20);

/// How long the gate is passed by after a waiter that did not move.
const RUDE_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Gate {
    file: Option<File>,
    /// Until when it is passed by.
    past_until: Mutex<Option<Instant>>,
}

impl Gate {
    /// The gate in this folder, which is there.
    pub(super) fn in_folder(folder: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Self { file: options.open(folder.join("gate")).ok(), past_until: Mutex::default() }
    }

    /// Begins a transaction that writes, in turn with other processes.
    pub(super) fn begin(&self, conn: &Connection, patience: Duration) -> Result<(), Fault> {
        let begun = Instant::now();
        let _held = self.pass(begun, patience)?;
        loop {
            match conn.prepare_cached("begin immediate")?.execute([]).map_err(Fault::from) {
                Err(fault) if fault.is_locked() && begun.elapsed() < patience => {
                    thread::sleep(LOOK_EVERY);
                }
                begun => return begun.map(drop),
            }
        }
    }

    /// Waits behind those who wait already. Without patience, one of them is a refusal.
    fn pass(&self, begun: Instant, patience: Duration) -> Result<Option<Held<'_>>, Fault> {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_passed_by(begun)) else {
            return Ok(None);
        };
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Held(file))),
                Err(TryLockError::Error(_)) => return Ok(None),
                Err(TryLockError::WouldBlock) if patience.is_zero() => {
                    return Err(Fault::locked("another process waits to write"));
                }
                Err(TryLockError::WouldBlock) => {}
            }
            if begun.elapsed() >= COURTESY.min(patience) {
                *self.past_until() = Some(begun + RUDE_FOR);
                return Ok(None);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn is_passed_by(&self, now: Instant) -> bool {
        self.past_until().is_some_and(|until| now < until)
    }

    fn past_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.past_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gate, while its holder waits for SQLite's lock.
struct Held<'g>(&'g File);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A database, a gate beside it, and another process's hold of the gate.
    fn scene() -> (tempfile::TempDir, Gate, File) {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::in_folder(folder.path());
        let other = OpenOptions::new().write(true).open(folder.path().join("gate")).unwrap();
        (folder, gate, other)
    }

    fn connection(folder: &tempfile::TempDir) -> Connection {
        let conn = Connection::open(folder.path().join("onward.db")).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.busy_timeout(Duration::ZERO).unwrap();
        conn
    }

    #[test]
    fn whoever_waits_at_the_gate_goes_first() {
        let (folder, gate, other) = scene();
        let conn = connection(&folder);
        other.lock().unwrap();
        let refused = gate.begin(&conn, Duration::ZERO).unwrap_err();
        assert!(refused.is_locked(), "{refused:?}");
        other.unlock().unwrap();
        gate.begin(&conn, Duration::ZERO).unwrap();
        // Whoever is through keeps nobody else from waiting there.
        other.try_lock().unwrap();
    }

    #[test]
    fn one_that_does_not_move_is_passed_by() {
        let (folder, gate, other) = scene();
        let conn = connection(&folder);
        other.lock().unwrap();
        gate.begin(&conn, Duration::from_secs(60)).unwrap();
        conn.execute_batch("rollback").unwrap();
        gate.begin(&conn, Duration::ZERO).unwrap();
    }

    #[test]
    fn the_gate_is_kept_while_the_lock_is_not_free() {
        let (folder, gate, other) = scene();
        let (conn, writer) = (connection(&folder), connection(&folder));
        writer.execute_batch("begin immediate").unwrap();
        let (begun, seen) = mpsc::channel();
        let gate = &gate;
        thread::scope(|scope| {
            scope.spawn(move || {
                gate.begin(&conn, Duration::from_secs(60)).unwrap();
                begun.send(()).unwrap();
            });
            while other.try_lock().is_ok() {
                other.unlock().unwrap();
            }
            assert!(seen.try_recv().is_err(), "it has begun although another one writes");
            writer.execute_batch("rollback").unwrap();
            seen.recv().unwrap();
        });
        other.try_lock().unwrap();
    }
}
