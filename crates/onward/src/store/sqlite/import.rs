//! Whole runs, in.
//!
//! Owns: which rows belong to a run, when it is written. Never changes a run that is there, and
//! never decides what one that is there means; `portable` does.

use rusqlite::params;

use super::export::whole;
use super::fault::Fault;
use super::notebook;
use super::record;
use super::row::{
    self, builds_column, json_text, notes_column, run_blob, signed, waits_columns, worker_blob,
};
use super::signal;
use super::start::{keep_input, keep_parent};
use super::tx::Tx;
use crate::store::gather;
use crate::store::portable::{Site, sort_out};
use crate::store::{Import, Imported, Trace, WholeRun, column};
use crate::{RunId, Timestamp};

/// Adds whole runs, or looks only. What is refused is refused before anything is written.
pub(super) fn import(tx: &mut Tx<'_>, import: &Import) -> Result<Imported, Fault> {
    let (new, there) = sort_out(import, tx.now, |whole| site(tx, whole))?;
    let imported = Imported { new: new.len() as u64, there };
    if !import.dry_run {
        for whole in &new {
            add(tx, whole)?;
        }
    }
    Ok(imported)
}

fn site(tx: &Tx<'_>, new: &WholeRun) -> Result<Site, Fault> {
    let there = row::by_id(tx.conn, new.run.id)?.map(|row| whole(tx.conn, row)).transpose()?;
    let holder = match new.held_key() {
        Some((workflow, key)) => holder(tx, workflow, key)?,
        None => None,
    };
    Ok(Site { there, holder })
}

/// The run that has a key now.
pub(super) fn holder(tx: &Tx<'_>, workflow: &str, key: &str) -> Result<Option<RunId>, Fault> {
    let sql = include_str!("sql/start_key_holder.sql");
    let params = params![workflow, key, tx.now.as_millis()];
    match row::first(tx.conn, sql, params, |row| Ok(row.get::<_, i64>(0)?))? {
        Some(no) => Ok(row::by_no(tx.conn, no)?.map(|row| row.run.id)),
        None => Ok(None),
    }
}

pub(super) fn add(tx: &mut Tx<'_>, whole: &WholeRun) -> Result<(), Fault> {
    let WholeRun { run, records, attempts, hold, suppressed, signals, log, .. } = whole;
    add_run(tx, whole)?;
    let no = tx.conn.last_insert_rowid();
    keep_input(tx, no, run)?;
    keep_parent(tx, no, run)?;
    for signal in signals {
        signal::add(tx, no, signal)?;
    }
    for line in log {
        notebook::add(tx, no, line)?;
    }
    if run.output.is_some() || run.failure.is_some() {
        let failure = run.failure.as_ref().map(json_text).transpose()?;
        let output = run.output.as_ref().map(crate::Json::as_str);
        tx.execute(include_str!("sql/settle_output.sql"), params![no, output, failure])?;
    }
    for record in records {
        record::add_whole(tx, no, record)?;
    }
    // The finished run's own row is the trace of the attempt that ended it.
    let last = Trace::of_end(run);
    for (attempt, trace) in attempts {
        if last.as_ref().is_none_or(|last| (last.0, &last.1) != (*attempt, trace)) {
            let params = params![no, attempt, trace.build, trace.settled.map(column::of_settled)];
            tx.execute(include_str!("sql/settle_keep.sql"), params)?;
        }
    }
    for (start, duplicate) in suppressed {
        let at = duplicate.at.as_millis();
        let params = params![no, run_blob(*start), at, duplicate.caller, duplicate.same_input];
        tx.execute(include_str!("sql/start_duplicate.sql"), params)?;
        if duplicate.at <= gather::over(tx.now) {
            // It is too old to be asked for, and would only stay there.
            continue;
        }
        // So that one whose answer was lost is known here too, if it was gathered.
        let made_at = run.created_at.as_millis();
        let params = params![run_blob(*start), run_blob(run.id), made_at, at];
        tx.execute(include_str!("sql/import_gathered.sql"), params)?;
    }
    if let (Some((workflow, key)), Some(hold)) = (whole.held_key(), hold) {
        let expires_at = hold.expires_at.map(Timestamp::as_millis);
        let params = params![workflow, key, no, hold.fingerprint.0, expires_at];
        tx.execute(include_str!("sql/start_key.sql"), params)?;
    }
    if whole.cascades {
        tx.execute(include_str!("sql/cascade_mark.sql"), [no])?;
    }
    tx.changed(run.id);
    tx.work();
    Ok(())
}

/// Adds the run's own row, nobody's ticket on it.
fn add_run(tx: &Tx<'_>, whole: &WholeRun) -> Result<(), Fault> {
    let run = &whole.run;
    let waits = waits_columns(run.waits_for.as_ref())?;
    let params = params![
        run_blob(run.id),
        run.state.as_str(),
        run.attempt,
        run.worker.map(worker_blob),
        signed(run.wakes),
        run.crashes,
        run.priority,
        run.due_at.map(Timestamp::as_millis),
        run.cancel_at.map(Timestamp::as_millis),
        run.paused_at.map(Timestamp::as_millis),
        run.finished_at.map(Timestamp::as_millis),
        run.workflow,
        run.queue,
        run.build,
        run.successor.map(run_blob),
        waits.waits_for,
        waits.stuck,
        builds_column(&run.stuck_builds, &waits)?,
        run.key,
        run.created_at.as_millis(),
        run.started_at.map(Timestamp::as_millis),
        run.deadline_at.map(Timestamp::as_millis),
        run.retried_at.map(Timestamp::as_millis),
        whole.failed_step,
        signed(run.duplicates),
        run.continued_from.map(run_blob),
        run.continued_as.map(run_blob),
        run.code_change.as_ref().map(json_text).transpose()?,
        signed(run.signals),
        run.paused_by,
        run.forked_from.map(run_blob),
        notes_column(run)?,
        run.lane,
        signed(whole.signal_bytes()),
    ];
    tx.execute(include_str!("sql/import_run.sql"), params)?;
    Ok(())
}
