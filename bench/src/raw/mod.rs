//! The raw limits: what the database itself does, with the same row size and the same durability,
//! and nothing of Onward.
//!
//! Owns: which limits there are. Never opens a store.

mod postgres;
mod sqlite;

use std::time::Duration;

use crate::bench::Fallible;
use crate::place::{Made, Place};

pub(crate) use self::postgres::commits_per_second;

/// Rows in one commit of the throughput limit.
const ROWS_PER_COMMIT: i64 = 100;

/// Commits in one figure of the throughput limit.
const COMMITS: i64 = 100;

/// A table of step results beside the store, and one connection to it.
pub(crate) enum Raw {
    Sqlite(sqlite::Raw),
    Postgres(postgres::Raw),
}

impl Raw {
    pub(crate) async fn open(place: &Place) -> Fallible<Self> {
        Ok(match &place.made {
            Made::Folder(folder) => Self::Sqlite(sqlite::Raw::open(folder.path())?),
            Made::Schema { url, name } => Self::Postgres(postgres::Raw::open(url, name).await?),
        })
    }

    /// Rows a second at a hundred rows in a commit.
    pub(crate) async fn rows_per_second(&self) -> Fallible<f64> {
        match self {
            Self::Sqlite(raw) => raw.rows_per_second(),
            Self::Postgres(raw) => raw.rows_per_second().await,
        }
    }

    /// The times of some commits of one row, with a pause before each.
    pub(crate) async fn commits(&self, count: usize, pause: Duration) -> Fallible<Vec<Duration>> {
        match self {
            Self::Sqlite(raw) => raw.commits(count, pause),
            Self::Postgres(raw) => raw.commits(count, pause).await,
        }
    }
}
