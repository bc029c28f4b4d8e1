//! Claiming: waking what is due, then giving runs to a worker.
//!
//! Owns: which runs a claim takes, in what order, and a repeated claim's answer. Never takes a run
//! for a lost worker. Never reads a history before the claim of its run is on disk: if the history kills the
//! process, that counts as a crash of the run.
//!
//! A claim walks one index range per queue and workflow that the worker serves, so neither
//! finished runs nor those of other workers' workflows cost it anything.

use rusqlite::{Connection, params};

use super::fault::Fault;
use super::row::{self, json_text, run_blob, run_id, whole_id, worker_blob};
use super::signal;
use super::tx::Tx;
use super::{limited, queues};
use crate::limits::{CLAIM_BATCH_MAX, CLAIM_BYTES_MAX, SWEEP_BATCH_MAX};
use crate::store::limited::Limited;
use crate::store::rules;
use crate::store::{Asks, Claim, ClaimMode, Claimed, Claims, Error, Lease, Mark};
use crate::{Code, Timestamp, Waits, failpoint};

/// Gives runs to a worker, without their histories and signals: [`load`] adds those.
pub(super) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Claims, Fault> {
    if tx.is_lost(claim.worker)? {
        return Err(Error::LeaseLost.into());
    }
    wake_due(tx)?;
    let limited = queues::served(tx.conn, &claim.queues)?;
    let open = Open::to(tx, claim, &limited)?;
    let mut runs = taken_before(tx, claim)?;
    if runs.is_empty() {
        runs = take(tx, claim, &open, &limited)?;
    }
    let left = limited::left(tx, claim, &open, &limited)?;
    let next_due = row::first(tx.conn, include_str!("sql/next_due.sql"), [], |row| {
        Ok(Timestamp::from_millis(row.get(0)?))
    })?;
    let suspects = tx.exists(include_str!("sql/claim_suspects.sql"), [])?;
    let suspect = (suspects || !open.kept.is_empty()) && open.any(tx, ClaimMode::Suspect)?;
    Ok(Claims {
        runs,
        marks: marks(tx, claim)?,
        next_due: next_due.into_iter().chain(left.look_at).min(),
        more: left.more || open.any(tx, ClaimMode::Ordinary)?,
        suspect: left.suspect || suspect,
    })
}

/// Queues the runs whose time has come; says how many, and whether more are due.
pub(super) fn wake_due(tx: &mut Tx<'_>) -> Result<(usize, bool), Fault> {
    let params = params![tx.now.as_millis(), row::limit(SWEEP_BATCH_MAX)];
    let woken =
        row::all(tx.conn, include_str!("sql/wake.sql"), params, |row| Ok(whole_id(row, 0)))?;
    let count = woken.len();
    for run in woken {
        run.into_iter().for_each(|run| tx.changed(run_id(run)));
        tx.work();
    }
    let more = count == SWEEP_BATCH_MAX
        && row::first(tx.conn, include_str!("sql/next_due.sql"), [], |row| {
            Ok(row.get::<_, i64>(0)? <= tx.now.as_millis())
        })?
        .unwrap_or(false);
    Ok((count, more))
}

/// Every queue and workflow that is served, once.
pub(super) fn served<'a>(queues: &'a [String], workflows: &'a [String]) -> Vec<(&'a str, &'a str)> {
    let mut served: Vec<_> = (queues.iter())
        .flat_map(|queue| workflows.iter().map(|workflow| (queue.as_str(), workflow.as_str())))
        .collect();
    served.sort_unstable();
    served.dedup();
    served
}

/// The runs that this claim took when it was first made.
fn taken_before(tx: &mut Tx<'_>, claim: &Claim) -> Result<Vec<Claimed>, Fault> {
    let params = params![worker_blob(claim.worker), claim.ticket];
    let sql = include_str!("sql/claim_again.sql");
    let numbers: Vec<i64> = row::all(tx.conn, sql, params, |row| Ok(row.get(0)?))?;
    let mut runs = Vec::with_capacity(numbers.len());
    for no in numbers {
        runs.extend(readable(tx, claim, no)?);
    }
    runs.sort_by_key(|claimed| claimed.lease.run);
    Ok(runs)
}

