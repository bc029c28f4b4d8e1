//! Whole runs, in: one statement for each table, whatever the number of runs.
//!
//! Owns: which rows belong to a run, when it is written. Never changes a run that is there, and
//! never decides what one that is there means; `portable` does.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use tokio_postgres::types::{ToSql, Type};

use super::export::wholes;
use super::fault::Fault;
use super::row::{
    body_columns, builds_column, json_text, notes_column, run_id, run_uuid, signed, small,
    stuck_column, worker_uuid,
};
use super::tx::{Param, Tx};
use crate::store::column::EntryColumns;
use crate::store::gather;
use crate::store::portable::{Site, sort_out};
use crate::store::{Import, Imported, Signal, Trace, WholeRun, column, rules};
use crate::{LogLine, Record, Run, RunId, Timestamp};

/// Adds whole runs, or looks only. What is refused is refused before anything is written.
pub(super) async fn import(tx: &mut Tx, import: Arc<Import>) -> Result<Imported, Fault> {
    let ids: Vec<_> = import.runs.iter().map(|whole| run_uuid(whole.run.id)).collect();
    let there = wholes(tx, &ids).await?;
    let holders = holders(tx, &import.runs).await?;
    let (new, there) = sort_out(&import, tx.now, |whole| {
        let key = whole.held_key().map(|(workflow, key)| (workflow.to_owned(), key.to_owned()));
        let holder = key.and_then(|key| holders.get(&key).copied());
        let there = there.get(&whole.run.id).cloned();
        if there.is_none() && holder == Some(whole.run.id) {
            // Another copy added it between the two looks.
            return Err(Fault::Again("the run is being copied".to_owned()));
        }
        Ok::<_, Fault>(Site { there, holder })
    })?;
    let imported = Imported { new: new.len() as u64, there };
    if !import.dry_run && !new.is_empty() {
        add(tx, &new).await?;
        new.iter().for_each(|whole| tx.changed(whole.run.id));
        tx.work();
    }
    Ok(imported)
}

/// The runs that have the keys of these runs now, by workflow and key.
async fn holders(tx: &Tx, runs: &[WholeRun]) -> Result<HashMap<(String, String), RunId>, Fault> {
    let (workflows, keys): (Vec<_>, Vec<_>) = runs.iter().filter_map(WholeRun::held_key).unzip();
    let now = tx.now.as_millis();
    let params: [Param<'_>; 3] =
        [(&workflows, Type::TEXT_ARRAY), (&keys, Type::TEXT_ARRAY), (&now, Type::INT8)];
    let found = tx.rows(include_str!("sql/import_holders.sql"), &params).await?;
    let read = |row: &tokio_postgres::Row| -> Result<_, tokio_postgres::Error> {
        Ok(((row.try_get(0)?, row.try_get(1)?), run_id(row.try_get(2)?)))
    };
    found.iter().map(read).collect::<Result<_, _>>().map_err(Fault::data)
}

/// Adds runs that are not there.
pub(super) async fn add(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    add_runs(tx, new).await?;
    add_payloads(tx, new).await?;
    add_records(tx, new).await?;
    add_attempts(tx, new).await?;
    add_suppressed(tx, new).await?;
    add_signals(tx, new).await?;
    let log = new.iter().flat_map(|whole| whole.log.iter().map(|line| (whole.run.id, line)));
    add_log(tx, &log.collect::<Vec<_>>()).await?;
    let cascading = new.iter().filter(|whole| whole.cascades).map(|whole| run_uuid(whole.run.id));
    let cascading = vec![column(cascading, Type::UUID_ARRAY)];
    insert(tx, include_str!("sql/import_cascades.sql"), cascading).await?;
    add_keys(tx, new).await
}

/// A column of many rows.
struct Column(Box<dyn ToSql + Sync + Send>, Type);

fn column<T: ToSql + Sync + Send + 'static>(
    values: impl IntoIterator<Item = T>,
    kind: Type,
) -> Column {
    Column(Box::new(values.into_iter().collect::<Vec<T>>()), kind)
}

/// A column that takes work to make.
fn made<T: ToSql + Sync + Send + 'static>(
    values: impl Iterator<Item = Result<T, Fault>>,
    kind: Type,
) -> Result<Column, Fault> {
    Ok(column(values.collect::<Result<Vec<T>, Fault>>()?, kind))
}

