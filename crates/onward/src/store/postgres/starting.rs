//! Group commits of starts: many runs in one statement.
//!
//! Owns: the arrays that the statement takes and what its answer means for each caller. Never
//! decides about a start whose key is in use: that is made on its own, by `start`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::Shared;
use super::batch::Reply;
use super::fault::Fault;
use super::lane::Write;
use super::line::Line;
use super::row::{json_text, run_id, run_uuid, small, small_limit, worker_uuid};
use super::start;
use super::tx::{Changes, Param, transact};
use crate::limits::DUPLICATES_KEPT_MAX;
use crate::store::{Error, NewParent, NewRun, Outage, StartAt, Started, StartedHow};
use crate::{OnConflict, RunId, Timestamp, failpoint};

const START: &str = "select id, claimed, at from onward.start_runs($1, $2, $3, $4, $5, $6, $7, \
                     $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
                     $23, $24, $25, $26)";

const MET: &str = "select id, run, at from onward.start_met($1, $2, $3, $4, $5, $6, $7)";

/// The answers to the runs of one start, in their order.
pub(super) type Answers = Vec<Result<Started, Error>>;

/// Runs to start.
pub(super) struct StartWrite {
    pub(super) runs: Vec<NewRun>,
    /// The runs go back with the answer, as records do.
    pub(super) answer: oneshot::Sender<Reply<Answers, NewRun>>,
}

impl StartWrite {
    fn tell(self, answers: Result<Answers, Error>) {
        // A caller that is gone does not mind.
        let _ = self.answer.send((answers, self.runs));
    }
}

impl Write for StartWrite {
    fn runs(&self) -> impl Iterator<Item = RunId> {
        self.runs.iter().map(|run| run.id)
    }

    fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.input.as_str().len()).sum()
    }

    async fn commit(batch: Vec<Self>, line: &mut Line) {
        failpoint::hit("start.before_commit");
        let (mut started, meets) = match commit(&batch, line).await {
            Ok(started) => (started, true),
            // Each is made on its own.
            Err(Fault::OneByOne | Fault::Data(_) | Fault::Again(_)) => (HashMap::new(), true),
            // Somebody holds a key: who wants it waits for it, outside the lane.
            Err(Fault::Outage(Outage::Locked, _)) => (HashMap::new(), false),
            Err(fault) => {
                for write in batch {
                    write.tell(Err(fault.clone().into()));
                }
                return;
            }
        };
        failpoint::hit("start.after_commit");
        // What cannot be answered together is answered on its own.
        if meets && let Ok(met) = meet(&batch, &started, line).await {
            started.extend(met);
        }
        let mut changes = Changes::default();
        for answered in started.values().filter(|started| started.how != StartedHow::Existing) {
            changes.runs.push(answered.run);
            changes.work |= answered.how == StartedHow::New;
        }
        let mut late = Vec::new();
        for write in batch {
            if write.runs.iter().all(|run| started.contains_key(&run.id)) {
                let answers = write.runs.iter().filter_map(|run| started.get(&run.id).cloned());
                let answers = answers.map(Ok).collect();
                write.tell(Ok(answers));
            } else {
                late.push(write);
            }
        }
        line.shared.tell(changes);
        let started = Arc::new(started);
        for write in late {
            tokio::spawn(finish(Arc::clone(&line.shared), write, Arc::clone(&started)));
        }
    }
}

