//! The raw limits of SQLite on the file system that is measured.
//!
//! Owns: a table in a file of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::{COMMITS, ROWS_PER_COMMIT};
use crate::bench::{Fallible, payload};

/// A table of step results in a fresh file.
pub(crate) struct Raw {
    conn: Connection,
    payload: String,
}

impl Raw {
    pub(super) fn open(folder: &Path) -> Fallible<Self> {
        let conn = Connection::open(folder.join("raw.db"))?;
        conn.pragma_update(None, "journal_mode", "wal")?;
        conn.pragma_update(None, "synchronous", "full")?;
        conn.execute_batch(
            "create table records (
                no integer primary key, run integer, seq integer, step text, kind text, body text,
                at integer
            ) strict",
        )?;
        Ok(Self { conn, payload: payload() })
    }

    fn commit(&self, rows: i64) -> Fallible<()> {
        self.conn.prepare_cached("begin immediate")?.execute([])?;
        let mut insert = self.conn.prepare_cached(
            "insert into records (run, seq, step, kind, body, at)
            values (?1, ?2, 'the step', 'done', ?3, 1700000000000)",
        )?;
        for row in 0..rows {
            insert.execute(params![row, row, self.payload])?;
        }
        self.conn.prepare_cached("commit")?.execute([])?;
        Ok(())
    }

    /// Rows a second at a hundred rows in a commit.
    pub(super) fn rows_per_second(&self) -> Fallible<f64> {
        let begun = Instant::now();
        for _ in 0..COMMITS {
            self.commit(ROWS_PER_COMMIT)?;
        }
        Ok((COMMITS * ROWS_PER_COMMIT) as f64 / begun.elapsed().as_secs_f64())
    }

    /// The times of some commits of one row, with a pause before each.
    pub(super) fn commits(&self, count: usize, pause: Duration) -> Fallible<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let begun = Instant::now();
            self.commit(1)?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}