/// A queued run, in the order of claims.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Candidate {
    falling_priority: i64,
    due_at: Option<i64>,
    id: Vec<u8>,
    pub(super) no: i64,
}

fn take(
    tx: &mut Tx<'_>,
    claim: &Claim,
    open: &Open<'_>,
    limited: &[Limited],
) -> Result<Vec<Claimed>, Fault> {
    let limit = match claim.mode {
        ClaimMode::Ordinary => claim.limit.min(CLAIM_BATCH_MAX),
        ClaimMode::Suspect => claim.limit.min(1),
    };
    let chosen = limited::choose(tx, claim, open, limited, limit)?;
    let mut candidates: Vec<(Candidate, i64)> =
        chosen.iter().map(|(place, chosen)| (place.clone(), chosen.no())).collect();
    let others = open.first(tx, claim.mode, limit)?;
    candidates.extend(others.into_iter().map(|candidate| (candidate.clone(), candidate.no)));
    candidates.sort_unstable();
    candidates.truncate(limit);
    let mut runs = Vec::with_capacity(candidates.len());
    let mut bytes = 0;
    for (_, no) in candidates {
        let Some(claimed) = readable(tx, claim, no)? else {
            continue;
        };
        let claimed = give(tx, claim, no, claimed)?;
        bytes += claimed.bytes();
        if is_loaded_later(&claimed) {
            let size = row::first(tx.conn, include_str!("sql/claim_bytes.sql"), [no], |row| {
                usize::try_from(row.get::<_, i64>(0)?).map_err(Fault::data)
            })?;
            bytes += size.unwrap_or(0);
        }
        runs.push(claimed);
        if bytes > CLAIM_BYTES_MAX {
            break;
        }
    }
    limited::note(tx, &runs, &chosen, limited)?;
    Ok(runs)
}

/// The queued runs that are open to a claim.
pub(super) struct Open<'a> {
    /// Without the queues that are limited.
    served: Vec<(&'a str, &'a str)>,
    /// The sets of builds that some of them are kept off, as stored. The claim's own is in none.
    kept: Vec<String>,
}

impl<'a> Open<'a> {
    fn to(tx: &Tx<'_>, claim: &'a Claim, limited: &[Limited]) -> Result<Self, Fault> {
        let mut served = served(&claim.queues, &claim.workflows);
        served.retain(|(queue, _)| limited.iter().all(|limited| limited.queue.name != *queue));
        let mut kept = Vec::new();
        let mut last = String::new();
        let sql = include_str!("sql/claim_kept_builds.sql");
        while let Some(set) = row::next_set(tx.conn, sql, &last)? {
            // What cannot be read is not kept off: claiming it is what sets it aside.
            let builds: Vec<String> = serde_json::from_str(&set).unwrap_or_default();
            if !builds.contains(&claim.build) {
                kept.push(set.clone());
            }
            last = set;
        }
        Ok(Self { served, kept })
    }

    /// The same of one limited queue.
    pub(super) fn of(&self, queue: &'a str, claim: &'a Claim) -> Self {
        let mut served: Vec<_> =
            claim.workflows.iter().map(|name| (queue, name.as_str())).collect();
        served.sort_unstable();
        served.dedup();
        Self { served, kept: self.kept.clone() }
    }

