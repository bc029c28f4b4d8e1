//! Step keys in the file.
//!
//! Owns: the columns of a key, and what each verb writes. Never decides anything; the shared rules
//! of `step_key` do.

use rusqlite::{Connection, params};

use super::commit::{Points, VerbWrite};
use super::fault::Fault;
use super::row::{self, Columns, limit, signed};
use super::tx::Tx;
use super::writer::Size;
use super::{Answer, SqliteStore};
use crate::Timestamp;
use crate::clock::millis;
use crate::json::Fingerprint;
use crate::limits::{DUPLICATES_KEPT_MAX, KEY_HELD_KEEP, KEY_PURGE_BATCH, PAGE_ROWS_MAX};
use crate::store::column;
use crate::store::reading::{Page, Reading};
use crate::store::step_key::{Settling, Taking, after, importing, settling, taking, topic};
use crate::store::{
    Duplicate, Duplicates, Error, KeyAnswer, KeyHolder, KeyLease, Keys, SettleKey, StepKey,
    StepKeyPage, TakeKey, Topic, Waiter,
};

const KEY: &str = concat!(include_str!("sql/key.sql"), include_str!("sql/key_by_name.sql"));
const KEYS: &str = concat!(include_str!("sql/key.sql"), include_str!("sql/key_page.sql"));

impl SqliteStore {
    /// A small write, with points at which a test can kill the process.
    fn pointed<T: Send + 'static>(
        &self,
        verb: impl FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Answer<'static, T> {
        let points = Points { before: "key.before_commit", after: "key.after_commit" };
        self.writer.submit(VerbWrite::new(verb, Some(points)), Size::Small)
    }
}

impl Keys for SqliteStore {
    fn take_key(&self, take: TakeKey) -> Answer<'_, KeyAnswer> {
        self.pointed(move |tx| take_key(tx, &take))
    }

    fn renew_key(&self, lease: KeyLease, lease_ms: i64) -> Answer<'_, ()> {
        self.small(move |tx| {
            let until = after(tx.now, lease_ms).as_millis();
            let params = params![signed(lease.token), until, lease.key, lease.holder];
            match tx.execute(include_str!("sql/key_renew.sql"), params)? {
                0 => Err(Error::LeaseLost.into()),
                _ => Ok(()),
            }
        })
    }

    fn settle_key(&self, lease: KeyLease, settle: SettleKey) -> Answer<'_, ()> {
        self.pointed(move |tx| settle_key(tx, &lease, &settle))
    }

    fn release_key(&self, key: String) -> Answer<'_, bool> {
        self.small(move |tx| {
            let live = match find(tx.conn, &key) {
                // Nobody can take a key that cannot be read, until it is released.
                Err(Fault::Data(_)) => true,
                found => found?.is_some_and(|row| row.is_live(tx.now)),
            };
            drop_key(tx, &key)?;
            tx.changed(topic(&key));
            Ok(live)
        })
    }

    fn step_key(&self, key: String) -> Answer<'_, Option<StepKey>> {
        let now = self.clock.now();
        self.readers.look(move |conn| Ok(find(conn, &key)?.filter(|row| row.is_live(now))))
    }

    fn step_keys(&self, after: Option<String>, most: usize) -> Answer<'_, StepKeyPage> {
        let now = self.clock.now().as_millis();
        self.people.look(move |conn| {
            let mut reading = Reading::new(after.clone(), most.clamp(1, PAGE_ROWS_MAX) + 1);
            loop {
                let (after, most) = reading.next();
                if !reading.take(row::all(conn, KEYS, params![after, now, limit(most)], named)?) {
                    let Page { rows: keys, unreadable, more } = reading.page();
                    return Ok(StepKeyPage { keys, unreadable, more });
                }
            }
        })
    }

    fn key_duplicates(&self, key: String) -> Answer<'_, Duplicates> {
        self.people.look(move |conn| {
            let Some(row) = find(conn, &key)? else { return Ok(Duplicates::default()) };
            let sql = include_str!("sql/key_duplicates.sql");
            let latest = row::all(conn, sql, [signed(row.token)], |row| {
                let at = Timestamp::from_millis(row.get(0)?);
                Ok(Duplicate { at, caller: row.get(1)?, same_input: row.get(2)? })
            })?;
            Ok(Duplicates { count: row.duplicates, latest })
        })
    }

    fn import_key(&self, key: StepKey) -> Answer<'_, bool> {
        self.small(move |tx| import_key(tx, &key))
    }

    fn wait_key(&self, key: &str) -> Option<Waiter> {
        Some(super::Store::wait(self, Topic::Run(topic(key))))
    }
}

fn take_key(tx: &mut Tx<'_>, take: &TakeKey) -> Result<KeyAnswer, Fault> {
    let row = find(tx.conn, &take.key)?;
    match (taking(row.as_ref(), take, tx.now)?, row) {
        (Taking::Refused(answer, counts), Some(row)) => {
            if let Some(same_input) = counts {
                count(tx, &row, &take.holder, same_input)?;
            }
            Ok(answer)
        }
        (Taking::Again, Some(row)) => {
            let until = after(tx.now, take.lease_ms).as_millis();
            let params = params![signed(row.token), until, row.key, row.holder.id];
            tx.execute(include_str!("sql/key_renew.sql"), params)?;
            Ok(KeyAnswer::Held(row.lease()))
        }
        _ => take_fresh(tx, take),
    }
}

