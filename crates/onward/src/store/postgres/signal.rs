//! Signals: what came in for a run from outside.
//!
//! Owns: keeping them, in the order in which they came, and telling a parent of its child's end.
//! Never delivers one.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::Row as PgRow;
use tokio_postgres::types::Type;

use super::Shared;
use super::fault::Fault;
use super::row::{Columns, limit, run_id, run_uuid, signed};
use super::tx::{Changes, Param, Session, Tx};
use crate::limits::{INBOX_BYTES_MAX, SIGNALS_BYTES_MAX, SIGNALS_MAX};
use crate::store::{Claimed, Conflict, Error, Inbox, InboxRest, NewSignal, Signal, Signalled};
use crate::{Fingerprint, Json, RunId, Timestamp, failpoint};

const SIGNAL: &str = "select how, no, at from onward.signal_alone($1, $2, $3, $4, $5, $6, $7)";

// The function is written for these numbers.
const _: () = assert!(SIGNALS_MAX == 10_000 && SIGNALS_BYTES_MAX == 16_777_216);

/// Keeps a signal, and wakes the run if it waits for one.
pub(super) async fn signal(shared: Arc<Shared>, new: NewSignal) -> Result<Signalled, Fault> {
    let mut session = Session::open(&shared).await?;
    let params: [Param<'_>; 7] = [
        (&shared.clock.given(), Type::INT8),
        (&run_uuid(new.run), Type::UUID),
        (&new.name, Type::TEXT),
        (&new.step, Type::TEXT),
        (&new.key, Type::TEXT),
        (&new.fingerprint.0.as_slice(), Type::BYTEA),
        (&new.body.as_str(), Type::TEXT),
    ];
    failpoint::hit("signal.before_commit");
    let row = session.first(SIGNAL, &params).await?;
    failpoint::hit("signal.after_commit");
    let row = row.ok_or_else(|| Fault::data("a signal without an answer"))?;
    let how: String = row.try_get(0).map_err(Fault::data)?;
    signal_said(&how, new.run)?;
    let was_there = how == "existing";
    if !was_there {
        shared.tell(Changes { work: how == "queued", runs: vec![new.run], ..Changes::default() });
    }
    let mut columns = Columns { row: &row, next: 1 };
    let no = u64::try_from(columns.take::<i64>()?).map_err(Fault::data)?;
    Ok(Signalled { no, was_there, at: Timestamp::from_millis(columns.take()?) })
}

/// What the function's answer means: an error where the signal is refused.
pub(crate) fn signal_said(how: &str, run: RunId) -> Result<(), Error> {
    match how {
        "key_conflict" => Err(Error::Conflict(Conflict::KeyInput { run })),
        "finished" => Err(Error::Conflict(Conflict::Finished { run })),
        "full" => Err(Error::Conflict(Conflict::SignalsFull { run })),
        "not_found" => Err(Error::NotFound),
        _ => Ok(()),
    }
}

