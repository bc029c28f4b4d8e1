//! Group commits of records and ends: many runs in one statement.
//!
//! Owns: the arrays that the statement takes and what its answer means for each caller. Never
//! decides about a write that is out of the ordinary: that is made on its own, by `record` and
//! `settle`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use super::Shared;
use super::fault::{AGAIN_MAX, Fault};
use super::lane::Write;
use super::line::{Line, UnderLease};
use super::near::OnWay;
use super::row::{RecordRow, fence_key, json_text, run_id, run_uuid, signed, small, worker_uuid};
use super::tx::{Changes, Param, transact_in_lane};
use super::{record, settle};
use crate::store::{Append, End, Error, Lease, Outage, RecordRef, Settle, Settled};
use crate::{Record, RunId, Timestamp, failpoint};

pub(super) const SETTLE: &str = "select run, answer from onward.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                      $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, \
                      $26)";

pub(super) const RECORD: &str =
    "select onward.record($13, $14, $15, $16, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

/// Records of a run, and perhaps the end of its attempt.
pub(super) struct RunWrite {
    pub(super) lease: Lease,
    pub(super) follows: Vec<RecordRef>,
    pub(super) records: Vec<Record>,
    pub(super) end: Option<End>,
    pub(super) unasked: Vec<String>,
    pub(super) way: OnWay,
    /// The records go back with the answer, to be freed by the thread that made them: this one would
    /// have to lock the other's memory for each piece.
    pub(super) answer: oneshot::Sender<Reply<Settled, Record>>,
}

impl RunWrite {
    /// Whether a group commit can take it; the rest is rare.
    pub(super) fn is_ordinary(&self) -> bool {
        let end = match &self.end {
            None => true,
            Some(end) => !matches!(end, End::Continued { .. } | End::Stuck { .. }),
        };
        // Several are followed only after transactions that were answered at the same time.
        end && self.follows.len() <= 1
            && self.unasked.is_empty()
            && self.records.iter().all(|r| r.voided_at.is_none())
    }

    fn before_commit(&self) {
        let name = if self.end.is_some() { "settle.before_commit" } else { "record.before_commit" };
        failpoint::hit(name);
    }

    fn after_commit(&self) {
        let name = if self.end.is_some() { "settle.after_commit" } else { "record.after_commit" };
        failpoint::hit(name);
    }

    fn tell(self, answer: Result<Settled, Error>) {
        // Before the caller hears of it: its next write may be alone again.
        drop(self.way);
        // A caller that is gone does not mind.
        let _ = self.answer.send((answer, self.records));
    }
}

impl Write for RunWrite {
    fn runs(&self) -> impl Iterator<Item = RunId> {
        std::iter::once(self.lease.run)
    }

    fn bytes(&self) -> usize {
        let end = match &self.end {
            Some(End::Completed(output)) => output.as_str().len(),
            Some(End::Failed { failure, .. }) => failure.bytes(),
            _ => 0,
        };
        end + self.records.iter().map(Record::bytes).sum::<usize>()
    }

    async fn commit(mut batch: Vec<Self>, line: &mut Line) {
        // As starts do that meet runs, so that the two seldom wait for each other.
        batch.sort_unstable_by_key(|write| write.lease.run);
        let (mut ordinary, mut rare) = (Vec::with_capacity(batch.len()), Vec::new());
        for write in batch {
            let place = if write.is_ordinary() { &mut ordinary } else { &mut rare };
            place.push(write);
        }
        let shared = Arc::clone(&line.shared);
        // Not before all of them are answered may the lane go on: the next write of a run must not
        // overtake this one.
        tokio::join!(one_by_one(&shared, rare), together(ordinary, line));
    }
}

/// Makes these writes in one commit, and those on their own that it did not take.
async fn together(batch: Vec<RunWrite>, line: &mut Line) {
    if !batch.is_empty() {
        let left = offered(batch, line).await;
        one_by_one(&line.shared, left).await;
    }
}

/// Makes these writes in one commit and answers them. Those come back that it did not take, but might
/// take alone.
pub(super) async fn offered(batch: Vec<RunWrite>, line: &mut impl UnderLease) -> Vec<RunWrite> {
    batch.iter().for_each(RunWrite::before_commit);
    match commit(&batch, line).await {
        Ok(said) => answer_all(batch, said, line.shared()),
        Err(Fault::OneByOne | Fault::Data(_) | Fault::Again(_)) => batch,
        // Somebody holds one of them, and its neighbours need not wait for it.
        Err(Fault::Outage(Outage::Locked, _)) if batch.len() > 1 => batch,
        Err(fault) => {
            for write in batch {
                write.tell(Err(fault.clone().into()));
            }
            Vec::new()
        }
    }
}

