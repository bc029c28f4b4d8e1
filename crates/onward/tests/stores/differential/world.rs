//! The world of a story: what the engine would know, so that scenes become calls that mean
//! something.
//!
//! Owns: ids, tickets, the leases that were given, and the calls that were made.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use onward::conformance::Stage;
use onward::conformance::stage::{LEASE_MS, entry, json, new_run};
use onward::limits::PAGE_ROWS_MAX;
use onward::store::{
    Claim, ClaimMode, Claimant, Claims, End, Error, Filter, Fork, Lease, NewKey, NewRun, NewWorker,
    Note, Pause, Prune, PutQueue, Query, Queues, Seen, Settle, StartAt, Started, StartedHow, Store,
    Sweep, Swept, Which,
};
use onward::{
    Code, Entry, Failure, LogLine, Noted, Record, RunId, RunProgress, RunState, Waits, WorkerId,
};

use super::story::{Beginning, Choice, Ending, Line, Scene};

const BUILDS: [&str; 3] = ["build-1", "build-2", "build-3"];
const WORKFLOWS: [&str; 2] = ["index", "refund"];
const QUEUES: [&str; 2] = ["default", "slow"];
const LANES: [&str; 3] = ["acme", "bolt", "coop"];
const KEYS: [&str; 2] = ["order-1", "order-2"];

/// Past any lease, and past the longest pause of a suspect.
pub(crate) const DEATH_MS: u64 = 61_000;

/// A call of a verb, which can be made again.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Start(Vec<NewRun>),
    Join(NewWorker),
    Renew(WorkerId),
    Leave(WorkerId),
    Claim(Claim),
    /// The same claim again, whose answer has no promised order.
    ClaimAgain(Claim),
    Record(Lease, Vec<Record>),
    Settle(Lease, Settle),
    Cancel(RunId),
    Retry(RunId),
    RetrySeen(Seen),
    Pause(Pause),
    Resume(RunId),
    Fork(Fork),
    Note(Lease, Note),
    Sweep(Sweep),
    Prune(Prune),
    Limit(PutQueue),
    PauseQueue(String),
    ResumeQueue(String),
}

/// What a store said to a call.
pub(crate) struct Reply {
    /// All of it, to compare. Where no order is promised, it is sorted.
    pub(crate) text: String,
    /// The leases that it gave, and the wakes that it told of with them.
    given: Vec<(Lease, u64)>,
    done: bool,
}

impl Reply {
    fn of<T: Debug>(answer: &Result<T, Error>) -> Self {
        Self { text: format!("{answer:?}"), given: Vec::new(), done: answer.is_ok() }
    }

    fn of_start(runs: &[NewRun], answer: &Result<Vec<Result<Started, Error>>, Error>) -> Self {
        let answers = answer.iter().flatten().zip(runs);
        let given = answers.filter_map(|(answer, new)| {
            let claimed = answer.as_ref().is_ok_and(|it| it.how == StartedHow::Claimed);
            let worker = new.claimant.as_ref()?.worker;
            claimed.then_some((Lease { run: new.id, worker, attempt: 1 }, 0))
        });
        Self { given: given.collect(), ..Self::of(answer) }
    }

    fn of_claim(mut answer: Result<Claims, Error>) -> Self {
        let mut given = Vec::new();
        if let Ok(claims) = &mut answer {
            given = claims.runs.iter().map(|it| (it.lease, it.run.wakes)).collect();
            claims.marks.sort_by_key(|mark| mark.lease.run);
        }
        Self { given, ..Self::of(&answer) }
    }

    fn of_sweep(mut answer: Result<Swept, Error>) -> Self {
        if let Ok(swept) = &mut answer {
            swept.lost.sort();
            swept.taken.sort();
            // A hint of some stores.
            swept.next_at = None;
        }
        Self::of(&answer)
    }
}