/// Tells the parent of a run that has just ended, in the same transaction.
pub(super) async fn tell_parent(tx: &mut Tx, run: RunId) -> Result<(), Fault> {
    let params: [Param<'_>; 2] = [(&tx.now.as_millis(), Type::INT8), (&run_uuid(run), Type::UUID)];
    for told in tx.rows(include_str!("sql/tell_parents.sql"), &params).await? {
        tx.changed(run_id(told.try_get(0).map_err(Fault::data)?));
        if told.try_get(1).map_err(Fault::data)? {
            tx.work();
        }
    }
    Ok(())
}

/// Adds to claimed runs the signals that are not in their histories; gives the runs of which one cannot be
/// read.
pub(super) async fn add_untaken(
    session: &mut Session,
    runs: &mut [Claimed],
) -> Result<HashMap<RunId, Fault>, Fault> {
    let signalled = runs.iter().filter(|claimed| claimed.run.signals > 0);
    let ids: Vec<_> = signalled.map(|claimed| run_uuid(claimed.lease.run)).collect();
    let mut bad = HashMap::new();
    if ids.is_empty() {
        return Ok(bad);
    }
    // One that came after the run was read is heard of later, as what came after the last that the run knows
    // of. Given here too, it would arrive twice.
    let counts = runs.iter().filter(|claimed| claimed.run.signals > 0);
    let counts: Vec<_> = counts.map(|claimed| signed(claimed.run.signals)).collect();
    let params: [Param<'_>; 3] = [
        (&ids, Type::UUID_ARRAY),
        (&counts, Type::INT8_ARRAY),
        (&limit(INBOX_BYTES_MAX), Type::INT8),
    ];
    let mut untaken: HashMap<RunId, (Vec<Signal>, bool)> = HashMap::new();
    for row in session.rows(include_str!("sql/claim_signals.sql"), &params).await? {
        match of_run(&row) {
            Ok((run, signal)) => {
                let found = untaken.entry(run).or_default();
                found.0.push(signal);
                found.1 = row.try_get("is_cut").map_err(Fault::data)?;
            }
            Err(fault) => {
                let run = run_id(row.try_get("run").map_err(Fault::data)?);
                bad.insert(run, fault);
            }
        }
    }
    for claimed in runs {
        let (signals, is_cut) = untaken.remove(&claimed.lease.run).unwrap_or_default();
        let last = signals.last().map(|signal| signal.no).filter(|_| is_cut);
        claimed.signals_to = last.unwrap_or(claimed.run.signals);
        claimed.signals = signals;
    }
    Ok(bad)
}

/// What came in for a run after one of its signals.
pub(super) async fn inbox(shared: Arc<Shared>, run: RunId, after: u64) -> Result<Inbox, Fault> {
    let mut session = Session::open(&shared).await?;
    let params: [Param<'_>; 3] = [
        (&run_uuid(run), Type::UUID),
        (&signed(after), Type::INT8),
        (&limit(INBOX_BYTES_MAX), Type::INT8),
    ];
    let rows = session.rows(include_str!("sql/inbox.sql"), &params).await?;
    let first = rows.first().ok_or(Error::NotFound)?;
    let mut columns = Columns { row: first, next: 0 };
    let wakes = u64::try_from(columns.take::<i64>()?).map_err(Fault::data)?;
    let (cancel_asked, paused) = (columns.take()?, columns.take()?);
    let mut inbox = Inbox { wakes, cancel_asked, paused, ..Inbox::default() };
    // One row is there for the marks alone.
    let is_signal = |row: &&PgRow| !matches!(row.try_get::<_, Option<i64>>(3), Ok(None));
    for row in rows.iter().filter(is_signal) {
        match read(&mut Columns { row, next: 3 }) {
            Ok(signal) => inbox.signals.push(signal),
            Err(Fault::Data(why)) => {
                inbox.rest = InboxRest::Unreadable(why.to_string());
                return Ok(inbox);
            }
            Err(fault) => return Err(fault),
        }
    }
    let is_cut = rows.last().map(|row| row.try_get::<_, Option<bool>>("is_cut"));
    if let Some(Some(true)) = is_cut.transpose().map_err(Fault::data)? {
        inbox.rest = InboxRest::More;
    }
    Ok(inbox)
}

/// A signal, with its run in the last column.
pub(super) fn of_run(row: &PgRow) -> Result<(RunId, Signal), Fault> {
    let mut columns = Columns { row, next: 0 };
    let signal = read(&mut columns)?;
    Ok((run_id(columns.take()?), signal))
}

fn read(columns: &mut Columns<'_>) -> Result<Signal, Fault> {
    let no = u64::try_from(columns.take::<i64>()?).map_err(Fault::data)?;
    let (name, step, key) = (columns.take()?, columns.take()?, columns.take()?);
    let fingerprint: Vec<u8> = columns.take()?;
    let length = |_| Fault::data(format!("the fingerprint of signal {no} is damaged"));
    let fingerprint = Fingerprint(<[u8; 32]>::try_from(fingerprint).map_err(length)?);
    let body = Json::stored(columns.take::<String>()?);
    let at = Timestamp::from_millis(columns.take()?);
    Ok(Signal { no, name, step, key, fingerprint, body, at })
}