    /// The workflows.
    pub(super) fn workflows(&self) -> impl Iterator<Item = &'a str> {
        self.served.iter().map(|(_, workflow)| *workflow)
    }

    /// The first of them in each place and set; enough to choose the first of all from.
    pub(super) fn first(
        &self,
        tx: &Tx<'_>,
        mode: ClaimMode,
        limit: usize,
    ) -> Result<Vec<Candidate>, Fault> {
        let mut found = self.first_kept(tx, mode, limit)?;
        if limit == 0 {
            return Ok(found);
        }
        let sql = match mode {
            ClaimMode::Ordinary => include_str!("sql/claim_queued.sql"),
            ClaimMode::Suspect => include_str!("sql/claim_suspect.sql"),
        };
        for (queue, workflow) in &self.served {
            let params = params![queue, workflow, row::limit(limit)];
            found.append(&mut row::all(tx.conn, sql, params, Candidate::read)?);
        }
        Ok(found)
    }

    /// As `first`, but only those that are kept off some build.
    pub(super) fn first_kept(
        &self,
        tx: &Tx<'_>,
        mode: ClaimMode,
        limit: usize,
    ) -> Result<Vec<Candidate>, Fault> {
        let mut found = Vec::new();
        let suspect = mode == ClaimMode::Suspect;
        let sql = include_str!("sql/claim_kept.sql");
        for (queue, workflow) in self.served.iter().filter(|_| limit > 0) {
            for set in &self.kept {
                let params = params![queue, workflow, row::limit(limit), set, suspect];
                found.append(&mut row::all(tx.conn, sql, params, Candidate::read)?);
            }
        }
        Ok(found)
    }

    fn any(&self, tx: &Tx<'_>, mode: ClaimMode) -> Result<bool, Fault> {
        Ok(!self.first(tx, mode, 1)?.is_empty())
    }
}

impl Candidate {
    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    pub(super) fn read(row: &rusqlite::Row<'_>) -> Result<Self, Fault> {
        Ok(Self {
            falling_priority: -row.get::<_, i64>(1)?,
            due_at: row.get(2)?,
            id: row.get(3)?,
            no: row.get(0)?,
        })
    }
}

/// Gives the run to the claim's worker, in a new attempt.
fn give(tx: &mut Tx<'_>, claim: &Claim, no: i64, mut claimed: Claimed) -> Result<Claimed, Fault> {
    let params =
        params![no, worker_blob(claim.worker), claim.ticket, claim.build, tx.now.as_millis()];
    tx.execute(include_str!("sql/claim_take.sql"), params)?;
    let run = &mut claimed.run;
    rules::claim(run, claim.worker, &claim.build, tx.now);
    claimed.lease.attempt = run.attempt;
    tx.changed(claimed.run.id);
    Ok(claimed)
}

