//! Chaos, from the first start to the verdict.
//!
//! Owns: who starts which runs, how long the storm lasts, when the play is over, and what is
//! checked then. Everything random comes from the seed.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::{Onward, Run, RunState, Workflow};
use onward_crash::check::{self, Snapshot, Story};
use onward_crash::effect;
use onward_crash::flow::{self, Input, Output};
use onward_crash::random::Random;
use tokio::time::{Instant, sleep, timeout};

use crate::audit;
use crate::bank;
use crate::crew::{Casting, Slot};
use crate::fence::{self, Fence};
use crate::server::{self, Server};
use crate::starting::{Counts, Starting};
use crate::storm::{Choice, Deeds, Storm};

/// One run in this many moves money.
const PAYMENT_EVERY: u32 = 5;

/// One run in this many takes longer than a lease.
const VIGIL_EVERY: u32 = 4;

/// One run in this many gets letters or has children.
const COMPANY_EVERY: u32 = 10;

/// Runs without an end that are described: the first few show what they wait for.
const UNFINISHED_LISTED: usize = 10;

/// How long the starters may take to hear of the last end: an idle process looks this often.
const HEARING_TIME: Duration = Duration::from_secs(25);

/// What to play.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program of the workers, which is this crate's own.
    pub program: PathBuf,
    /// Worker processes.
    pub workers: usize,
    /// Runs.
    pub runs: u32,
    /// How long the storm lasts; the starts are spread over it.
    pub storm: Duration,
    /// How long the runs may take to end after it.
    pub calm: Duration,
    /// The workers' lease.
    pub lease: Duration,
    /// The longest pause between two deeds of the storm.
    pub pause_max: Duration,
    /// What goes wrong.
    pub deeds: &'static Choice,
    /// Decides everything random.
    pub seed: u64,
    /// Whether the store keeps its fence.
    pub fence: Fence,
    /// Where effects and logs go.
    pub folder: PathBuf,
}

/// How it went.
#[derive(Debug)]
pub struct Verdict {
    /// The seed that repeats it.
    pub seed: u64,
    /// How often each deed was done.
    pub deeds: Deeds,
    /// Runs by the state that they are in.
    pub states: BTreeMap<RunState, u64>,
    /// Starts that were made, of which many for one key.
    pub starts: u64,
    /// Starts that had to be repeated because the store did not answer.
    pub starts_repeated: u64,
    /// Step bodies that began.
    pub bodies: usize,
    /// Records that were committed.
    pub records: usize,
    /// Claims that were committed.
    pub claims: usize,
    /// Workers that were marked lost.
    pub lost: usize,
    /// Answers to commits that were swallowed.
    pub swallowed: u64,
    /// Promises that did not hold.
    pub violations: Vec<String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        let deeds: Vec<_> = self.deeds.iter().map(|(deed, n)| format!("{deed:?} {n}")).collect();
        writeln!(f, "storm: {}; answers swallowed {}", deeds.join(", "), self.swallowed)?;
        let states: Vec<_> = self.states.iter().map(|(state, n)| format!("{state} {n}")).collect();
        writeln!(f, "runs: {}", states.join(", "))?;
        writeln!(f, "starts: {}, of them repeated {}", self.starts, self.starts_repeated)?;
        writeln!(
            f,
            "claims {}, records {}, bodies {}, workers lost {}",
            self.claims, self.records, self.bodies, self.lost
        )?;
        for violation in &self.violations {
            writeln!(f, "violation: {violation}")?;
        }
        write!(f, "{} violations", self.violations.len())
    }
}

/// Why there is no verdict.
pub type NoVerdict = Box<dyn Error + Send + Sync>;

/// Plays it.
///
/// # Errors
/// When there is no server, or what is needed for the verdict cannot be read.
pub async fn play(options: Options) -> Result<Verdict, NoVerdict> {
    let server = tokio::task::spawn_blocking(Server::start).await??;
    let url = server.url();
    let onward = Onward::open(&url).await?;
    let client = server::connect(&url).await?;
    audit::install(&client).await?;
    bank::open(&client).await?;
    if options.fence == Fence::Broken {
        fence::break_in(&client).await?;
    }
    let casting = Casting {
        program: options.program.clone(),
        url: url.clone(),
        folder: options.folder.clone(),
        lease: options.lease,
    };
    let slots = (0..options.workers).map(|no| Ok(Arc::new(Slot::new(&casting, no)?)));
    let slots = slots.collect::<Result<Vec<_>, std::io::Error>>()?;
    for slot in &slots {
        slot.spawn()?;
    }
    let storm = Storm {
        slots,
        server: Arc::new(Mutex::new(server)),
        lease: options.lease,
        pause_max: options.pause_max,
        choice: options.deeds,
    };
    let mut random = Random::seeded(options.seed);
    let wanted = wanted(options.runs);
    let starting = Starting {
        url: url.clone(),
        wanted: wanted.clone(),
        time: options.storm,
        seed: random.below(u64::MAX),
        counts: Arc::default(),
    };
    let telling = tokio::spawn(tell(onward.clone(), Arc::clone(&starting.counts)));
    let starts = tokio::spawn(starting.clone().start_all());
    let deeds = storm.rage(Random::seeded(random.below(u64::MAX)), options.storm).await;
    eprintln!("the storm is over; waiting for the runs to end");
    wait_until_ended(&onward, count_runs(&wanted), options.calm).await;
    let mut violations = match timeout(HEARING_TIME, starts).await {
        Ok(judged) => judged??,
        Err(_) => {
            let waiting = starting.counts.waiting();
            let unheard = waiting.iter().take(UNFINISHED_LISTED);
            unheard.map(|key| format!("nobody was told of the end of {key:?}")).collect()
        }
    };
    telling.abort();
    let died = storm.slots.iter().filter(|slot| slot.has_died());
    violations.extend(died.map(|_| "a worker process ended by itself".to_owned()));
    let swallowed = storm.slots.iter().map(|slot| slot.proxy.counts().swallowed).sum();
    for slot in &storm.slots {
        slot.kill();
    }

    let mut verdict = Verdict::read(&onward, &url, &casting, wanted).await?;
    verdict.violations.splice(0..0, violations);
    (verdict.seed, verdict.deeds, verdict.swallowed) = (options.seed, deeds, swallowed);
    verdict.starts = starting.counts.made.load(Ordering::SeqCst);
    verdict.starts_repeated = starting.counts.repeated.load(Ordering::SeqCst);
    Ok(verdict)
}