/// Answers the starts whose key is in use by a run with the same input, and that are content with
/// it: a backfill that is done again consists of them.
async fn meet(
    batch: &[StartWrite],
    started: &HashMap<RunId, Started>,
    line: &mut Line,
) -> Result<HashMap<RunId, Started>, Fault> {
    let (mut id, mut workflow, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut fingerprint, mut caller) = (Vec::new(), Vec::new());
    let left = |run: &&NewRun| !started.contains_key(&run.id);
    let content = |run: &NewRun| {
        run.key
            .as_ref()
            .is_some_and(|key| key.on_conflict == OnConflict::Existing && key.gather.is_none())
    };
    // The runs of one start are answered in their order: with another policy among them, or two with
    // one key, one by one.
    let writes = batch.iter().filter(|write| {
        let mut met = HashSet::new();
        let key = |run: &NewRun| run.key.as_ref().map(|key| key.key.clone());
        let mut left = write.runs.iter().filter(left);
        left.all(|run| content(run) && met.insert((&run.workflow, key(run))))
    });
    for run in writes.flat_map(|write| write.runs.iter().filter(left)) {
        if let Some(key) = &run.key {
            id.push(run_uuid(run.id));
            workflow.push(run.workflow.as_str());
            names.push(key.key.as_str());
            fingerprint.push(key.fingerprint.0.as_slice());
            caller.push(run.caller.as_str());
        }
    }
    if id.is_empty() {
        return Ok(HashMap::new());
    }
    let params: [Param<'_>; 7] = [
        (&line.shared.clock.given(), Type::INT8),
        (&id, Type::UUID_ARRAY),
        (&workflow, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&fingerprint, Type::BYTEA_ARRAY),
        (&caller, Type::TEXT_ARRAY),
        (&small_limit(DUPLICATES_KEPT_MAX), Type::INT4),
    ];
    let rows = line.rows(MET, &params).await?;
    let met = rows.iter().map(|row| {
        let run = run_id(row.try_get(1)?);
        let at = Timestamp::from_millis(row.try_get(2)?);
        Ok((run_id(row.try_get(0)?), Started { run, how: StartedHow::Existing, at }))
    });
    met.collect::<Result<_, tokio_postgres::Error>>().map_err(Fault::data)
}

/// Answers a start of which the group commit did not take every run.
async fn finish(shared: Arc<Shared>, write: StartWrite, started: Arc<HashMap<RunId, Started>>) {
    let mut answers = Vec::with_capacity(write.runs.len());
    for run in &write.runs {
        if let Some(started) = started.get(&run.id) {
            answers.push(Ok(started.clone()));
            continue;
        }
        match alone(&shared, run).await {
            Ok(started) => answers.push(Ok(started)),
            Err(Fault::Refused(error)) => answers.push(Err(error)),
            Err(fault) => {
                return write.tell(Err(fault.into()));
            }
        }
    }
    write.tell(Ok(answers));
}

/// Starts one run in a transaction of its own.
async fn alone(shared: &Arc<Shared>, run: &NewRun) -> Result<Started, Fault> {
    match attempt(shared, run.clone()).await {
        // The claimant was lost meanwhile: the run is queued for whoever comes.
        Err(Fault::Refused(Error::LeaseLost)) if run.claimant.is_some() => {
            attempt(shared, NewRun { claimant: None, ..run.clone() }).await
        }
        answer => answer,
    }
}

async fn attempt(shared: &Arc<Shared>, run: NewRun) -> Result<Started, Fault> {
    let run = Arc::new(run);
    transact(shared, move |tx| {
        let run = Arc::clone(&run);
        Box::pin(async move { start::start(tx, &run).await })
    })
    .await
}

async fn commit(batch: &[StartWrite], line: &mut Line) -> Result<HashMap<RunId, Started>, Fault> {
    let mut columns = Columns::default();
    // What is gathered with others of its key is made on its own, and with it all that it came with:
    // the runs of one start are made in their order.
    let gathered = |run: &NewRun| run.key.as_ref().is_some_and(|key| key.gather.is_some());
    let plain = batch.iter().filter(|write| !write.runs.iter().any(gathered));
    for run in plain.flat_map(|write| &write.runs) {
        columns.add(run)?;
    }
    if columns.id.is_empty() {
        return Ok(HashMap::new());
    }
    columns.workers.sort_unstable();
    columns.workers.dedup();
    let now = line.shared.clock.given();
    let rows = line.rows(START, &columns.params(&now)).await?;
    let started = rows.iter().map(|row| {
        let run = run_id(row.try_get(0)?);
        let how = if row.try_get(1)? { StartedHow::Claimed } else { StartedHow::New };
        Ok((run, Started { run, how, at: Timestamp::from_millis(row.try_get(2)?) }))
    });
    started.collect::<Result<_, tokio_postgres::Error>>().map_err(Fault::data)
}

