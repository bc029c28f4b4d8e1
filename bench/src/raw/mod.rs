//! The raw limits: what the database itself does, with the same row size and the same durability,
//! and nothing of Onward.
//!
//! Owns: which limits there are. Never opens a store.

mod postgres;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::bench::Fallible;
use crate::place::{Made, Place};

pub(crate) use self::postgres::commits_per_second;

/// Rows in one commit of the throughput limit.
const ROWS_PER_COMMIT: i64 = 100;

/// Commits in one figure of the throughput limit.
const COMMITS: i64 = 100;

/// A table of step results beside the store, and connections to it.
pub(crate) enum Raw {
    Sqlite(sqlite::Raw),
    /// At least one.
    Postgres(Vec<Arc<postgres::Raw>>),
}

impl Raw {
    /// With as many connections as processes take the measure; a file is measured with one.
    pub(crate) async fn open(place: &Place, clients: usize) -> Fallible<Self> {
        Ok(match &place.made {
            Made::Folder(folder) => Self::Sqlite(sqlite::Raw::open(folder.path())?),
            Made::Schema { url, name } => {
                let mut raws = Vec::new();
                for _ in 0..clients {
                    raws.push(Arc::new(postgres::Raw::open(url, name).await?));
                }
                Self::Postgres(raws)
            }
        })
    }

    /// Rows a second at a hundred rows in a commit, over one connection.
    pub(crate) async fn rows_per_second(&self) -> Fallible<f64> {
        match self {
            Self::Sqlite(raw) => raw.rows_per_second(),
            Self::Postgres(raws) => {
                let raw = Arc::clone(&raws[0]);
                // As `commits`: off the thread of `main`, which every answer would have to wake.
                tokio::spawn(async move { raw.rows_per_second().await }).await?
            }
        }
    }

    /// The times of some commits of one row over each connection at once, with a pause before each.
    pub(crate) async fn commits(&self, count: usize, pause: Duration) -> Fallible<Vec<Duration>> {
        let raws = match self {
            Self::Sqlite(raw) => return raw.commits(count, pause),
            Self::Postgres(raws) => raws,
        };
        let mut committing = JoinSet::new();
        for raw in raws {
            let raw = Arc::clone(raw);
            committing.spawn(async move { raw.commits(count, pause).await });
        }
        let mut times = Vec::new();
        while let Some(committed) = committing.join_next().await {
            times.extend(committed??);
        }
        Ok(times)
    }
}