/// The run, without its history and signals. A run that cannot be read is set aside, so that it holds up no other.
fn readable(tx: &mut Tx<'_>, claim: &Claim, no: i64) -> Result<Option<Claimed>, Fault> {
    match read(tx, claim, no) {
        Ok(read) => Ok(Some(read)),
        Err(fault @ Fault::Data(_)) => {
            set_aside(tx, &claim.build, no, &row::corrupt(&fault))?;
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

fn read(tx: &Tx<'_>, claim: &Claim, no: i64) -> Result<Claimed, Fault> {
    let row = row::by_no(tx.conn, no)?.ok_or_else(|| Fault::data("the run is not there"))?;
    Ok(Claimed {
        lease: Lease { run: row.run.id, worker: claim.worker, attempt: row.run.attempt },
        run: row.run,
        history: Vec::new(),
        last_seq: 0,
        voided_seq: None,
        builds: Default::default(),
        signals: Vec::new(),
        signals_to: 0,
        unreadable: None,
    })
}

/// Whether more is to be read of a claimed run: one that was never claimed before has neither records nor
/// attempts.
pub(super) fn is_loaded_later(claimed: &Claimed) -> bool {
    claimed.run.attempt > 1 || claimed.run.signals > 0
}

/// Adds the histories and signals of claimed runs, after the commit of the claim. While the worker holds these
/// runs, nobody else adds records to them, and signals past the run's count are left out. Runs that cannot be read
/// are set aside.
///
/// A transaction of the writer's, and no look: looks are made on the user's runtime, which bodies may fill, and no
/// claim must wait for those.
pub(super) fn load(tx: &mut Tx<'_>, build: &str, claims: &Claims) -> Result<Claims, Fault> {
    let mut runs = Vec::with_capacity(claims.runs.len());
    for claimed in &claims.runs {
        // Only a sweep takes from a worker what it has not settled.
        let no = held(tx.conn, claimed.lease)?.ok_or(Error::LeaseLost)?;
        let mut claimed = claimed.clone();
        match load_one(tx.conn, no, &mut claimed) {
            Ok(()) => runs.push(claimed),
            Err(fault @ Fault::Data(_)) => set_aside(tx, build, no, &row::corrupt(&fault))?,
            Err(fault) => return Err(fault),
        }
    }
    let Claims { runs: _, marks, next_due, more, suspect } = claims;
    Ok(Claims { runs, marks: marks.clone(), next_due: *next_due, more: *more, suspect: *suspect })
}

fn load_one(conn: &Connection, no: i64, claimed: &mut Claimed) -> Result<(), Fault> {
    if !is_loaded_later(claimed) {
        return Ok(());
    }
    if claimed.run.signals > 0 {
        (claimed.signals, claimed.signals_to) = signal::untaken(conn, no, claimed.run.signals)?;
    }
    failpoint::hit("claim.load");
    claimed.history = row::all(conn, include_str!("sql/claim_history.sql"), [no], row::record)?;
    claimed.history.sort_by_key(|record| (record.seq, record.attempt));
    claimed.last_seq = claimed.history.last().map_or(0, |record| record.seq);
    let voided = claimed.history.iter().find(|record| record.voided_at.is_some());
    claimed.voided_seq = voided.map(|record| record.seq);
    claimed.history.retain(|record| record.voided_at.is_none());
    let sql = include_str!("sql/claim_builds.sql");
    let builds = row::all(conn, sql, [no], |row| Ok((row.get(0)?, row.get(1)?)))?;
    claimed.builds = builds.into_iter().collect();
    Ok(())
}

/// The number of a run, if the worker still holds it.
fn held(conn: &Connection, lease: Lease) -> Result<Option<i64>, Fault> {
    let params = params![run_blob(lease.run), worker_blob(lease.worker), lease.attempt];
    row::first(conn, include_str!("sql/claim_held.sql"), params, |row| Ok(row.get(0)?))
}

/// Lets a run that cannot be read wait for an operator, or for another build to try.
fn set_aside(tx: &mut Tx<'_>, build: &str, no: i64, why: &Waits) -> Result<(), Fault> {
    let sql = include_str!("sql/claim_corrupt_row.sql");
    let (builds, id) = row::first(tx.conn, sql, [no], |row| {
        let text = row.get::<_, Option<String>>(0).ok().flatten();
        Ok((text, row.get::<_, [u8; 16]>(1).ok()))
    })?
    .unwrap_or_default();
    let builds = builds.and_then(|text| serde_json::from_str(&text).ok());
    let mut builds: Vec<String> = builds.unwrap_or_default();
    rules::add_stuck_build(&mut builds, Some(build));
    let params = params![no, json_text(why)?, Code::CorruptRecord.as_str(), json_text(&builds)?];
    tx.execute(include_str!("sql/claim_corrupt.sql"), params)?;
    tracing::warn!(run = ?id.map(run_id), "a run cannot be read and is set aside");
    id.map(run_id).into_iter().for_each(|run| tx.changed(run));
    // It may have taken the place of another in a limited queue.
    tx.work();
    Ok(())
}

fn marks(tx: &Tx<'_>, claim: &Claim) -> Result<Vec<Mark>, Fault> {
    let worker = claim.worker;
    let sql = include_str!("sql/claim_marks.sql");
    let marked = row::all(tx.conn, sql, [worker_blob(worker)], |row| {
        let attempt = row.get(1)?;
        let asks = if row.get(2)? { Asks::End } else { Asks::Pause };
        let lease = |run| Lease { run: run_id(run), worker, attempt };
        Ok(whole_id(row, 0).map(|run| Mark { lease: lease(run), asks }))
    })?;
    let mut marks: Vec<Mark> = marked.into_iter().flatten().collect();
    marks.sort_by_key(|mark| mark.lease.run);
    Ok(marks)
}