impl Call {
    /// Makes the call.
    pub(crate) async fn make(&self, store: &dyn Store) -> Reply {
        match self.clone() {
            Call::Start(runs) => Reply::of_start(&runs, &store.start(runs.clone()).await),
            Call::Join(worker) => Reply::of(&store.join(worker).await),
            Call::Renew(worker) => Reply::of(&store.renew(worker).await),
            Call::Leave(worker) => Reply::of(&store.leave(worker).await),
            Call::Claim(claim) => Reply::of_claim(store.claim(claim).await),
            Call::ClaimAgain(claim) => Reply::of_claim(sorted(store.claim(claim).await)),
            Call::Record(lease, records) => Reply::of(&store.record(lease, records.into()).await),
            Call::Settle(lease, settle) => Reply::of(&store.settle(lease, settle).await),
            Call::Cancel(run) => Reply::of(&store.cancel(run).await),
            Call::Retry(run) => Reply::of(&store.retry(run).await),
            Call::RetrySeen(seen) => Reply::of(&store.steer().unwrap().retry_seen(seen).await),
            Call::Pause(pause) => Reply::of(&store.steer().unwrap().pause(pause).await),
            Call::Resume(run) => Reply::of(&store.steer().unwrap().resume(run).await),
            Call::Fork(fork) => Reply::of(&store.steer().unwrap().fork(fork).await),
            Call::Note(lease, note) => {
                Reply::of(&store.notebook().unwrap().note(lease, note).await)
            }
            Call::Sweep(sweep) => Reply::of_sweep(store.sweep(sweep).await),
            Call::Prune(prune) => Reply::of(&store.prune(prune).await),
            Call::Limit(put) => Reply::of(&queues(store).put_queue(put).await),
            Call::PauseQueue(name) => Reply::of(&queues(store).pause_queue(name).await),
            Call::ResumeQueue(name) => Reply::of(&queues(store).resume_queue(name).await),
        }
    }
}

fn queues(store: &dyn Store) -> &dyn Queues {
    store.queues().unwrap()
}

/// What the engine would know.
#[derive(Default)]
pub(crate) struct World {
    ids: u128,
    tickets: i64,
    /// The workers in their places, each with its build.
    workers: Vec<(WorkerId, usize)>,
    runs: Vec<RunId>,
    /// Every lease that was given, with the wakes told then.
    leases: Vec<(Lease, u64)>,
    /// Runs that failed or got stuck.
    troubled: Vec<RunId>,
    /// Runs that somebody paused.
    paused: Vec<RunId>,
    /// The last line of each run's log.
    lines: BTreeMap<RunId, u64>,
    /// The last place used in each run's history.
    places: BTreeMap<RunId, (u64, Line)>,
    calls: Vec<Call>,
}

impl World {
    /// Three workers join, two of one build.
    pub(crate) fn prelude(&mut self) -> Vec<Call> {
        let builds = [0, 0, 1];
        self.workers = builds.map(|build| (WorkerId::from_u128(self.next_id()), build)).into();
        (0..builds.len()).map(|place| Call::Join(self.newcomer(place))).collect()
    }

    /// A fresh worker takes all that is left, so that what only a claim shows is compared.
    pub(crate) fn finale(&mut self) -> Vec<Call> {
        self.workers[0] = (WorkerId::from_u128(self.next_id()), 2);
        let mut calls = vec![Call::Join(self.newcomer(0)), Call::Sweep(self.sweep(0))];
        for mode in [ClaimMode::Ordinary, ClaimMode::Suspect, ClaimMode::Suspect] {
            calls.push(Call::Claim(self.claim(0, 100, mode)));
        }
        calls
    }

    /// Every write of the story that the engine might repeat late.
    pub(crate) fn late_writes(&self) -> Vec<Call> {
        let repeated = |call: &&Call| {
            let written = matches!(call, Call::Record(..) | Call::Settle(..) | Call::Note(..));
            written || matches!(call, Call::Start(_) | Call::Retry(_) | Call::Fork(_))
        };
        self.calls.iter().filter(repeated).cloned().collect()
    }

    /// What a worker claims before it dies.
    pub(crate) fn last_claims(&mut self, place: usize) -> Vec<Call> {
        let modes = [ClaimMode::Ordinary, ClaimMode::Suspect];
        modes.map(|mode| Call::Claim(self.claim(place, 2, mode))).into()
    }