/// What the statement said that is out of the ordinary.
#[derive(Default)]
struct Said {
    refused: HashSet<RunId>,
    queued: HashSet<RunId>,
    /// Parents that were told of their children's ends.
    told: Changes,
}

impl Said {
    fn read(rows: &[tokio_postgres::Row]) -> Result<Self, tokio_postgres::Error> {
        let mut said = Self::default();
        for row in rows {
            let run = run_id(row.try_get(0)?);
            match row.try_get(1)? {
                "refused" => drop(said.refused.insert(run)),
                "queued" => drop(said.queued.insert(run)),
                "freed" => said.told.work = true,
                answer => {
                    said.told.work |= answer == "woken";
                    said.told.runs.push(run);
                }
            }
        }
        Ok(said)
    }
}

async fn commit(batch: &[RunWrite], line: &mut impl UnderLease) -> Result<Said, Fault> {
    if let [write @ RunWrite { lease, records, end: None, .. }] = batch
        && let [record] = records.as_slice()
    {
        let held = commit_lone(write, record, line).await?;
        let refused = (!held).then_some(lease.run).into_iter().collect();
        return Ok(Said { refused, ..Said::default() });
    }
    let columns = Columns::of(batch)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let now = line.shared().clock.given();
        match line.rows_under_lease(SETTLE, &columns.params(&now)).await {
            Err(Fault::Again(_)) if tries < AGAIN_MAX => {}
            rows => return Said::read(&rows?).map_err(Fault::data),
        }
    }
}

/// Commits one record; says whether its run is held under this lease.
async fn commit_lone(
    write: &RunWrite,
    record: &Record,
    line: &mut impl UnderLease,
) -> Result<bool, Fault> {
    let row = RecordRow::of(write.lease, record)?;
    let (fence, worker) = (fence_key(write.lease.worker), worker_uuid(write.lease.worker));
    let (seq, step) = followed(write).unzip();
    let mut params = row.params().to_vec();
    params.extend::<[Param<'_>; 4]>([
        (&fence, Type::INT8),
        (&worker, Type::UUID),
        (&seq, Type::INT8),
        (&step, Type::TEXT),
    ]);
    let rows = line.rows_under_lease(RECORD, &params).await?;
    rows.first().map_or(Ok(false), |row| row.try_get(0)).map_err(Fault::data)
}

/// The one record that an ordinary write follows, if it follows any.
fn followed(write: &RunWrite) -> Option<(i64, &str)> {
    write.follows.first().map(|followed| (signed(followed.seq), &*followed.step))
}

/// Answers what the commit took, and gives back what it refused.
fn answer_all(batch: Vec<RunWrite>, said: Said, shared: &Shared) -> Vec<RunWrite> {
    let mut changes = said.told;
    let mut refused = Vec::new();
    let mut answers = Vec::with_capacity(batch.len());
    for write in batch {
        if said.refused.contains(&write.lease.run) {
            refused.push(write);
            continue;
        }
        let queued = said.queued.contains(&write.lease.run);
        let settled = if queued { Settled::Queued } else { Settled::AsSaid };
        write.after_commit();
        note(&mut changes, &write, settled);
        answers.push((write, settled));
    }
    // Answered first: whoever waits for a run in this process is told by its driver.
    for (write, settled) in answers {
        write.tell(Ok(settled));
    }
    shared.tell(changes);
    refused
}

fn note(changes: &mut Changes, write: &RunWrite, settled: Settled) {
    let Some(end) = &write.end else { return };
    changes.runs.push(write.lease.run);
    changes.work |= settled == Settled::Queued
        || matches!(end, End::Released | End::Parked { wake_at: Some(_), .. });
}

/// Makes each write in a transaction of its own, and returns when all are answered.
async fn one_by_one(shared: &Arc<Shared>, writes: Vec<RunWrite>) {
    let mut made = JoinSet::new();
    for write in writes {
        let shared = Arc::clone(shared);
        made.spawn(async move {
            write.before_commit();
            let answer = alone(&shared, &write).await;
            if answer.is_ok() {
                write.after_commit();
            }
            write.tell(answer);
        });
    }
    while made.join_next().await.is_some() {}
}