/// The runs: most are short, some move money, some wait for letters or for children, and some are
/// still under way when a stopped worker goes on. Steps that share a key are left out: the checker
/// of their work takes a process for one worker, and here it may join again after it lost a lease.
fn wanted(runs: u32) -> Vec<(Workflow<Input, Output>, Input)> {
    let (payments, vigils) = (runs / PAYMENT_EVERY, runs / VIGIL_EVERY);
    let company = runs / COMPANY_EVERY;
    let mut wanted = flow::round_of(&flow::ANYWHERE, 0, runs - payments - vigils - company);
    wanted.extend(flow::round_of(&[flow::MAILBOX, flow::FAMILY], 0, company));
    wanted.extend(flow::round_of(&[bank::PAYMENT], 0, payments));
    wanted.extend(flow::round_of(&[flow::VIGIL], 0, vigils));
    wanted
}

/// How many runs these become, with those that they go on as and their children.
fn count_runs(wanted: &[(Workflow<Input, Output>, Input)]) -> u64 {
    let more = |workflow: &Workflow<Input, Output>, input: &Input| match workflow.name() {
        name if name == flow::RELAY.name() => u64::from(input.laps),
        name if name == flow::FAMILY.name() => flow::PUPILS,
        _ => 0,
    };
    wanted.iter().map(|(workflow, input)| 1 + more(workflow, input)).sum()
}

impl Verdict {
    /// Reads what is left, and judges it.
    async fn read(
        onward: &Onward,
        url: &str,
        casting: &Casting,
        wanted: Vec<(Workflow<Input, Output>, Input)>,
    ) -> Result<Self, NoVerdict> {
        let client = server::connect(url).await?;
        let changes = audit::read(&client).await?;
        let effects = effect::read(&casting.effects())?;
        let mut violations: Vec<String> =
            audit::check(&changes).iter().map(ToString::to_string).collect();
        violations.extend(
            audit::check_bodies(&changes, &effects, bank::is_transaction)
                .iter()
                .map(ToString::to_string),
        );
        violations.extend(bank::check(&client, &wanted).await?);
        let wanted = wanted.into_iter().map(|(_, input)| input).collect();
        let last = Snapshot::read(onward).await.map_err(|error| error.to_string())?;
        let mut states = BTreeMap::new();
        last.runs.iter().for_each(|(run, _)| *states.entry(run.state).or_default() += 1);
        let open = last.runs.iter().filter(|(run, _)| !run.state.is_final());
        violations.extend(open.take(UNFINISHED_LISTED).map(|(run, history)| {
            let Run { id, state, attempt, worker, waits_for, .. } = run;
            let records = history.len();
            format!(
                "run {id} is {state} in attempt {attempt} with {records} records, held by \
                 {worker:?}, waits for {waits_for:?}"
            )
        }));
        let story = Story { wanted, effects, before: BTreeMap::new(), last };
        violations.extend(check::check(&story).iter().map(ToString::to_string));
        let count =
            |is: fn(&audit::What) -> bool| changes.iter().filter(|change| is(&change.what)).count();
        Ok(Self {
            seed: 0,
            deeds: Deeds::new(),
            states,
            starts: 0,
            starts_repeated: 0,
            bodies: story.effects.len(),
            records: count(|what| matches!(what, audit::What::Recorded { .. })),
            claims: count(|what| matches!(what, audit::What::Claimed { .. })),
            lost: count(|what| matches!(what, audit::What::Lost { .. })),
            swallowed: 0,
            violations,
        })
    }
}

/// How often the progress is told.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Tells the progress, on standard error.
async fn tell(onward: Onward, counts: Arc<Counts>) {
    let begun = Instant::now();
    loop {
        sleep(TELL_EVERY).await;
        let (made, seconds) = (counts.made.load(Ordering::SeqCst), begun.elapsed().as_secs());
        match onward.stats().await {
            Ok(stats) => {
                let runs = stats.runs.iter().map(|(state, count)| format!("{state} {count}"));
                let runs: Vec<_> = runs.collect();
                eprintln!("{seconds} s: {made} starts; runs: {}", runs.join(", "));
            }
            Err(error) => eprintln!("{seconds} s: {made} starts; {error}"),
        }
    }
}

/// Waits until this many runs are there and all have ended, for a limited time: what is missing
/// then, the checker finds.
async fn wait_until_ended(onward: &Onward, runs: u64, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let stats = onward.stats().await;
        let open = |state: &RunState| !state.is_final();
        if let Ok(stats) = stats
            && stats.runs.values().sum::<u64>() >= runs
            && stats.runs.iter().all(|(state, count)| !open(state) || *count == 0)
        {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}