    /// What follows when the worker in this place has let its lease expire.
    pub(crate) fn after_death(&mut self, place: usize) -> Vec<Call> {
        let (next, third) = ((place + 1) % 3, (place + 2) % 3);
        let mut calls = vec![
            Call::Renew(self.workers[next].0),
            Call::Renew(self.workers[third].0),
            Call::Sweep(self.sweep(next)),
        ];
        self.workers[place].0 = WorkerId::from_u128(self.next_id());
        calls.push(Call::Join(self.newcomer(place)));
        calls
    }

    /// The call that plays this scene, if there is anything to play it with.
    pub(crate) async fn call(&mut self, stage: &Stage, scene: &Scene) -> Option<Call> {
        Some(match scene {
            Scene::Start(all) => Call::Start(all.iter().map(|one| self.new_run(one)).collect()),
            Scene::Join { place, build, fresh } => {
                if *fresh {
                    self.workers[*place] = (WorkerId::from_u128(self.next_id()), *build);
                }
                Call::Join(self.newcomer(*place))
            }
            Scene::Renew { place } => Call::Renew(self.workers[*place].0),
            Scene::Leave { place } => Call::Leave(self.workers[*place].0),
            Scene::Claim { place, limit, mode } => Call::Claim(self.claim(*place, *limit, *mode)),
            Scene::Record { lease, lines } => {
                let (lease, _) = self.lease(stage, *lease).await?;
                Call::Record(lease, self.records(stage, lease, lines))
            }
            Scene::Settle { lease, lines, ending } => {
                let (lease, wakes) = self.lease(stage, *lease).await?;
                let records = self.records(stage, lease, lines);
                let end = self.end(stage, lease, wakes, *ending).await;
                Call::Settle(lease, Settle::new(records, end))
            }
            Scene::Cancel { held: true, run } => {
                Call::Cancel(self.lease(stage, Choice::Held(*run)).await?.0.run)
            }
            Scene::Cancel { held: false, run } => Call::Cancel(from_end(&self.runs, *run)?),
            Scene::Retry { troubled: true, run } => Call::Retry(from_end(&self.troubled, *run)?),
            Scene::Retry { troubled: false, run } => Call::Retry(from_end(&self.runs, *run)?),
            Scene::RetrySeen { run, wakes } => {
                Call::RetrySeen(Seen { run: from_end(&self.troubled, *run)?, wakes: *wakes })
            }
            Scene::Pause { held: true, run } => {
                Call::Pause(self.pause(self.lease(stage, Choice::Held(*run)).await?.0.run))
            }
            Scene::Pause { held: false, run } => {
                Call::Pause(self.pause(from_end(&self.runs, *run)?))
            }
            Scene::Resume { run } => Call::Resume(from_end(&self.paused, *run)?),
            Scene::Fork { run, step, input } => Call::Fork(self.fork(*run, *step, *input)?),
            Scene::Note { lease, tag } => {
                let (lease, _) = self.lease(stage, *lease).await?;
                Call::Note(lease, self.note(stage, lease, *tag))
            }
            Scene::Sweep { place, expired } => {
                Call::Sweep(Sweep { expired: *expired, ..self.sweep(*place) })
            }
            Scene::Prune { older_than_ms, states, limit, dry_run } => Call::Prune(Prune {
                older_than_ms: *older_than_ms,
                states: states.clone(),
                limit: *limit,
                dry_run: *dry_run,
            }),
            Scene::Limit { queue, paused: true, .. } => Call::PauseQueue(QUEUES[*queue].to_owned()),
            Scene::Limit { queue, limits, .. } if self.tickets % 3 > 0 => {
                Call::Limit(PutQueue { name: QUEUES[*queue].to_owned(), limits: *limits })
            }
            Scene::Limit { queue, .. } => Call::ResumeQueue(QUEUES[*queue].to_owned()),
            Scene::Again => match self.calls.last()?.clone() {
                Call::Claim(claim) => Call::ClaimAgain(claim),
                call => call,
            },
            Scene::Late(back) => self.late_call(*back)?,
            Scene::Pass(_) | Scene::Death { .. } => return None,
        })
    }

