//! From a URL to a store.
//!
//! Owns: [`Open`], and the forms of a store's URL. Never guesses: a URL that it does not know is
//! refused.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Onward;
use crate::codec::{Codec, Coding};
use crate::keyed::KeyPlace;
#[cfg(feature = "redis")]
use crate::store::CodedKeys;
use crate::store::{BoxFuture, CodedStore, MemoryStore, Store};
use crate::{Code, Error};

/// A store that is being opened; made by [`Onward::open`].
#[must_use = "a store is opened when this is awaited"]
pub struct Open {
    url: String,
    keys: Option<String>,
    coding: Coding,
    opening: Option<BoxFuture<'static, Result<Onward, Error>>>,
}

impl Open {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), keys: None, coding: Coding::new(), opening: None }
    }

    /// Where step keys and [`once`](Onward::once) keep their keys, if not in the store itself:
    /// `redis://…`, or another store that several programs share.
    ///
    /// ```
    /// # use onward::Onward;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let shared = format!("sqlite:{}", dir.path().join("shared.db").display());
    /// let onward = Onward::open("memory:").keys(&shared).await?; // or "redis://cache.internal"
    /// # let _ = onward; Ok(()) }
    /// ```
    pub fn keys(mut self, url: impl Into<String>) -> Self {
        self.keys = Some(url.into());
        self
    }

    /// Encodes every payload with this codec, after those that were given before: inputs, outputs,
    /// records, failures, signals, results of keys wherever those are, and inputs of schedules.
    /// Whatever was stored without it stays readable. See [`codec`](crate::codec).
    ///
    /// ```
    /// # use onward::Onward;
    /// # #[cfg(feature = "compression")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// use onward::codec::Compression;
    ///
    /// let onward = Onward::open("memory:").codec(Compression::new()).await?;
    /// # let _ = onward; Ok(()) }
    /// # #[cfg(not(feature = "compression"))] fn main() {}
    /// ```
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.coding = self.coding.and(Arc::new(codec));
        self
    }
}

impl Future for Open {
    type Output = Result<Onward, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let opening = this.opening.get_or_insert_with(|| {
            let (url, keys) = (std::mem::take(&mut this.url), this.keys.take());
            let coding = std::mem::take(&mut this.coding);
            Box::pin(async move {
                let store = coded(open(&url).await?, &coding);
                Ok(match keys {
                    None => Onward::with_store(store),
                    Some(keys) => Onward::of(store, open_keys(&keys, &coding).await?, None),
                })
            })
        });
        opening.as_mut().poll(cx)
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which may hold a password.
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

/// The store, in which payloads are encoded if there is a codec.
fn coded(store: Arc<dyn Store>, coding: &Coding) -> Arc<dyn Store> {
    match coding.is_empty() {
        true => store,
        false => Arc::new(CodedStore::around(store, coding.clone())),
    }
}

async fn open_keys(url: &str, coding: &Coding) -> Result<KeyPlace, Error> {
    #[cfg(feature = "redis")]
    if url.starts_with("redis://") || url.starts_with("rediss://") {
        let keys = crate::store::RedisKeys::open(url).await?;
        let place = KeyPlace::elsewhere(Arc::new(keys));
        return Ok(match coding.is_empty() {
            true => place,
            false => KeyPlace::elsewhere(Arc::new(CodedKeys::new(place, Arc::new(coding.clone())))),
        });
    }
    Ok(KeyPlace::in_store(coded(open(url).await?, coding)))
}

async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::new())),
        Some(("sqlite", ":memory:")) => {
            let about = "sqlite::memory:; what is kept in memory alone is written memory:";
            Err(Error::new(Code::UnknownStoreUrl).about(about))
        }
        // Other programs' way to say how a file is opened; here it would be a part of its name.
        Some(("sqlite", path)) if path.contains('?') => {
            let about = "sqlite:PATH takes no parameters; leave out what begins with ?";
            Err(Error::new(Code::InvalidOption).about(about))
        }
        Some(("sqlite", path)) if path.starts_with("file:") => {
            let about = "sqlite:PATH takes a path and no URI; leave out file:";
            Err(Error::new(Code::InvalidOption).about(about))
        }
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if !path.is_empty() => open_sqlite(path).await,
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(crate::store::PostgresStore::open(url).await?))
        }
        #[cfg(not(feature = "sqlite"))]
        Some(("sqlite", _)) => Err(not_built("SQLite", "sqlite")),
        #[cfg(not(feature = "postgres"))]
        Some(("postgres" | "postgresql", _)) => Err(not_built("Postgres", "postgres")),
        // Without the rest, which may hold a password.
        Some((scheme, _)) => Err(Error::new(Code::UnknownStoreUrl).about(format!("{scheme}:…"))),
        None => {
            let about = format!("{url:?}; a file is written sqlite:{url}");
            Err(Error::new(Code::UnknownStoreUrl).about(about))
        }
    }
}

/// Refuses a URL that another build of the library would take.
#[cfg(any(not(feature = "sqlite"), not(feature = "postgres")))]
fn not_built(store: &str, feature: &str) -> Error {
    let what = format!("this build has no {store}; add the feature {feature:?} to onward");
    Error::new(Code::UnknownStoreUrl).about(what)
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
