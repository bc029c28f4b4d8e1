//! From a URL to a store.
//!
//! Owns: the forms of a store's URL. Never guesses: a URL that it does not know is refused.

use std::sync::Arc;

use crate::store::{MemoryStore, Store};
use crate::{Code, Error};

pub(super) async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if !path.is_empty() => open_sqlite(path).await,
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(crate::store::PostgresStore::open(url).await?))
        }
        Some(_) => Err(Error::new(Code::UnknownStoreUrl).about(format!("{url:?}"))),
        None => {
            let about = format!("{url:?}; a file is written sqlite:{url}");
            Err(Error::new(Code::UnknownStoreUrl).about(about))
        }
    }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str) -> Result<Arc<dyn Store>, Error> {
    let path = path.strip_prefix("//").unwrap_or(path).to_owned();
    let opened = tokio::task::spawn_blocking(move || crate::store::SqliteStore::open(path));
    match opened.await {
        Ok(store) => Ok(Arc::new(store?)),
        Err(source) => Err(Error::new(Code::StoreUnavailable).because(source)),
    }
}
