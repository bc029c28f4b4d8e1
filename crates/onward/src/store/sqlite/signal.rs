//! Signals: what came in for a run from outside.
//!
//! Owns: keeping them, in the order in which they came, and telling a parent of its child's end.
//! Never delivers one.

use rusqlite::{Connection, Params, params};

use super::fault::Fault;
use super::row::{self, Row, run_blob, signed};
use super::tx::Tx;
use crate::limits::SIGNAL_KEYS_CARRIED_MAX;
use crate::store::signal::{self, SignalPage, Signalling};
use crate::store::{Error, Inbox, InboxRest, NewSignal, Signal, Signalled};
use crate::{Fingerprint, Json, Run, RunId, Timestamp};

/// Keeps a signal, and wakes the run if it waits for one.
pub(super) fn signal(tx: &mut Tx<'_>, new: &NewSignal) -> Result<Signalled, Fault> {
    let row = tx.row(new.run)?;
    if let Some(there) = same(tx, row.no, new)? {
        return Ok(signal::met(&there, new)?);
    }
    let signalling = signal::signalling(&row.run)?;
    signal::check_room(&row.run, row.signal_bytes, new)?;
    let no = keep(tx, row, new, signalling)?;
    Ok(Signalled { no, was_there: false, at: tx.now })
}

/// Tells the parent of a run that has just ended, if it has one that may ask for it and can be read.
pub(super) fn tell_parent(tx: &mut Tx<'_>, ended: &Run) -> Result<(), Fault> {
    let Some(new) = signal::of_end(ended) else { return Ok(()) };
    tx.apart(|tx| tell(tx, &new)).map(drop)
}

fn tell(tx: &mut Tx<'_>, new: &NewSignal) -> Result<(), Fault> {
    let Some(parent) = row::by_id(tx.conn, new.run)? else { return Ok(()) };
    if same(tx, parent.no, new)?.is_none()
        && let Some(signalling) = signal::end_signalling(&parent.run)
    {
        keep(tx, parent, new, signalling)?;
    }
    Ok(())
}

fn same(tx: &Tx<'_>, run: i64, new: &NewSignal) -> Result<Option<Signal>, Fault> {
    let sql = include_str!("sql/signal_same.sql");
    row::first(tx.conn, sql, params![run, new.name, new.key], read)
}

fn keep(
    tx: &mut Tx<'_>,
    mut row: Row,
    new: &NewSignal,
    signalling: Signalling,
) -> Result<u64, Fault> {
    let no = row.run.signals + 1;
    add(tx, row.no, &Signal::of(new, no, tx.now))?;
    row.run.signals = no;
    let params = params![row.no, signed(new.bytes())];
    tx.execute(include_str!("sql/signal_bytes.sql"), params)?;
    match signalling {
        Signalling::Queue => {
            row.queue(tx.now);
            tx.work();
        }
        Signalling::Count => row.run.wakes += 1,
        Signalling::Keep => {}
    }
    row.save(tx.conn)?;
    tx.changed(row.run.id);
    Ok(no)
}

/// Adds a signal's row.
pub(super) fn add(tx: &Tx<'_>, run: i64, signal: &Signal) -> Result<(), Fault> {
    let params = params![
        run,
        signed(signal.no),
        signal.name,
        signal.step,
        signal.key,
        signal.fingerprint.0,
        signal.body.as_str(),
        signal.at.as_millis()
    ];
    tx.execute(include_str!("sql/signal_add.sql"), params)?;
    tx.wrote(signal.bytes());
    Ok(())
}

/// A page of the signals that are not in the history of a claimed run, with numbers up to `count`; and the number
/// up to which that page is complete.
pub(super) fn untaken(
    conn: &Connection,
    run: i64,
    count: u64,
) -> Result<(Vec<Signal>, u64), Fault> {
    let sql = include_str!("sql/claim_signals.sql");
    let found = page(conn, sql, params![run, signed(count)])?;
    match found.rest {
        InboxRest::Unreadable(why) => Err(Fault::data(why)),
        InboxRest::More => {
            let last = found.signals.last().map_or(0, |signal| signal.no);
            Ok((found.signals, last))
        }
        InboxRest::Nothing => Ok((found.signals, count)),
    }
}

/// The signals that a statement finds, as many as a look gives.
fn page(conn: &Connection, sql: &str, params: impl Params) -> Result<Inbox, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut page = SignalPage::default();
    let rest = loop {
        let Some(found) = rows.next()? else { break InboxRest::Nothing };
        if !page.has_room() {
            break InboxRest::More;
        }
        match read(found) {
            Ok(signal) => page.add(signal),
            Err(Fault::Data(why)) => break InboxRest::Unreadable(why.to_string()),
            Err(fault) => return Err(fault),
        }
    };
    Ok(Inbox { signals: page.signals, rest, ..Inbox::default() })
}

/// Lets a run that goes on for another have what that one has not taken, and know what it has. What the
/// engine sent is for that one alone.
pub(super) fn take_over(tx: &Tx<'_>, old: i64, next: i64) -> Result<(), Fault> {
    let most = row::limit(SIGNAL_KEYS_CARRIED_MAX);
    let taken =
        row::all(tx.conn, include_str!("sql/continue_taken.sql"), params![old, most], read)?;
    let carried = taken.into_iter().rev().map(Signal::carried);
    let untaken = row::all(tx.conn, include_str!("sql/continue_untaken.sql"), [old], read)?;
    let (mut count, mut bytes) = (0, 0);
    for signal in carried.chain(untaken) {
        count += 1;
        bytes += signal.bytes() as u64;
        add(tx, next, &Signal { no: count, ..signal })?;
    }
    if count > 0 {
        let params = params![next, signed(count), signed(bytes)];
        tx.execute(include_str!("sql/continue_signals.sql"), params)?;
    }
    Ok(())
}

/// What came in for a run after one of its signals, all of one moment: a look is a transaction.
pub(super) fn inbox(conn: &Connection, run: RunId, after: u64) -> Result<Inbox, Fault> {
    let sql = include_str!("sql/inbox.sql");
    let found = row::first(conn, sql, [run_blob(run)], |row| {
        let inbox = Inbox {
            wakes: u64::try_from(row.get::<_, i64>(1)?).map_err(Fault::data)?,
            cancel_asked: row.get(2)?,
            paused: row.get(3)?,
            ..Inbox::default()
        };
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(4)?, inbox))
    })?;
    let (no, count, mut inbox) = found.ok_or(Error::NotFound)?;
    if count > signed(after) {
        let found = page(conn, include_str!("sql/signals.sql"), params![no, signed(after)])?;
        (inbox.signals, inbox.rest) = (found.signals, found.rest);
    }
    Ok(inbox)
}

/// A run's signals after one of them.
pub(super) fn all(conn: &Connection, run: i64, after: u64) -> Result<Vec<Signal>, Fault> {
    row::all(conn, include_str!("sql/signals.sql"), params![run, signed(after)], read)
}

fn read(row: &rusqlite::Row<'_>) -> Result<Signal, Fault> {
    Ok(Signal {
        no: u64::try_from(row.get::<_, i64>(0)?).map_err(Fault::data)?,
        name: row.get(1)?,
        step: row.get(2)?,
        key: row.get(3)?,
        fingerprint: Fingerprint(row.get(4)?),
        body: Json::stored(row.get::<_, String>(5)?),
        at: Timestamp::from_millis(row.get(6)?),
    })
}