    /// Takes in what the stores said.
    pub(crate) fn learn(&mut self, call: &Call, reply: Reply) {
        for given in reply.given {
            if !self.leases.contains(&given) {
                self.leases.push(given);
            }
        }
        match call {
            Call::Start(runs) => self.runs.extend(runs.iter().map(|run| run.id)),
            Call::Pause(pause) if reply.done => self.paused.push(pause.run),
            Call::Fork(fork) if reply.done => self.runs.push(fork.id),
            Call::Settle(lease, settle) if reply.done => match settle.end {
                End::Continued { run, .. } => self.runs.push(run),
                End::Failed { .. } | End::Stuck { .. } => self.troubled.push(lease.run),
                _ => {}
            },
            _ => {}
        }
        self.calls.push(call.clone());
    }

    fn pause(&self, run: RunId) -> Pause {
        Pause { run, caller: format!("caller {}", self.calls.len()) }
    }

    fn fork(&mut self, run: usize, step: usize, input: Option<i64>) -> Option<Fork> {
        let (run, id) = (from_end(&self.runs, run)?, RunId::from_u128(self.next_id()));
        // What it records comes after all that it may have been given.
        if let Some(place) = self.places.get(&run).copied() {
            self.places.insert(id, place);
        }
        let step = format!("step {step}");
        Some(Fork { id, run, step, input: input.map(json), key: None, rewritten: None })
    }

    fn note(&mut self, stage: &Stage, lease: Lease, tag: Option<usize>) -> Note {
        let no = self.lines.entry(lease.run).or_default();
        *no += 1;
        let (no, at) = (*no, stage.now());
        let (step, text) = (Some("step 1".to_owned()), format!("line {no}"));
        let tags = tag.map(|value| ("tag".to_owned(), value.to_string()));
        Note {
            lines: vec![LogLine { no, at, step, try_number: Some(1), text }],
            progress: Some(RunProgress { done: no, total: 10, at }),
            tags: tags.into_iter().collect(),
            noted: Noted { seq: no, calls: 1 },
        }
    }

    /// Small ids that grow, as the engine's do.
    fn next_id(&mut self) -> u128 {
        self.ids += 1;
        (1 << 96) + self.ids
    }

    fn newcomer(&self, place: usize) -> NewWorker {
        let (id, build) = self.workers[place];
        NewWorker {
            id,
            build: BUILDS[build].to_owned(),
            place: format!("place-{place}"),
            queues: QUEUES.map(str::to_owned).into(),
            workflows: WORKFLOWS.map(str::to_owned).into(),
            lease_ms: LEASE_MS,
            concurrency: 8,
        }
    }

    fn claim(&mut self, place: usize, limit: usize, mode: ClaimMode) -> Claim {
        self.tickets += 1;
        let NewWorker { id, build, queues, workflows, .. } = self.newcomer(place);
        Claim { worker: id, ticket: self.tickets, build, queues, workflows, limit, mode }
    }

    fn sweep(&self, place: usize) -> Sweep {
        Sweep { worker: self.workers[place].0, expired: onward::store::ExpiredLeases::Take }
    }

    fn new_run(&mut self, beginning: &Beginning) -> NewRun {
        let input = json(beginning.input);
        let key = beginning.key.map(|key| NewKey {
            key: KEYS[key].to_owned(),
            fingerprint: input.fingerprint(),
            ttl_ms: beginning.ttl_ms,
            on_conflict: beginning.on_conflict,
            gather: beginning.gather,
        });
        let claimant = beginning.claimant.map(|place| {
            let (worker, build) = self.workers[place];
            Claimant { worker, build: BUILDS[build].to_owned() }
        });
        NewRun {
            id: RunId::from_u128(self.next_id()),
            workflow: WORKFLOWS[beginning.workflow].to_owned(),
            queue: QUEUES[beginning.queue].to_owned(),
            lane: beginning.lane.map(|lane| LANES[lane].to_owned()),
            priority: beginning.priority,
            input,
            key,
            start_at: beginning.delay_ms.map_or(StartAt::Now, StartAt::After),
            timeout_ms: beginning.timeout_ms,
            parent: None,
            claimant,
            ..new_run()
        }
    }