async fn alone(shared: &Arc<Shared>, write: &RunWrite) -> Result<Settled, Error> {
    let lease = write.lease;
    let (follows, records) = (write.follows.clone(), write.records.clone());
    let unasked = write.unasked.clone();
    // What a transaction is given lives as long as it does: it may be made again.
    let answer = match write.end.clone() {
        None => {
            let append = Arc::new(Append { follows, records });
            transact_in_lane(shared, move |tx| {
                let append = Arc::clone(&append);
                Box::pin(async move {
                    record::record(tx, lease, &append).await?;
                    Ok(Settled::AsSaid)
                })
            })
            .await
        }
        Some(end) => {
            let whole = Arc::new(Settle { follows, records, end, unasked });
            transact_in_lane(shared, move |tx| {
                let whole = Arc::clone(&whole);
                Box::pin(async move { settle::settle(tx, lease, &whole).await })
            })
            .await
        }
    };
    answer.map_err(|fault| record::as_conflict(fault, lease).into())
}

/// The columns of a batch, as arrays.
struct Columns<'a> {
    workers: Vec<uuid::Uuid>,
    run: Vec<uuid::Uuid>,
    worker: Vec<uuid::Uuid>,
    attempt: Vec<i32>,
    followed_seq: Vec<Option<i64>>,
    followed_step: Vec<Option<&'a str>>,
    end: Vec<Option<&'static str>>,
    output: Vec<Option<&'a str>>,
    failure: Vec<Option<String>>,
    failed_step: Vec<Option<&'a str>>,
    wake_at: Vec<Option<i64>>,
    waits_for: Vec<Option<String>>,
    wakes_seen: Vec<Option<i64>>,
    records: RecordColumns<'a>,
}

struct RecordColumns<'a> {
    run: Vec<uuid::Uuid>,
    attempt: Vec<i32>,
    seq: Vec<i64>,
    step: Vec<&'a str>,
    slot: Vec<i64>,
    kind: Vec<&'static str>,
    body: Vec<Option<Cow<'a, str>>>,
    tries: Vec<i32>,
    began_at: Vec<i64>,
    at: Vec<i64>,
    next_at: Vec<Option<i64>>,
    foreign: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn of(batch: &'a [RunWrite]) -> Result<Self, Fault> {
        let mut columns = Self::with_room(batch);
        for write in batch {
            columns.add(write)?;
        }
        columns.workers.sort_unstable();
        columns.workers.dedup();
        Ok(columns)
    }

    /// With room for all of them: two dozen arrays that grow together cost more than what is in them.
    fn with_room(batch: &[RunWrite]) -> Self {
        let writes = batch.len();
        Self {
            workers: Vec::with_capacity(writes),
            run: Vec::with_capacity(writes),
            worker: Vec::with_capacity(writes),
            attempt: Vec::with_capacity(writes),
            followed_seq: Vec::with_capacity(writes),
            followed_step: Vec::with_capacity(writes),
            end: Vec::with_capacity(writes),
            output: Vec::with_capacity(writes),
            failure: Vec::with_capacity(writes),
            failed_step: Vec::with_capacity(writes),
            wake_at: Vec::with_capacity(writes),
            waits_for: Vec::with_capacity(writes),
            wakes_seen: Vec::with_capacity(writes),
            records: RecordColumns::with_room(batch.iter().map(|write| write.records.len()).sum()),
        }
    }

    fn add(&mut self, write: &'a RunWrite) -> Result<(), Fault> {
        let lease = write.lease;
        self.workers.push(worker_uuid(lease.worker));
        self.run.push(run_uuid(lease.run));
        self.worker.push(worker_uuid(lease.worker));
        self.attempt.push(small(lease.attempt));
        let (seq, step) = followed(write).unzip();
        self.followed_seq.push(seq);
        self.followed_step.push(step);
        let mut end = EndColumns::default();
        if let Some(said) = &write.end {
            end = EndColumns::of(said)?;
        }
        self.end.push(end.name);
        self.output.push(end.output);
        self.failure.push(end.failure);
        self.failed_step.push(end.step);
        self.wake_at.push(end.wake_at);
        self.waits_for.push(end.waits_for);
        self.wakes_seen.push(end.wakes_seen);
        write.records.iter().try_for_each(|record| self.records.add(lease, record))
    }

    fn params<'p>(&'p self, now: &'p Option<i64>) -> [Param<'p>; 26] {
        let records = &self.records;
        [
            (now, Type::INT8),
            (&self.workers, Type::UUID_ARRAY),
            (&self.run, Type::UUID_ARRAY),
            (&self.worker, Type::UUID_ARRAY),
            (&self.attempt, Type::INT4_ARRAY),
            (&self.followed_seq, Type::INT8_ARRAY),
            (&self.followed_step, Type::TEXT_ARRAY),
            (&self.end, Type::TEXT_ARRAY),
            (&self.output, Type::TEXT_ARRAY),
            (&self.failure, Type::TEXT_ARRAY),
            (&self.failed_step, Type::TEXT_ARRAY),
            (&self.wake_at, Type::INT8_ARRAY),
            (&self.waits_for, Type::TEXT_ARRAY),
            (&self.wakes_seen, Type::INT8_ARRAY),
            (&records.run, Type::UUID_ARRAY),
            (&records.attempt, Type::INT4_ARRAY),
            (&records.seq, Type::INT8_ARRAY),
            (&records.step, Type::TEXT_ARRAY),
            (&records.slot, Type::INT8_ARRAY),
            (&records.kind, Type::TEXT_ARRAY),
            (&records.body, Type::TEXT_ARRAY),
            (&records.tries, Type::INT4_ARRAY),
            (&records.began_at, Type::INT8_ARRAY),
            (&records.at, Type::INT8_ARRAY),
            (&records.next_at, Type::INT8_ARRAY),
            (&records.foreign, Type::BOOL_ARRAY),
        ]
    }
}