/// The columns of a batch, as arrays.
#[derive(Default)]
struct Columns<'a> {
    workers: Vec<uuid::Uuid>,
    id: Vec<uuid::Uuid>,
    workflow: Vec<&'a str>,
    queue: Vec<&'a str>,
    lane: Vec<Option<&'a str>>,
    priority: Vec<i32>,
    input: Vec<&'a str>,
    tags: Vec<Option<String>>,
    after: Vec<Option<i64>>,
    at: Vec<Option<i64>>,
    timeout: Vec<Option<i64>>,
    key: Vec<Option<&'a str>>,
    fingerprint: Vec<Option<&'a [u8]>>,
    ttl: Vec<Option<i64>>,
    worker: Vec<Option<uuid::Uuid>>,
    build: Vec<Option<&'a str>>,
    tag_run: Vec<uuid::Uuid>,
    tag_name: Vec<&'a str>,
    tag_value: Vec<&'a str>,
    children: ChildColumns<'a>,
}

/// The columns of those runs that are children.
#[derive(Default)]
struct ChildColumns<'a> {
    id: Vec<uuid::Uuid>,
    parent: Vec<uuid::Uuid>,
    worker: Vec<uuid::Uuid>,
    attempt: Vec<i32>,
    step: Vec<&'a str>,
    detached: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, run: &'a NewRun) -> Result<(), Fault> {
        let id = run_uuid(run.id);
        self.id.push(id);
        self.workflow.push(&run.workflow);
        self.queue.push(&run.queue);
        self.lane.push(run.lane.as_deref());
        self.priority.push(run.priority);
        self.input.push(run.input.as_str());
        let tags = (!run.tags.is_empty()).then(|| json_text(&run.tags));
        self.tags.push(tags.transpose()?);
        let (after, at) = match run.start_at {
            StartAt::Now => (None, None),
            StartAt::After(ms) => (Some(ms.max(0)), None),
            StartAt::At(time) => (None, Some(time.as_millis())),
        };
        self.after.push(after);
        self.at.push(at);
        self.timeout.push(run.timeout_ms);
        let key = run.key.as_ref();
        self.key.push(key.map(|key| key.key.as_str()));
        self.fingerprint.push(key.map(|key| key.fingerprint.0.as_slice()));
        self.ttl.push(key.and_then(|key| key.ttl_ms));
        let claimant = run.claimant.as_ref();
        self.workers.extend(claimant.map(|claimant| worker_uuid(claimant.worker)));
        self.worker.push(claimant.map(|claimant| worker_uuid(claimant.worker)));
        self.build.push(claimant.map(|claimant| claimant.build.as_str()));
        for (name, value) in &run.tags {
            self.tag_run.push(id);
            self.tag_name.push(name);
            self.tag_value.push(value);
        }
        if let Some(NewParent { lease, step, detached }) = &run.parent {
            self.workers.push(worker_uuid(lease.worker));
            self.children.id.push(id);
            self.children.parent.push(run_uuid(lease.run));
            self.children.worker.push(worker_uuid(lease.worker));
            self.children.attempt.push(small(lease.attempt));
            self.children.step.push(step);
            self.children.detached.push(*detached);
        }
        Ok(())
    }

    fn params<'p>(&'p self, now: &'p Option<i64>) -> [Param<'p>; 26] {
        [
            (now, Type::INT8),
            (&self.workers, Type::UUID_ARRAY),
            (&self.id, Type::UUID_ARRAY),
            (&self.workflow, Type::TEXT_ARRAY),
            (&self.queue, Type::TEXT_ARRAY),
            (&self.priority, Type::INT4_ARRAY),
            (&self.input, Type::TEXT_ARRAY),
            (&self.tags, Type::TEXT_ARRAY),
            (&self.after, Type::INT8_ARRAY),
            (&self.at, Type::INT8_ARRAY),
            (&self.timeout, Type::INT8_ARRAY),
            (&self.key, Type::TEXT_ARRAY),
            (&self.fingerprint, Type::BYTEA_ARRAY),
            (&self.ttl, Type::INT8_ARRAY),
            (&self.worker, Type::UUID_ARRAY),
            (&self.build, Type::TEXT_ARRAY),
            (&self.tag_run, Type::UUID_ARRAY),
            (&self.tag_name, Type::TEXT_ARRAY),
            (&self.tag_value, Type::TEXT_ARRAY),
            (&self.children.id, Type::UUID_ARRAY),
            (&self.children.parent, Type::UUID_ARRAY),
            (&self.children.worker, Type::UUID_ARRAY),
            (&self.children.attempt, Type::INT4_ARRAY),
            (&self.children.step, Type::TEXT_ARRAY),
            (&self.children.detached, Type::BOOL_ARRAY),
            (&self.lane, Type::TEXT_ARRAY),
        ]
    }
}
