//! Step keys in the database.
//!
//! Owns: the columns of a key, and what each verb writes, under a lock of the key's row. Never
//! decides anything; the shared rules of `step_key` do.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::fault::Fault;
use super::row::{Columns, limit, signed, small};
use super::tx::{Param, Session, Tx, transact};
use super::{Answer, PostgresStore, Shared};
use crate::Timestamp;
use crate::clock::millis;
use crate::json::Fingerprint;
use crate::limits::{DUPLICATES_KEPT_MAX, KEY_HELD_KEEP, KEY_PURGE_BATCH, PAGE_ROWS_MAX};
use crate::store::column;
use crate::store::reading::{Page, Reading};
use crate::store::step_key::{
    Settling, Taking, after, importing, is_held, settling, taking, topic,
};
use crate::store::{
    Duplicate, Duplicates, Error, KeyAnswer, KeyHolder, KeyLease, Keys, SettleKey, StepKey,
    StepKeyPage, Store, TakeKey, Topic, Waiter,
};

const KEY: &str = concat!(include_str!("sql/key.sql"), include_str!("sql/key_by_name.sql"));
const KEY_LOCKED: &str = concat!(
    include_str!("sql/key.sql"),
    include_str!("sql/key_by_name.sql"),
    include_str!("sql/key_lock.sql")
);
const KEYS: &str = concat!(include_str!("sql/key.sql"), include_str!("sql/key_page.sql"));

impl Keys for PostgresStore {
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        let (shared, take) = (Arc::clone(&self.shared), Arc::new(take));
        self.home.answer(async move {
            transact(&shared, |tx| Box::pin(take_key(tx, Arc::clone(&take)))).await
        })
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        let (shared, lease) = (Arc::clone(&self.shared), Arc::new(lease));
        self.home.answer(async move {
            transact(&shared, |tx| Box::pin(renew_key(tx, Arc::clone(&lease), lease_ms))).await
        })
    }

    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()> {
        let (shared, write) = (Arc::clone(&self.shared), Arc::new((lease, settle)));
        self.home.answer(async move {
            transact(&shared, |tx| Box::pin(settle_key(tx, Arc::clone(&write)))).await
        })
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        let (shared, key) = (Arc::clone(&self.shared), Arc::new(key));
        self.home.answer(async move {
            transact(&shared, |tx| Box::pin(release_key(tx, Arc::clone(&key)))).await
        })
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        let shared = Arc::clone(&self.shared);
        self.home.answer(async move {
            let mut session = Session::open(&shared).await?;
            let row = session.first(KEY, &[(&key, Type::TEXT)]).await?;
            let now = session.now().await?;
            Ok(row.as_ref().map(read).transpose()?.filter(|row| row.is_live(now)))
        })
    }

    fn step_keys(&self, after: Option<String>, most: usize) -> Answer<'_, StepKeyPage> {
        self.home.answer(step_keys(Arc::clone(&self.shared), after, most))
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        self.home.answer(key_duplicates(Arc::clone(&self.shared), key))
    }

    fn import_key(&self, key: StepKey) -> Answer<'_, bool> {
        let (shared, key) = (Arc::clone(&self.shared), Arc::new(key));
        self.home.answer(async move {
            transact(&shared, |tx| Box::pin(import_key(tx, Arc::clone(&key)))).await
        })
    }

    fn wait_key(&self, key: &str) -> Option<Waiter> {
        Some(self.wait(Topic::Run(topic(key))))
    }
}

async fn take_key(tx: &mut Tx, take: Arc<TakeKey>) -> Result<KeyAnswer, Fault> {
    let row = locked(tx, &take.key).await?;
    match (taking(row.as_ref(), &take, tx.now)?, row) {
        (Taking::Refused(answer, counts), Some(row)) => {
            if let Some(same_input) = counts {
                count(tx, &row, &take.holder, same_input).await?;
            }
            Ok(answer)
        }
        (Taking::Again, Some(row)) => {
            lengthen(tx, &row.lease(), take.lease_ms).await?;
            Ok(KeyAnswer::Held(row.lease()))
        }
        (_, row) => take_fresh(tx, &take, row.as_ref()).await,
    }
}