fn take_fresh(tx: &mut Tx<'_>, take: &TakeKey) -> Result<KeyAnswer, Fault> {
    drop_key(tx, &take.key)?;
    let held = after(tx.now, -millis(KEY_HELD_KEEP));
    let over = params![tx.now.as_millis(), limit(KEY_PURGE_BATCH), held.as_millis()];
    let sql = include_str!("sql/key_over.sql");
    for key in row::all(tx.conn, sql, over, |row| Ok(row.get::<_, String>(0)?))? {
        drop_key(tx, &key)?;
    }
    let params = params![
        take.key,
        take.holder.id,
        take.holder.attempt,
        take.holder.caller,
        take.fingerprint.map(|fingerprint| fingerprint.0),
        tx.now.as_millis(),
        after(tx.now, take.lease_ms).as_millis(),
    ];
    let sql = include_str!("sql/key_take.sql");
    let token = row::first(tx.conn, sql, params, |row| Ok(row.get::<_, i64>(0)?))?;
    let token = token.ok_or_else(|| Fault::data("a key was taken without a token"))?;
    let token = u64::try_from(token).map_err(Fault::data)?;
    Ok(KeyAnswer::Held(take.fresh(token, tx.now).lease()))
}

fn settle_key(tx: &mut Tx<'_>, lease: &KeyLease, settle: &SettleKey) -> Result<(), Fault> {
    let row = find(tx.conn, &lease.key)?;
    match settling(row, lease, settle, tx.now)? {
        Settling::Already => return Ok(()),
        Settling::Free => drop_key(tx, &lease.key)?,
        Settling::Keep(row) => {
            let body = column::of_key_body(&row).map_err(Fault::data)?;
            tx.wrote(body.as_ref().map_or(0, |body| body.len()));
            let params = params![
                signed(row.token),
                row.state.as_str(),
                body,
                row.settled_at.map(Timestamp::as_millis),
                row.until.map(Timestamp::as_millis),
            ];
            tx.execute(include_str!("sql/key_settle.sql"), params)?;
        }
    }
    tx.changed(topic(&lease.key));
    Ok(())
}

fn import_key(tx: &mut Tx<'_>, key: &StepKey) -> Result<bool, Fault> {
    let row = find(tx.conn, &key.key)?;
    if !importing(row.as_ref(), key, tx.now)? {
        return Ok(false);
    }
    drop_key(tx, &key.key)?;
    let body = column::of_key_body(key).map_err(Fault::data)?;
    let params = params![
        signed(key.token),
        key.key,
        key.state.as_str(),
        key.holder.id,
        key.holder.attempt,
        key.holder.caller,
        key.fingerprint.map(|fingerprint| fingerprint.0),
        body,
        key.taken_at.as_millis(),
        key.settled_at.map(Timestamp::as_millis),
        key.until.map(Timestamp::as_millis),
        signed(key.duplicates),
    ];
    tx.execute(include_str!("sql/key_import.sql"), params)?;
    Ok(true)
}

/// Counts one that came second, and keeps the latest of them.
fn count(tx: &Tx<'_>, row: &StepKey, holder: &KeyHolder, same: bool) -> Result<(), Fault> {
    let token = signed(row.token);
    let params = params![token, holder.id, tx.now.as_millis(), holder.caller, same];
    if tx.execute(include_str!("sql/key_duplicate.sql"), params)? == 0 {
        return Ok(());
    }
    let sql = include_str!("sql/key_duplicate_count.sql");
    let count = row::first(tx.conn, sql, [token], |row| Ok(row.get::<_, i64>(0)?))?;
    if count > Some(limit(DUPLICATES_KEPT_MAX)) {
        tx.execute(include_str!("sql/key_duplicate_drop.sql"), [token])?;
    }
    Ok(())
}

/// Forgets a key with what came second.
fn drop_key(tx: &Tx<'_>, key: &str) -> Result<(), Fault> {
    let sql = include_str!("sql/key_drop.sql");
    let token = row::first(tx.conn, sql, [key], |row| Ok(row.get::<_, i64>(0)?))?;
    if let Some(token) = token {
        tx.execute(include_str!("sql/key_drop_duplicates.sql"), [token])?;
    }
    Ok(())
}

fn find(conn: &Connection, key: &str) -> Result<Option<StepKey>, Fault> {
    row::first(conn, KEY, [key], read)
}

/// A row of `key.sql`, and no key where it cannot be read.
fn named(row: &rusqlite::Row<'_>) -> Result<(String, Option<StepKey>), Fault> {
    let name: String = row.get(0)?;
    match read(row) {
        Err(Fault::Data(error)) => {
            tracing::warn!(key = name, %error, "a step key cannot be read; nobody can take it until it is released");
            Ok((name, None))
        }
        read => Ok((name, Some(read?))),
    }
}

/// A row of `key.sql`.
fn read(row: &rusqlite::Row<'_>) -> Result<StepKey, Fault> {
    let mut columns = Columns { row, next: 0 };
    let key = columns.take()?;
    let state: String = columns.take()?;
    let holder =
        KeyHolder { id: columns.take()?, attempt: columns.take()?, caller: columns.take()? };
    let token = columns.unsigned()?;
    let fingerprint = columns.take::<Option<[u8; 32]>>()?.map(Fingerprint);
    let body: Option<String> = columns.take()?;
    let (state, result, failure) = column::key_body(&state, body).map_err(Fault::data)?;
    Ok(StepKey {
        key,
        state,
        holder,
        token,
        fingerprint,
        result,
        failure,
        taken_at: columns.time()?,
        settled_at: columns.time_or_none()?,
        until: columns.time_or_none()?,
        duplicates: columns.unsigned()?,
    })
}
