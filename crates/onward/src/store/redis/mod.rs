//! Redis as a place of step keys.
//!
//! Owns: [`RedisKeys`]: one hash per key, read and written by scripts, each of them atomic. A verb
//! reads a key, decides by the shared rules of `step_key`, and writes it if it is as it was read;
//! else it begins again. Never keeps a run: Redis may forget what it answered.
//!
//! The fencing token is the server's time in microseconds, or one more than the token before it. So
//! it rises even over a restart that lost every key, as long as the server's clock does not go back.

mod field;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::{Client, RedisError, Script};

use self::field::{Read, fields, line};
use super::reading::{Page, Reading};
use super::step_key::{Settling, Taking, after, importing, is_held, settling, taking};
use super::*;
use crate::clock::{Clock, millis};
use crate::limits::{DUPLICATES_KEPT_MAX, KEY_HELD_KEEP, PAGE_ROWS_MAX};
use crate::{Code, Timestamp};

/// What the names of keys begin with, unless told otherwise.
const PREFIX_DEFAULT: &str = "onward:key:";

/// How long to wait for an answer: as long as for any other store.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How often a key that changed since it was read is read again. Each time somebody else succeeded.
const AGAIN_MAX: u32 = 64;

/// Names that one look of a list asks for at a time.
const SCAN_COUNT: usize = 1_000;

/// Step keys in a Redis server.
///
/// The promise is weaker than that of a store: a server that restarts without its append-only file,
/// fails over to a replica that lags, or evicts keys under memory pressure forgets keys that it
/// answered for, and the work of those keys is done again by whoever comes next. Whoever holds a
/// forgotten key cannot settle it once another took it; and [`Step::fence`](crate::Step::fence)
/// still rises, so that an outside system which checks it refuses the first of the two.
pub struct RedisKeys {
    manager: ConnectionManager,
    prefix: String,
    clock: Option<Arc<dyn Clock>>,
    read: Script,
    write: Script,
    count: Script,
}

/// How a Redis server is used.
///
/// ```no_run
/// # async fn open() -> Result<(), onward::Error> {
/// use onward::store::{RedisKeys, RedisOptions};
///
/// let options = RedisOptions { prefix: "shop:key:".to_owned(), ..RedisOptions::default() };
/// let keys = RedisKeys::open_with("redis://cache.internal/2", options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// What the names of the keys begin with.
    pub prefix: String,
    /// Where times come from, if not from the server: for tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { prefix: PREFIX_DEFAULT.to_owned(), clock: None }
    }
}

impl RedisKeys {
    /// Opens the server at a URL: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`.
    ///
    /// # Errors
    /// `store_unavailable` when the server does not answer, `unknown_store_url` for a URL that
    /// cannot be read.
    pub async fn open(url: &str) -> Result<Self, crate::Error> {
        Self::open_with(url, RedisOptions::default()).await
    }

    /// Opens the server at a URL, with these options.
    ///
    /// # Errors
    /// As [`open`](RedisKeys::open).
    pub async fn open_with(url: &str, options: RedisOptions) -> Result<Self, crate::Error> {
        let unreadable = |error| crate::Error::new(Code::UnknownStoreUrl).because(error);
        let client = Client::open(url).map_err(unreadable)?;
        let config = ConnectionManagerConfig::new()
            .set_response_timeout(Some(ANSWER_MAX))
            .set_connection_timeout(Some(ANSWER_MAX))
            .set_number_of_retries(1);
        let silent = |error| crate::Error::new(Code::StoreUnavailable).because(error);
        let manager = client.get_connection_manager_with_config(config).await.map_err(silent)?;
        let keys = Self {
            manager,
            prefix: options.prefix,
            clock: options.clock,
            read: Script::new(include_str!("read.lua")),
            write: Script::new(include_str!("write.lua")),
            count: Script::new(include_str!("count.lua")),
        };
        keys.warn_of_settings().await;
        Ok(keys)
    }

    /// Says what this server may lose, as far as it tells.
    async fn warn_of_settings(&self) {
        let mut manager = self.manager.clone();
        let info: Result<String, _> = ::redis::cmd("INFO").query_async(&mut manager).await;
        let Ok(info) = info else { return };
        if info.contains("aof_enabled:0") {
            tracing::warn!("this Redis has no append-only file: a restart may forget keys");
        }
        if !info.contains("maxmemory_policy:noeviction") && info.contains("maxmemory_policy:") {
            tracing::warn!("this Redis evicts keys when its memory is full; set noeviction");
        }
    }

    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    async fn read(&self, key: &str) -> Result<Read, Error> {
        let mut manager = self.manager.clone();
        let answer = self.read.key(self.name(key)).invoke_async(&mut manager).await;
        let (millis, micros, stored): (i64, u64, Vec<(String, String)>) =
            answer.map_err(refused)?;
        let now = self.clock.as_ref().map_or(Timestamp::from_millis(millis), |clock| clock.now());
        Read::of(key, now, micros, stored)
    }