impl<'a> RecordColumns<'a> {
    fn with_room(records: usize) -> Self {
        Self {
            run: Vec::with_capacity(records),
            attempt: Vec::with_capacity(records),
            seq: Vec::with_capacity(records),
            step: Vec::with_capacity(records),
            slot: Vec::with_capacity(records),
            kind: Vec::with_capacity(records),
            body: Vec::with_capacity(records),
            tries: Vec::with_capacity(records),
            began_at: Vec::with_capacity(records),
            at: Vec::with_capacity(records),
            next_at: Vec::with_capacity(records),
            foreign: Vec::with_capacity(records),
        }
    }

    fn add(&mut self, lease: Lease, record: &'a Record) -> Result<(), Fault> {
        let row = RecordRow::of(lease, record)?;
        self.run.push(row.run);
        self.attempt.push(row.attempt);
        self.seq.push(row.seq);
        self.step.push(row.step);
        self.slot.push(row.slot);
        self.kind.push(row.kind);
        self.body.push(row.body);
        self.tries.push(row.tries);
        self.began_at.push(row.began_at);
        self.at.push(row.at);
        self.next_at.push(row.next_at);
        self.foreign.push(row.foreign);
        Ok(())
    }
}

/// The columns of an end.
#[derive(Default)]
struct EndColumns<'a> {
    name: Option<&'static str>,
    output: Option<&'a str>,
    failure: Option<String>,
    step: Option<&'a str>,
    wake_at: Option<i64>,
    waits_for: Option<String>,
    wakes_seen: Option<i64>,
}

impl<'a> EndColumns<'a> {
    fn of(end: &'a End) -> Result<Self, Fault> {
        let named = |name| Self { name: Some(name), ..Self::default() };
        Ok(match end {
            End::Completed(output) => Self { output: Some(output.as_str()), ..named("completed") },
            End::Failed { failure, step } => {
                let failure = Some(json_text(failure)?);
                Self { failure, step: step.as_deref(), ..named("failed") }
            }
            End::Cancelled => named("cancelled"),
            End::Parked { wake_at, waits_for, wakes_seen } => Self {
                wake_at: wake_at.map(Timestamp::as_millis),
                waits_for: Some(json_text(waits_for)?),
                wakes_seen: Some(signed(*wakes_seen)),
                ..named("parked")
            },
            End::Released => named("released"),
            End::Continued { .. } | End::Stuck { .. } => return Err(Fault::OneByOne),
        })
    }
}

/// What a lane answers, and what was submitted to it.
pub(super) type Reply<T, W> = (Result<T, Error>, Vec<W>);

/// The answer of a lane, once it is there. What comes with it is freed here.
pub(super) async fn said<T, W>(answered: oneshot::Receiver<Reply<T, W>>) -> Result<T, Error> {
    match answered.await {
        Ok((answer, _)) => answer,
        // The write was dropped with the store, or with the runtime that was to hear of it.
        Err(_) => {
            let why = "the store was closed, or the runtime ended that waited for its answer";
            Err(Error::Unavailable(Outage::NoAnswer, why.into()))
        }
    }
}