async fn insert(tx: &Tx, sql: &'static str, columns: Vec<Column>) -> Result<u64, Fault> {
    let params: Vec<Param<'_>> = (columns.iter())
        .map(|Column(values, kind)| (&**values as &(dyn ToSql + Sync), kind.clone()))
        .collect();
    Ok(tx.rows(sql, &params).await?.len() as u64)
}

/// Adds the runs' own rows, nobody's ticket on them.
async fn add_runs(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let runs = || new.iter().map(|whole| &whole.run);
    let time = |of: fn(&Run) -> Option<Timestamp>| {
        column(runs().map(move |run| of(run).map(Timestamp::as_millis)), Type::INT8_ARRAY)
    };
    let id = |of: fn(&Run) -> Option<RunId>| {
        column(runs().map(move |run| of(run).map(run_uuid)), Type::UUID_ARRAY)
    };
    let text = |of: fn(&Run) -> String| column(runs().map(of), Type::TEXT_ARRAY);
    let text_or_none = |of: fn(&Run) -> Option<String>| column(runs().map(of), Type::TEXT_ARRAY);
    let waits_for = |run: &Run| run.waits_for.as_ref().map(json_text).transpose();
    let code_change = |run: &Run| run.code_change.as_ref().map(json_text).transpose();
    let columns = vec![
        id(|run| Some(run.id)),
        text(|run| run.state.to_string()),
        column(runs().map(|run| small(run.attempt)), Type::INT4_ARRAY),
        column(runs().map(|run| run.worker.map(worker_uuid)), Type::UUID_ARRAY),
        column(runs().map(|run| signed(run.wakes)), Type::INT8_ARRAY),
        column(runs().map(|run| small(run.crashes)), Type::INT4_ARRAY),
        column(runs().map(|run| run.priority), Type::INT4_ARRAY),
        time(|run| run.due_at),
        time(|run| run.cancel_at),
        time(|run| run.paused_at),
        time(|run| run.finished_at),
        text(|run| run.workflow.clone()),
        text(|run| run.queue.clone()),
        text_or_none(|run| run.build.clone()),
        id(|run| run.successor),
        made(runs().map(waits_for), Type::TEXT_ARRAY)?,
        text_or_none(|run| stuck_column(run.waits_for.as_ref()).map(str::to_owned)),
        made(runs().map(builds_column), Type::TEXT_ARRAY)?,
        text_or_none(|run| run.key.clone()),
        time(|run| Some(run.created_at)),
        time(|run| run.started_at),
        time(|run| run.deadline_at),
        time(|run| run.retried_at),
        column(new.iter().map(|whole| whole.failed_step.clone()), Type::TEXT_ARRAY),
        column(runs().map(|run| signed(run.duplicates)), Type::INT8_ARRAY),
        id(|run| run.continued_from),
        id(|run| run.continued_as),
        made(runs().map(code_change), Type::TEXT_ARRAY)?,
        column(runs().map(|run| signed(run.signals)), Type::INT8_ARRAY),
        id(|run| run.parent.as_ref().map(|parent| parent.run)),
        text_or_none(|run| run.parent.as_ref().map(|parent| parent.step.clone())),
        column(
            runs().map(|run| run.parent.as_ref().is_some_and(|parent| parent.detached)),
            Type::BOOL_ARRAY,
        ),
        text_or_none(|run| run.paused_by.clone()),
        id(|run| run.forked_from),
        made(runs().map(notes_column), Type::TEXT_ARRAY)?,
        text_or_none(|run| run.lane.clone()),
        column(new.iter().map(|whole| signed(whole.signal_bytes())), Type::INT8_ARRAY),
    ];
    insert(tx, include_str!("sql/import_runs.sql"), columns).await?;
    Ok(())
}

async fn add_signals(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let all = || new.iter().flat_map(|w| w.signals.iter().map(|signal| (w.run.id, signal)));
    let text = |of: fn(&Signal) -> String| {
        column(all().map(move |(_, signal)| of(signal)), Type::TEXT_ARRAY)
    };
    let columns = vec![
        column(all().map(|(_, signal)| signed(signal.no)), Type::INT8_ARRAY),
        text(|signal| signal.name.clone()),
        text(|signal| signal.step.clone()),
        text(|signal| signal.key.clone()),
        column(all().map(|(_, signal)| signal.fingerprint.0.to_vec()), Type::BYTEA_ARRAY),
        text(|signal| signal.body.as_str().to_owned()),
        column(all().map(|(_, signal)| signal.at.as_millis()), Type::INT8_ARRAY),
        column(all().map(|(run, _)| run_uuid(run)), Type::UUID_ARRAY),
    ];
    insert(tx, include_str!("sql/import_signals.sql"), columns).await?;
    Ok(())
}