async fn take_fresh(
    tx: &mut Tx,
    take: &TakeKey,
    row: Option<&StepKey>,
) -> Result<KeyAnswer, Fault> {
    drop_row(tx, row).await?;
    let purge = i64::try_from(KEY_PURGE_BATCH).unwrap_or(i64::MAX);
    let held = after(tx.now, -millis(KEY_HELD_KEEP)).as_millis();
    let params: [Param<'_>; 3] =
        [(&tx.now.as_millis(), Type::INT8), (&purge, Type::INT8), (&held, Type::INT8)];
    for row in tx.rows(include_str!("sql/key_over.sql"), &params).await? {
        drop_key(tx, &row.try_get::<_, String>(0).map_err(Fault::data)?).await?;
    }
    let fingerprint = take.fingerprint.map(|fingerprint| fingerprint.0.to_vec());
    let params: [Param<'_>; 7] = [
        (&take.key, Type::TEXT),
        (&take.holder.id, Type::TEXT),
        (&small(take.holder.attempt), Type::INT4),
        (&take.holder.caller, Type::TEXT),
        (&fingerprint, Type::BYTEA),
        (&tx.now.as_millis(), Type::INT8),
        (&after(tx.now, take.lease_ms).as_millis(), Type::INT8),
    ];
    let row = tx.first(include_str!("sql/key_take.sql"), &params).await?;
    let row = row.ok_or_else(|| Fault::data("a key was taken without a token"))?;
    let token: i64 = row.try_get(0).map_err(Fault::data)?;
    let token = u64::try_from(token).map_err(Fault::data)?;
    Ok(KeyAnswer::Held(take.fresh(token, tx.now).lease()))
}

async fn renew_key(tx: &mut Tx, lease: Arc<KeyLease>, lease_ms: i64) -> Result<(), Fault> {
    let row = locked(tx, &lease.key).await?;
    if !is_held(row.as_ref(), &lease) {
        return Err(Error::LeaseLost.into());
    }
    lengthen(tx, &lease, lease_ms).await
}

async fn lengthen(tx: &Tx, lease: &KeyLease, lease_ms: i64) -> Result<(), Fault> {
    let params: [Param<'_>; 4] = [
        (&signed(lease.token), Type::INT8),
        (&after(tx.now, lease_ms).as_millis(), Type::INT8),
        (&lease.key, Type::TEXT),
        (&lease.holder, Type::TEXT),
    ];
    tx.rows(include_str!("sql/key_renew.sql"), &params).await?;
    Ok(())
}

async fn settle_key(tx: &mut Tx, write: Arc<(KeyLease, SettleKey)>) -> Result<(), Fault> {
    let (lease, settle) = &*write;
    let row = locked(tx, &lease.key).await?;
    match settling(row, lease, settle, tx.now)? {
        Settling::Already => return Ok(()),
        Settling::Free => drop_key(tx, &lease.key).await?,
        Settling::Keep(row) => {
            let body = column::of_key_body(&row).map_err(Fault::data)?;
            let params: [Param<'_>; 5] = [
                (&row.key, Type::TEXT),
                (&row.state.as_str(), Type::TEXT),
                (&body.as_deref(), Type::TEXT),
                (&row.settled_at.map(Timestamp::as_millis), Type::INT8),
                (&row.until.map(Timestamp::as_millis), Type::INT8),
            ];
            tx.rows(include_str!("sql/key_settle.sql"), &params).await?;
        }
    }
    tx.changed(topic(&lease.key));
    Ok(())
}

async fn release_key(tx: &mut Tx, key: Arc<String>) -> Result<bool, Fault> {
    let live = match locked(tx, &key).await {
        // Nobody can take a key that cannot be read, until it is released.
        Err(Fault::Data(_)) => true,
        found => found?.is_some_and(|row| row.is_live(tx.now)),
    };
    drop_key(tx, &key).await?;
    tx.changed(topic(&key));
    Ok(live)
}

async fn import_key(tx: &mut Tx, key: Arc<StepKey>) -> Result<bool, Fault> {
    let row = locked(tx, &key.key).await?;
    if !importing(row.as_ref(), &key, tx.now)? {
        return Ok(false);
    }
    drop_row(tx, row.as_ref()).await?;
    let body = column::of_key_body(&key).map_err(Fault::data)?;
    let fingerprint = key.fingerprint.map(|fingerprint| fingerprint.0.to_vec());
    let token = signed(key.token);
    tx.rows(include_str!("sql/key_token.sql"), &[(&token, Type::INT8)]).await?;
    let params: [Param<'_>; 11] = [
        (&key.key, Type::TEXT),
        (&key.state.as_str(), Type::TEXT),
        (&key.holder.id, Type::TEXT),
        (&small(key.holder.attempt), Type::INT4),
        (&key.holder.caller, Type::TEXT),
        (&fingerprint, Type::BYTEA),
        (&body.as_deref(), Type::TEXT),
        (&key.taken_at.as_millis(), Type::INT8),
        (&key.settled_at.map(Timestamp::as_millis), Type::INT8),
        (&key.until.map(Timestamp::as_millis), Type::INT8),
        (&signed(key.duplicates), Type::INT8),
    ];
    tx.rows(include_str!("sql/key_import.sql"), &params).await?;
    Ok(true)
}

/// Counts one that came second, and keeps the latest of them.
async fn count(tx: &Tx, row: &StepKey, holder: &KeyHolder, same: bool) -> Result<(), Fault> {
    let token = signed(row.token);
    let params: [Param<'_>; 5] = [
        (&token, Type::INT8),
        (&holder.id, Type::TEXT),
        (&tx.now.as_millis(), Type::INT8),
        (&holder.caller, Type::TEXT),
        (&same, Type::BOOL),
    ];
    if tx.first(include_str!("sql/key_duplicate.sql"), &params).await?.is_none() {
        return Ok(());
    }
    let sql = include_str!("sql/key_duplicate_count.sql");
    let counted = tx.first(sql, &[(&row.key, Type::TEXT)]).await?;
    let counted = counted.map(|row| row.try_get::<_, i64>(0)).transpose().map_err(Fault::data)?;
    if counted > Some(limit(DUPLICATES_KEPT_MAX)) {
        tx.rows(include_str!("sql/key_duplicate_drop.sql"), &[(&token, Type::INT8)]).await?;
    }
    Ok(())
}

/// Forgets a key that was found, and is locked. One that was not there when it was looked for may be
/// there by now, and is somebody else's: to add it then is refused, and the verb begins again.
async fn drop_row(tx: &Tx, row: Option<&StepKey>) -> Result<(), Fault> {
    match row {
        Some(row) => drop_key(tx, &row.key).await,
        None => Ok(()),
    }
}

/// Forgets a locked key with what came second.
async fn drop_key(tx: &Tx, key: &str) -> Result<(), Fault> {
    let dropped = tx.first(include_str!("sql/key_drop.sql"), &[(&key, Type::TEXT)]).await?;
    let Some(row) = dropped else { return Ok(()) };
    let token: i64 = row.try_get(0).map_err(Fault::data)?;
    tx.rows(include_str!("sql/key_drop_duplicates.sql"), &[(&token, Type::INT8)]).await?;
    Ok(())
}

async fn step_keys(
    shared: Arc<Shared>,
    after: Option<String>,
    most: usize,
) -> Result<StepKeyPage, Fault> {
    let mut session = Session::open(&shared).await?;
    let mut reading = Reading::new(after, most.clamp(1, PAGE_ROWS_MAX) + 1);
    loop {
        let (after, most) = reading.next();
        let params: [Param<'_>; 3] =
            [(&after, Type::TEXT), (&shared.clock.given(), Type::INT8), (&limit(most), Type::INT8)];
        let rows = session.rows(KEYS, &params).await?;
        if !reading.take(rows.iter().map(named).collect::<Result<_, _>>()?) {
            let Page { rows: keys, unreadable, more } = reading.page();
            return Ok(StepKeyPage { keys, unreadable, more });
        }
    }
}

async fn key_duplicates(shared: Arc<Shared>, key: String) -> Result<Duplicates, Fault> {
    let mut session = Session::open(&shared).await?;
    let row = session.first(KEY, &[(&key, Type::TEXT)]).await?;
    let Some(row) = row.as_ref().map(read).transpose()? else { return Ok(Duplicates::default()) };
    let sql = include_str!("sql/key_duplicates.sql");
    let rows = session.rows(sql, &[(&signed(row.token), Type::INT8)]).await?;
    let read = |row: &tokio_postgres::Row| -> Result<_, tokio_postgres::Error> {
        let at = Timestamp::from_millis(row.try_get(0)?);
        Ok(Duplicate { at, caller: row.try_get(1)?, same_input: row.try_get(2)? })
    };
    let latest = rows.iter().map(read).collect::<Result<_, _>>().map_err(Fault::data)?;
    Ok(Duplicates { count: row.duplicates, latest })
}

/// The key, locked until the transaction ends.
async fn locked(tx: &Tx, key: &str) -> Result<Option<StepKey>, Fault> {
    let row = tx.first(KEY_LOCKED, &[(&key, Type::TEXT)]).await?;
    row.as_ref().map(read).transpose()
}

/// A row of `key.sql`, and no key where it cannot be read.
fn named(row: &tokio_postgres::Row) -> Result<(String, Option<StepKey>), Fault> {
    let name: String = row.try_get(0).map_err(Fault::data)?;
    match read(row) {
        Err(Fault::Data(error)) => {
            tracing::warn!(key = name, %error, "a step key cannot be read; nobody can take it until it is released");
            Ok((name, None))
        }
        read => Ok((name, Some(read?))),
    }
}

/// A row of `key.sql`.
fn read(row: &tokio_postgres::Row) -> Result<StepKey, Fault> {
    let mut columns = Columns { row, next: 0 };
    let key = columns.take()?;
    let state: String = columns.take()?;
    let holder =
        KeyHolder { id: columns.take()?, attempt: columns.small()?, caller: columns.take()? };
    let token = columns.unsigned()?;
    let fingerprint = columns.take::<Option<Vec<u8>>>()?;
    let fingerprint = fingerprint.map(<[u8; 32]>::try_from).transpose();
    let fingerprint = fingerprint.map_err(|_| Fault::data("a fingerprint of another length"))?;
    let body: Option<String> = columns.take()?;
    let (state, result, failure) = column::key_body(&state, body).map_err(Fault::data)?;
    Ok(StepKey {
        key,
        state,
        holder,
        token,
        fingerprint: fingerprint.map(Fingerprint),
        result,
        failure,
        taken_at: columns.time()?,
        settled_at: columns.time_or_none()?,
        until: columns.time_or_none()?,
        duplicates: columns.unsigned()?,
    })
}