    /// Writes a key if it is as it was read. `None`: it is to be gone.
    async fn write(&self, read: &Read, row: Option<&StepKey>) -> Result<bool, Error> {
        let fresh =
            row.is_none_or(|row| read.row.as_ref().is_none_or(|old| old.token != row.token));
        let mut call = self.write.key(self.name(&read.key));
        call.arg(&read.version).arg(if fresh { "forget" } else { "keep" });
        match row {
            None => drop(call.arg("")),
            Some(row) => {
                call.arg(server_ttl(row, read.now));
                for (name, value) in fields(row, read.changes + 1)? {
                    call.arg(name).arg(value);
                }
                // Later it is counted without a look at the version.
                if fresh {
                    call.arg("duplicates").arg(row.duplicates);
                }
            }
        }
        let mut manager = self.manager.clone();
        let written: i64 = call.invoke_async(&mut manager).await.map_err(refused)?;
        Ok(written == 1)
    }

    /// Counts one that came second.
    async fn count(&self, row: &StepKey, duplicate: Duplicate, id: &str) -> Result<(), Error> {
        let mut call = self.count.key(self.name(&row.key));
        let holder = serde_json::to_string(id).map_err(|error| Error::Corrupt(error.into()))?;
        call.arg(row.token).arg(holder).arg(line(&duplicate)?).arg(DUPLICATES_KEPT_MAX);
        let mut manager = self.manager.clone();
        call.invoke_async::<i64>(&mut manager).await.map_err(refused)?;
        Ok(())
    }

    async fn take(&self, take: TakeKey) -> Result<KeyAnswer, Error> {
        for _ in 0..AGAIN_MAX {
            let read = self.read(&take.key).await?;
            let row = match (taking(read.row.as_ref(), &take, read.now)?, &read.row) {
                (Taking::Refused(answer, counts), Some(row)) => {
                    if let Some(same_input) = counts {
                        let caller = take.holder.caller.clone();
                        let duplicate = Duplicate { at: read.now, caller, same_input };
                        self.count(row, duplicate, &take.holder.id).await?;
                    }
                    return Ok(answer);
                }
                (Taking::Again, Some(row)) => {
                    StepKey { until: Some(after(read.now, take.lease_ms)), ..row.clone() }
                }
                _ => take.fresh(read.next_token(), read.now),
            };
            if self.write(&read, Some(&row)).await? {
                return Ok(KeyAnswer::Held(row.lease()));
            }
        }
        Err(contended(&take.key))
    }

    async fn renew(&self, lease: KeyLease, lease_ms: i64) -> Result<(), Error> {
        for _ in 0..AGAIN_MAX {
            let read = self.read(&lease.key).await?;
            let row = read.row.clone().filter(|row| is_held(Some(row), &lease));
            let row = row.ok_or(Error::LeaseLost)?;
            let row = StepKey { until: Some(after(read.now, lease_ms)), ..row };
            if self.write(&read, Some(&row)).await? {
                return Ok(());
            }
        }
        Err(contended(&lease.key))
    }

    async fn settle(&self, lease: KeyLease, settle: SettleKey) -> Result<(), Error> {
        for _ in 0..AGAIN_MAX {
            let read = self.read(&lease.key).await?;
            let row = match settling(read.row.clone(), &lease, &settle, read.now)? {
                Settling::Already => return Ok(()),
                Settling::Free => None,
                Settling::Keep(row) => Some(row),
            };
            if self.write(&read, row.as_ref()).await? {
                return Ok(());
            }
        }
        Err(contended(&lease.key))
    }

    async fn release(&self, key: String) -> Result<bool, Error> {
        for _ in 0..AGAIN_MAX {
            let read = match self.read(&key).await {
                // Nobody can take a key that cannot be read, until it is released.
                Err(Error::Corrupt(_)) => return self.forget(&key).await,
                read => read?,
            };
            let live = read.row.as_ref().is_some_and(|row| row.is_live(read.now));
            if read.row.is_none() || self.write(&read, None).await? {
                return Ok(live);
            }
        }
        Err(contended(&key))
    }

    /// Forgets a key, whatever is stored under it.
    async fn forget(&self, key: &str) -> Result<bool, Error> {
        let mut manager = self.manager.clone();
        let mut call = ::redis::cmd("DEL");
        call.arg(self.name(key));
        let gone: i64 = call.query_async(&mut manager).await.map_err(refused)?;
        Ok(gone > 0)
    }

