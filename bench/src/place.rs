//! Where the runs of one measure live.
//!
//! Owns: a fresh store for each measure, and its removal in the end. Never measures.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use onward::Onward;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::bench::Fallible;

/// Which store is measured.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Files in a folder.
    Sqlite { folder: PathBuf },
    /// Schemas on a server.
    Postgres { url: String },
}

impl Kind {
    /// What is measured, for people: the server and whether what it commits is on disk.
    pub(crate) async fn about(&self) -> Fallible<Option<String>> {
        let Kind::Postgres { url } = self else { return Ok(None) };
        let settings = "
            select concat_ws(', ', 'Postgres ' || current_setting('server_version'),
                'fsync ' || current_setting('fsync'),
                'synchronous_commit ' || current_setting('synchronous_commit'))";
        Ok(Some(connect(url).await?.query_one(settings, &[]).await?.try_get(0)?))
    }
}

/// A store that nobody else uses.
#[derive(Debug)]
pub(crate) struct Place {
    url: String,
    pub(crate) made: Made,
}

/// What was made for it.
#[derive(Debug)]
pub(crate) enum Made {
    /// A folder, which is removed when it is dropped.
    Folder(TempDir),
    Schema {
        url: String,
        name: String,
    },
}

impl Place {
    pub(crate) async fn make(kind: &Kind) -> Fallible<Self> {
        match kind {
            Kind::Sqlite { folder } => {
                let folder =
                    tempfile::Builder::new().prefix(".onward-bench-").tempdir_in(folder)?;
                let url = format!("sqlite:{}", database(folder.path()).display());
                Ok(Self { url, made: Made::Folder(folder) })
            }
            Kind::Postgres { url } => {
                static MADE: AtomicUsize = AtomicUsize::new(0);
                let number = MADE.fetch_add(1, Ordering::Relaxed);
                let name = format!("bench_{}_{number}", std::process::id());
                let create = format!("create schema {name}");
                connect(url).await?.batch_execute(&create).await?;
                let joint = if url.contains('?') { '&' } else { '?' };
                let ours = format!("{url}{joint}schema={name}");
                Ok(Self { url: ours, made: Made::Schema { url: url.clone(), name } })
            }
        }
    }

    /// The URL of the store.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Opens the store.
    pub(crate) async fn open(&self) -> Fallible<Onward> {
        Ok(Onward::open(&self.url).await?)
    }

    pub(crate) async fn remove(self) -> Fallible<()> {
        match self.made {
            Made::Folder(folder) => Ok(folder.close()?),
            Made::Schema { url, name } => {
                let drop = format!("drop schema {name} cascade");
                Ok(connect(&url).await?.batch_execute(&drop).await?)
            }
        }
    }
}

/// The database in a folder.
pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("onward.db")
}

/// A connection of our own.
pub(crate) async fn connect(url: &str) -> Fallible<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Its end is noticed by whoever uses the client.
    tokio::spawn(connection);
    Ok(client)
}