/// Adds lines of logs, those that are not there.
pub(super) async fn add_log(tx: &Tx, lines: &[(RunId, &LogLine)]) -> Result<(), Fault> {
    let all = || lines.iter().map(|(run, line)| (*run, *line));
    let columns = vec![
        column(all().map(|(_, line)| signed(line.no)), Type::INT8_ARRAY),
        column(all().map(|(_, line)| line.at.as_millis()), Type::INT8_ARRAY),
        column(all().map(|(_, line)| line.step.clone()), Type::TEXT_ARRAY),
        column(all().map(|(_, line)| line.try_number.map(small)), Type::INT4_ARRAY),
        column(all().map(|(_, line)| line.text.clone()), Type::TEXT_ARRAY),
        column(all().map(|(run, _)| run_uuid(run)), Type::UUID_ARRAY),
    ];
    insert(tx, include_str!("sql/import_log.sql"), columns).await?;
    Ok(())
}

/// Adds inputs, outputs and tags.
async fn add_payloads(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let runs = || new.iter().map(|whole| &whole.run);
    let tags = |run: &Run| match run.tags.is_empty() {
        true => Ok(None),
        false => json_text(&run.tags).map(Some),
    };
    let columns = vec![
        column(runs().map(|run| run_uuid(run.id)), Type::UUID_ARRAY),
        column(runs().map(|run| run.input.as_str().to_owned()), Type::TEXT_ARRAY),
        made(runs().map(tags), Type::TEXT_ARRAY)?,
    ];
    insert(tx, include_str!("sql/import_inputs.sql"), columns).await?;
    let ended = || runs().filter(|run| run.output.is_some() || run.failure.is_some());
    let output = |run: &Run| run.output.as_ref().map(|output| output.as_str().to_owned());
    let failure = |run: &Run| run.failure.as_ref().map(json_text).transpose();
    let columns = vec![
        column(ended().map(|run| run_uuid(run.id)), Type::UUID_ARRAY),
        column(ended().map(output), Type::TEXT_ARRAY),
        made(ended().map(failure), Type::TEXT_ARRAY)?,
    ];
    insert(tx, include_str!("sql/import_outputs.sql"), columns).await?;
    let tagged = || runs().flat_map(|run| run.tags.iter().map(move |tag| (run.id, tag)));
    let columns = vec![
        column(tagged().map(|(_, (name, _))| name.clone()), Type::TEXT_ARRAY),
        column(tagged().map(|(_, (_, value))| value.clone()), Type::TEXT_ARRAY),
        column(tagged().map(|(run, _)| run_uuid(run)), Type::UUID_ARRAY),
    ];
    insert(tx, include_str!("sql/import_tags.sql"), columns).await?;
    Ok(())
}

async fn add_records(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let rows = || new.iter().flat_map(|whole| whole.records.iter().map(|it| (whole.run.id, it)));
    let time = |of: fn(&Record) -> Option<Timestamp>| {
        column(rows().map(move |(_, it)| of(it).map(Timestamp::as_millis)), Type::INT8_ARRAY)
    };
    let bodies: Vec<_> = rows().map(|(_, it)| body_columns(&it.entry)).collect::<Result<_, _>>()?;
    let owned = |(body, next_at): EntryColumns<'_>| (body.map(Cow::into_owned), next_at);
    let (bodies, next_ats): (Vec<_>, Vec<_>) = bodies.into_iter().map(owned).unzip();
    let columns = vec![
        column(rows().map(|(run, _)| run_uuid(run)), Type::UUID_ARRAY),
        column(rows().map(|(_, it)| signed(it.seq)), Type::INT8_ARRAY),
        column(rows().map(|(_, it)| it.step.clone()), Type::TEXT_ARRAY),
        column(rows().map(|(_, it)| signed(rules::slot(it))), Type::INT8_ARRAY),
        column(rows().map(|(_, it)| column::of_kind(it)), Type::TEXT_ARRAY),
        column(bodies, Type::TEXT_ARRAY),
        column(rows().map(|(_, it)| small(it.try_number)), Type::INT4_ARRAY),
        column(rows().map(|(_, it)| small(it.attempt)), Type::INT4_ARRAY),
        time(|it| Some(it.began_at)),
        time(|it| Some(it.at)),
        column(next_ats, Type::INT8_ARRAY),
        column(rows().map(|(_, it)| it.foreign), Type::BOOL_ARRAY),
        time(|it| it.voided_at),
    ];
    insert(tx, include_str!("sql/import_records.sql"), columns).await?;
    Ok(())
}