    async fn import(&self, key: StepKey) -> Result<bool, Error> {
        for _ in 0..AGAIN_MAX {
            let read = self.read(&key.key).await?;
            if !importing(read.row.as_ref(), &key, read.now)? {
                return Ok(false);
            }
            let token = read.next_token().max(key.token + 1);
            if self.write(&read, Some(&StepKey { token, ..key.clone() })).await? {
                return Ok(true);
            }
        }
        Err(contended(&key.key))
    }

    /// Looks at every name, since Redis keeps them in no order; keeps as many as a page has.
    async fn names(&self, after: &str, most: usize) -> Result<BTreeSet<String>, Error> {
        let mut manager = self.manager.clone();
        let pattern = format!("{}*", escaped(&self.prefix));
        let (mut names, mut cursor) = (BTreeSet::new(), 0_u64);
        loop {
            let mut scan = ::redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN_COUNT);
            let (next, found): (u64, Vec<String>) =
                scan.query_async(&mut manager).await.map_err(refused)?;
            for name in found.iter().filter_map(|name| name.strip_prefix(&self.prefix)) {
                if name > after {
                    names.insert(name.to_owned());
                }
                if names.len() > most {
                    names.pop_last();
                }
            }
            if next == 0 {
                return Ok(names);
            }
            cursor = next;
        }
    }

    async fn page(&self, after: Option<String>, limit: usize) -> Result<StepKeyPage, Error> {
        let limit = limit.clamp(1, PAGE_ROWS_MAX);
        let mut reading = Reading::new(after, limit + 1);
        loop {
            // A whole page of names, since each look goes through all that Redis has.
            let names = self.names(reading.next().0, limit + 1).await?;
            let is_last = names.len() <= limit;
            for name in names {
                if reading.next().1 == 0 {
                    break;
                }
                match self.read(&name).await {
                    // It was free by the time that it was read.
                    Ok(read) if !read.row.as_ref().is_some_and(|row| row.is_live(read.now)) => {
                        reading.skip_to(name);
                    }
                    Ok(read) => {
                        reading.take(vec![(name, read.row)]);
                    }
                    Err(Error::Corrupt(error)) => {
                        let why =
                            "a step key cannot be read; nobody can take it until it is released";
                        tracing::warn!(key = name, %error, why);
                        reading.take(vec![(name, None)]);
                    }
                    Err(error) => return Err(error),
                }
            }
            if is_last || reading.next().1 == 0 {
                let Page { rows: keys, unreadable, more } = reading.page();
                return Ok(StepKeyPage { keys, unreadable, more });
            }
        }
    }
}

impl Keys for RedisKeys {
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        Box::pin(self.take(take))
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        Box::pin(self.renew(lease, lease_ms))
    }

    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()> {
        Box::pin(self.settle(lease, settle))
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        Box::pin(self.release(key))
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        Box::pin(async move {
            let read = self.read(&key).await?;
            Ok(read.row.filter(|row| row.is_live(read.now)))
        })
    }

    fn step_keys(&self, after: Option<String>, limit: usize) -> Answer<'_, StepKeyPage> {
        Box::pin(self.page(after, limit))
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        Box::pin(async move {
            let read = self.read(&key).await?;
            let count = read.row.map_or(0, |row| row.duplicates);
            Ok(Duplicates { count, latest: read.audit })
        })
    }

    fn import_key(&self, key: StepKey) -> Answer<'_, bool> {
        Box::pin(self.import(key))
    }
}

/// After how long the server itself forgets a key, in milliseconds. A hold is kept for another
/// lease, so that its holder may still settle it while nobody else came.
fn server_ttl(row: &StepKey, now: Timestamp) -> String {
    match row.until {
        None => String::new(),
        Some(until) => {
            let left = until.as_millis().saturating_sub(now.as_millis()).max(1);
            let spare = if row.state == KeyState::Held { millis(KEY_HELD_KEEP) } else { 0 };
            left.saturating_add(spare).to_string()
        }
    }
}

/// A text as a pattern that fits only itself.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if "*?[]\\^".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

fn contended(key: &str) -> Error {
    let why = format!("the key {key:?} changed whenever it was looked at");
    Error::Unavailable(Outage::NoAnswer, why.into())
}

/// What a server's answer means for the write.
fn refused(error: RedisError) -> Error {
    let outage = match error.code() {
        Some("OOM" | "MISCONF") => Outage::Full,
        Some("READONLY") => Outage::ReadOnly,
        Some("WRONGTYPE") => return Error::Corrupt(Box::new(error)),
        _ => Outage::NoAnswer,
    };
    Error::Unavailable(outage, Box::new(error))
}

impl fmt::Debug for RedisKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisKeys").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