    /// A lease, and the wakes that its holder was told of.
    async fn lease(&self, stage: &Stage, choice: Choice) -> Option<(Lease, u64)> {
        let back = match choice {
            Choice::Ever(back) => return from_end(&self.leases, back),
            Choice::Held(back) => back,
        };
        let filter = Filter { states: vec![RunState::Running], ..Filter::default() };
        let query = Query { filter, before: None, limit: PAGE_ROWS_MAX };
        let running = stage.store.list(query).await.unwrap().runs;
        let held = |(lease, _): &&(Lease, u64)| {
            running.iter().any(|run| run.id == lease.run && run.attempt == lease.attempt)
        };
        from_end(&self.leases.iter().filter(held).copied().collect::<Vec<_>>(), back)
    }

    fn records(&mut self, stage: &Stage, lease: Lease, lines: &[Line]) -> Vec<Record> {
        let mut records = Vec::new();
        for line in lines {
            let (place, line) = match self.places.get(&lease.run) {
                Some((place, before)) if line.same_place => (*place, line.instead_of(*before)),
                before => (before.map_or(1, |(place, _)| place + 1), *line),
            };
            self.places.insert(lease.run, (place, line));
            let failure = Failure::new("down").code("busy").details(&line.step);
            let what = match line.kind {
                0 | 1 => Entry::Done(json(line.step as i64)),
                2 => Entry::Failed(failure),
                3 => Entry::TryFailed { failure, next_at: stage.in_ms(200) },
                _ => Entry::Began,
            };
            let mut record = entry(place, &format!("step {}", line.step), what);
            record.attempt = lease.attempt;
            records.push(record);
        }
        records
    }

    async fn end(&mut self, stage: &Stage, lease: Lease, told: u64, ending: Ending) -> End {
        let known = match stage.store.get(Which::Id(lease.run)).await.unwrap() {
            Some(run) => run.wakes,
            None => told,
        };
        let wakes = |knows: bool| if knows { known } else { told };
        match ending {
            Ending::Completed => End::Completed(json(7)),
            Ending::Failed { step } => {
                let step = step.map(|step| format!("step {step}"));
                End::Failed { failure: Failure::fatal("declined"), step }
            }
            Ending::Cancelled => End::Cancelled,
            Ending::Continued => End::Continued {
                run: RunId::from_u128(self.next_id()),
                input: json(9),
                undelivered: Vec::new(),
            },
            Ending::Parked { after_ms, knows_wakes } => End::Parked {
                wake_at: after_ms.map(|ms| stage.now() + Duration::from_millis(ms)),
                waits_for: Waits::Timer { step: "$sleep".to_owned() },
                wakes_seen: wakes(knows_wakes),
            },
            Ending::Stuck { knows_wakes } => End::Stuck {
                code: Code::HistoryMismatch,
                detail: "unasked".to_owned(),
                wakes_seen: wakes(knows_wakes),
            },
            Ending::Released => End::Released,
        }
    }

    /// An earlier call, to come late. Not a claim: the engine repeats one at once or never.
    fn late_call(&self, back: usize) -> Option<Call> {
        let writes: Vec<_> = self
            .calls
            .iter()
            .filter(|call| !matches!(call, Call::Claim(_) | Call::ClaimAgain(_)))
            .collect();
        from_end(&writes, back).cloned()
    }
}

fn sorted(mut answer: Result<Claims, Error>) -> Result<Claims, Error> {
    if let Ok(claims) = &mut answer {
        claims.runs.sort_by_key(|claimed| claimed.run.id);
    }
    answer
}

/// Counted from the newest, so that what is alive is met often.
fn from_end<T: Clone>(all: &[T], back: usize) -> Option<T> {
    let back = back.checked_rem(all.len())?;
    all.get(all.len() - 1 - back).cloned()
}