/// Adds the traces but for those that the finished run's own row tells.
async fn add_attempts(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let rows = || {
        new.iter().flat_map(|whole| {
            let last = Trace::of_end(&whole.run);
            let traces = whole.attempts.iter().map(|(attempt, trace)| (*attempt, trace));
            traces
                .filter(move |(attempt, trace)| {
                    last.as_ref().is_none_or(|last| (last.0, &last.1) != (*attempt, *trace))
                })
                .map(|(attempt, trace)| (whole.run.id, attempt, trace))
        })
    };
    let settled = |trace: &Trace| trace.settled.map(column::of_settled);
    let columns = vec![
        column(rows().map(|(run, ..)| run_uuid(run)), Type::UUID_ARRAY),
        column(rows().map(|(_, attempt, _)| small(attempt)), Type::INT4_ARRAY),
        column(rows().map(|(.., trace)| trace.build.clone()), Type::TEXT_ARRAY),
        column(rows().map(|(.., trace)| settled(trace)), Type::TEXT_ARRAY),
    ];
    insert(tx, include_str!("sql/import_attempts.sql"), columns).await?;
    Ok(())
}

async fn add_suppressed(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let rows = || new.iter().flat_map(|it| it.suppressed.iter().map(|kept| (it.run.id, kept)));
    let columns = vec![
        column(rows().map(|(run, _)| run_uuid(run)), Type::UUID_ARRAY),
        column(rows().map(|(_, (start, _))| run_uuid(*start)), Type::UUID_ARRAY),
        column(rows().map(|(_, (_, it))| it.at.as_millis()), Type::INT8_ARRAY),
        column(rows().map(|(_, (_, it))| it.caller.clone()), Type::TEXT_ARRAY),
        column(rows().map(|(_, (_, it))| it.same_input), Type::BOOL_ARRAY),
    ];
    insert(tx, include_str!("sql/import_duplicates.sql"), columns).await?;
    // What is too old to be asked for would only stay there.
    let over = gather::over(tx.now);
    let rows = || {
        let all = new.iter().flat_map(|it| it.suppressed.iter().map(|kept| (&it.run, kept)));
        all.filter(|(_, (_, kept))| kept.at > over)
    };
    let columns = vec![
        column(rows().map(|(_, (start, _))| run_uuid(*start)), Type::UUID_ARRAY),
        column(rows().map(|(run, _)| run_uuid(run.id)), Type::UUID_ARRAY),
        column(rows().map(|(run, _)| run.created_at.as_millis()), Type::INT8_ARRAY),
        column(rows().map(|(_, (_, it))| it.at.as_millis()), Type::INT8_ARRAY),
    ];
    insert(tx, include_str!("sql/import_gathered.sql"), columns).await?;
    Ok(())
}

async fn add_keys(tx: &Tx, new: &[WholeRun]) -> Result<(), Fault> {
    let rows = || {
        new.iter().filter_map(|it| {
            let (workflow, key) = it.held_key()?;
            Some((workflow.to_owned(), key.to_owned(), it.run.id, it.hold.clone()?))
        })
    };
    let expires_at = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
    let columns = vec![
        column(rows().map(|(workflow, ..)| workflow), Type::TEXT_ARRAY),
        column(rows().map(|(_, key, ..)| key), Type::TEXT_ARRAY),
        column(rows().map(|(.., run, _)| run_uuid(run)), Type::UUID_ARRAY),
        column(rows().map(|(.., hold)| hold.fingerprint.0.to_vec()), Type::BYTEA_ARRAY),
        column(rows().map(|(.., hold)| expires_at(hold.expires_at)), Type::INT8_ARRAY),
        Column(Box::new(tx.now.as_millis()), Type::INT8),
    ];
    let given = insert(tx, include_str!("sql/import_keys.sql"), columns).await?;
    if given < rows().count() as u64 {
        return Err(Fault::Again("a key was taken by a start".to_owned()));
    }
    Ok(())
}
