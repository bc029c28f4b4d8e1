//! Claiming: waking what is due, then giving runs to a worker.
//!
//! Owns: a claim's answer, put together from what the database took for it, and that a claim whose
//! answer was lost takes no more. Never takes a run for
//! a lost worker. Where it looks for runs is `floor`'s.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_postgres::types::Type;

use super::fault::Fault;
use super::floor::{Look, View};
use super::row::{self, limit, run_id, run_uuid, small_limit, worker_uuid};
use super::tx::{Changes, Param, Session, transact};
use super::{Shared, settle, signal};
use crate::limits::{CLAIM_BATCH_MAX, CLAIM_BYTES_MAX, SWEEP_BATCH_MAX};
use crate::store::{Asks, Claim, ClaimMode, Claimed, Claims, Error, Lease, Mark};
use crate::{Clock as _, Record, RunId, Waits, WorkerId, failpoint};

const CLAIM: &str = "select again, next_due, more, suspect, changed, woken, marks, \
                     mark_attempts, mark_ends, look_us, seen_queue, seen_workflow, seen_priority, \
                     seen_due_at, seen_id, seen_taken from onward.claim($1, $2, $3, $4, $5, $6, \
                     $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";

/// Gives runs to a worker.
pub(super) async fn claim(shared: Arc<Shared>, claim: Claim) -> Result<Claims, Fault> {
    let mut session = Session::open(&shared).await?;
    if shared.tickets.is_repeat(claim.worker, claim.ticket) {
        let params: [Param<'_>; 2] =
            [(&worker_uuid(claim.worker), Type::UUID), (&claim.ticket, Type::INT8)];
        session.rows(include_str!("sql/claim_close.sql"), &params).await?;
    }
    failpoint::hit("claim.before_commit");
    let view = shared.heads.view(claim.worker, shared.clock.now());
    let Some(row) = session.first(CLAIM, &Params::of(&claim, &shared, &view).each()).await? else {
        return Err(Fault::data("a claim without an answer"));
    };
    failpoint::hit("claim.after_commit");
    let taken = Taken::read(&row, &claim)?;
    shared.tell(taken.changes);
    let mut claims = taken.claims;
    if claim.mode == ClaimMode::Ordinary && claim.limit > 0 {
        shared.heads.learn(claim.worker, &view, taken.look, shared.clock.now());
    }
    // What is before the floors is found by the next look from the head.
    claims.next_due = claims.next_due.into_iter().chain(view.until).min();
    if !taken.order.is_empty() {
        let (mut runs, unread) = held(&mut session, &claim, taken.again).await?;
        // Only a sweep takes from a worker what it has not settled.
        if runs.len() + unread.len() < taken.order.len() {
            return Err(Error::LeaseLost.into());
        }
        let place = |claimed: &Claimed| taken.order.iter().position(|id| *id == claimed.lease.run);
        runs.sort_by_cached_key(place);
        claims.runs = runs;
        drop(session);
        for (run, attempt, fault) in unread {
            set_aside(&shared, Lease { run, worker: claim.worker, attempt }, &fault).await?;
        }
    }
    Ok(claims)
}

/// The tickets that workers asked with last. The same again means that an answer was lost, and the
/// lost try may still be on its way: it is closed first, so that what it takes is found by its repeat
/// or not taken at all. Without, it would take runs that nobody asks for, for as long as the worker
/// lives.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<HashMap<WorkerId, i64>>);

impl Tickets {
    /// Whether a worker asked with this ticket before.
    fn is_repeat(&self, worker: WorkerId, ticket: i64) -> bool {
        self.lock().insert(worker, ticket) == Some(ticket)
    }

    /// Forgets a worker that is gone.
    pub(super) fn forget(&self, worker: WorkerId) {
        self.lock().remove(&worker);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerId, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Params<'a> {
    now: Option<i64>,
    worker: uuid::Uuid,
    claim: &'a Claim,
    queues: Vec<&'a str>,
    workflows: Vec<&'a str>,
    limit: i32,
    suspect: bool,
    wake_limit: i32,
    bytes_max: i64,
    pages_max: i64,
    view: &'a View,
}

impl<'a> Params<'a> {
    fn of(claim: &'a Claim, shared: &Shared, view: &'a View) -> Self {
        let most = match claim.mode {
            ClaimMode::Ordinary => CLAIM_BATCH_MAX,
            ClaimMode::Suspect => 1,
        };
        Self {
            now: shared.clock.given(),
            worker: worker_uuid(claim.worker),
            claim,
            queues: distinct(&claim.queues),
            workflows: distinct(&claim.workflows),
            limit: small_limit(claim.limit.min(most)),
            suspect: claim.mode == ClaimMode::Suspect,
            wake_limit: small_limit(SWEEP_BATCH_MAX),
            bytes_max: limit(CLAIM_BYTES_MAX),
            pages_max: limit(
                view.pages_max(claim.queues.len() * claim.workflows.len(), claim.limit.min(most)),
            ),
            view,
        }
    }

    fn each(&self) -> [Param<'_>; 18] {
        let [due_from, queues, workflows, highs, lows, due_ats, ids] = self.view.params();
        [
            (&self.now, Type::INT8),
            (&self.worker, Type::UUID),
            (&self.claim.ticket, Type::INT8),
            (&self.claim.build, Type::TEXT),
            (&self.queues, Type::TEXT_ARRAY),
            (&self.workflows, Type::TEXT_ARRAY),
            (&self.limit, Type::INT4),
            (&self.suspect, Type::BOOL),
            (&self.wake_limit, Type::INT4),
            (&self.bytes_max, Type::INT8),
            (&self.pages_max, Type::INT8),
            due_from,
            queues,
            workflows,
            highs,
            lows,
            due_ats,
            ids,
        ]
    }
}

fn distinct(names: &[String]) -> Vec<&str> {
    let mut names: Vec<_> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What the database says that it did.
struct Taken {
    /// Whether a run is among them that was claimed before, and so may have a history.
    again: bool,
    /// The runs in the order of claims.
    order: Vec<RunId>,
    claims: Claims,
    changes: Changes,
    look: Option<Look>,
}

impl Taken {
    fn read(row: &tokio_postgres::Row, claim: &Claim) -> Result<Self, Fault> {
        let mut columns = row::Columns { row, next: 0 };
        let again = columns.take()?;
        let next_due = columns.time_or_none()?;
        let (more, suspect) = (columns.take()?, columns.take()?);
        let changed: Vec<uuid::Uuid> = columns.take()?;
        let woken: i32 = columns.take()?;
        let marks: Option<Vec<uuid::Uuid>> = columns.take()?;
        let attempts: Option<Vec<i32>> = columns.take()?;
        let ends: Option<Vec<bool>> = columns.take()?;
        let marks = marks.unwrap_or_default().into_iter().zip(attempts.unwrap_or_default());
        let marks = marks.zip(ends.unwrap_or_default()).map(|((run, attempt), ends)| {
            let attempt = u32::try_from(attempt).unwrap_or_default();
            let asks = if ends { Asks::End } else { Asks::Pause };
            Mark { lease: Lease { run: run_id(run), worker: claim.worker, attempt }, asks }
        });
        let runs: Vec<_> = changed.into_iter().map(run_id).collect();
        let order: Vec<_> =
            runs.iter().skip(usize::try_from(woken).unwrap_or(0)).copied().collect();
        let is_full = order.len() >= claim.limit.min(CLAIM_BATCH_MAX);
        // What is due and was not woken yet is before every floor.
        let look =
            Look::read(&mut columns, is_full)?.filter(|_| woken < small_limit(SWEEP_BATCH_MAX));
        Ok(Self {
            order,
            again,
            look,
            claims: Claims { runs: Vec::new(), marks: marks.collect(), next_due, more, suspect },
            changes: Changes { work: woken > 0, runs, ..Changes::default() },
        })
    }
}

/// A run that cannot be read, in the attempt that holds it.
type Unread = (RunId, u32, Fault);

/// What the worker holds by this claim, whole; and what cannot be read.
///
/// Read after the commit: nobody else can write to these runs while the worker holds them, and
/// when it does not any more, whatever it writes is refused.
async fn held(
    session: &mut Session,
    claim: &Claim,
    again: bool,
) -> Result<(Vec<Claimed>, Vec<Unread>), Fault> {
    let params: [Param<'_>; 2] =
        [(&worker_uuid(claim.worker), Type::UUID), (&claim.ticket, Type::INT8)];
    let rows = session.rows(row::RUN_HELD, &params).await?;
    let (mut runs, mut unread) = (Vec::with_capacity(rows.len()), Vec::new());
    for found in &rows {
        match row::row(found) {
            Ok(read) => runs.push(fresh(claim, read.run)),
            Err(fault) => {
                let id = run_id(found.try_get("id").map_err(Fault::data)?);
                let attempt: i32 = found.try_get("attempt").map_err(Fault::data)?;
                unread.push((id, u32::try_from(attempt).unwrap_or_default(), fault));
            }
        }
    }
    failpoint::hit("claim.load");
    let mut bad = signal::add_untaken(session, &mut runs).await?;
    if again {
        let ids: Vec<_> = (runs.iter())
            .filter(|claimed| claimed.lease.attempt > 1)
            .map(|claimed| run_uuid(claimed.lease.run))
            .collect();
        bad.extend(add_histories(session, &mut runs, &ids).await?);
    }
    runs.retain(|claimed| match bad.get(&claimed.lease.run) {
        Some(fault) => {
            unread.push((claimed.lease.run, claimed.lease.attempt, fault.clone()));
            false
        }
        None => true,
    });
    Ok((runs, unread))
}

fn fresh(claim: &Claim, run: crate::Run) -> Claimed {
    Claimed {
        lease: Lease { run: run.id, worker: claim.worker, attempt: run.attempt },
        run,
        history: Vec::new(),
        last_seq: 0,
        voided_seq: None,
        builds: Default::default(),
        signals: Vec::new(),
        signals_to: 0,
        unreadable: None,
    }
}

/// Adds histories and builds; gives the runs of which a record cannot be read.
async fn add_histories(
    session: &mut Session,
    runs: &mut [Claimed],
    ids: &Vec<uuid::Uuid>,
) -> Result<HashMap<RunId, Fault>, Fault> {
    let params: [Param<'_>; 1] = [(ids, Type::UUID_ARRAY)];
    let mut histories: HashMap<RunId, Vec<Record>> = HashMap::new();
    let mut bad = HashMap::new();
    for found in session.rows(include_str!("sql/claim_history.sql"), &params).await? {
        let run = run_id(found.try_get("run").map_err(Fault::data)?);
        match row::record(&found) {
            Ok(record) => histories.entry(run).or_default().push(record),
            Err(fault) => drop(bad.insert(run, fault)),
        }
    }
    let mut builds: HashMap<RunId, Vec<(u32, String)>> = HashMap::new();
    for found in session.rows(include_str!("sql/claim_builds.sql"), &params).await? {
        let run = run_id(found.try_get(0).map_err(Fault::data)?);
        let attempt: i32 = found.try_get(1).map_err(Fault::data)?;
        let build = found.try_get(2).map_err(Fault::data)?;
        builds.entry(run).or_default().push((u32::try_from(attempt).unwrap_or_default(), build));
    }
    for claimed in runs {
        let mut history = histories.remove(&claimed.lease.run).unwrap_or_default();
        history.sort_by_key(|record| (record.seq, record.attempt));
        claimed.last_seq = history.last().map_or(0, |record| record.seq);
        let voided = history.iter().find(|record| record.voided_at.is_some());
        claimed.voided_seq = voided.map(|record| record.seq);
        history.retain(|record| record.voided_at.is_none());
        claimed.history = history;
        claimed.builds =
            builds.remove(&claimed.lease.run).unwrap_or_default().into_iter().collect();
    }
    Ok(bad)
}

/// Lets a run that cannot be read wait for an operator, or for another build to try.
async fn set_aside(shared: &Arc<Shared>, lease: Lease, fault: &Fault) -> Result<(), Fault> {
    tracing::warn!(run = %lease.run, "a run cannot be read and is set aside");
    let Waits::Stuck { detail, .. } = row::corrupt(fault) else { return Ok(()) };
    let aside = transact(shared, |tx| {
        let detail = detail.clone();
        Box::pin(async move { settle::set_aside(tx, lease, &detail).await })
    });
    aside.await
}
