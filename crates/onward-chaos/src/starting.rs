//! The starters: several clients that start the same runs, each over its own bad connection.
//!
//! Owns: who starts which key when, and what every starter must see: an answer within its time, no
//! refusal, the same run for the same key, and, if it waits, the run's end. A start without an answer is repeated
//! with its key. Whoever starts a mailbox also sends it its letters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward::{Code, Onward, RunHandle, RunId, Workflow};
use onward_crash::flow::{self, Input, Output};
use onward_crash::random::Random;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::crew::TIMES;
use crate::play::NoVerdict;
use crate::proxy::{Cut, Proxy};
use crate::server::{address_of, url_at};

/// Clients that start runs.
const STARTERS: u64 = 3;

/// One key in this many is started by many at once.
const CROWD_EVERY: u64 = 40;

/// How many that is.
const CROWD: u64 = 12;

/// Starts of one key fall within this time of each other.
const CROWD_TIME_MS: u64 = 300;

/// One start in this many has its connection cut, or its answer lost.
const CUT_EVERY: u64 = 20;

/// One start in this many waits for the run's end: after every outage all that wait look at once.
const WAIT_EVERY: u64 = 10;

/// The pause before a starter that cannot know the end asks again.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// What the statement of a start has, and no other's.
const START: &str = "onward.start_runs(";

/// How long a start may take to answer, whatever happens to its connection.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The pause before a start is repeated.
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// What was started, and whose end was not heard of yet.
#[derive(Debug, Default)]
pub struct Counts {
    /// The keys of runs whose end a starter still waits for.
    waiting: Mutex<BTreeSet<String>>,
    /// Starts that got their answer.
    pub made: AtomicU64,
    /// Starts that had to be repeated because the store did not answer.
    pub repeated: AtomicU64,
}

/// Runs to start, by many starters, over some time.
#[derive(Clone, Debug)]
pub struct Starting {
    /// The database.
    pub url: String,
    /// The runs.
    pub wanted: Vec<(Workflow<Input, Output>, Input)>,
    /// The time over which the starts are spread.
    pub time: Duration,
    /// Decides everything random.
    pub seed: u64,
    /// What was started so far.
    pub counts: Arc<Counts>,
}

/// One client, and the proxy that it goes through.
struct Starter {
    proxy: Proxy,
    onward: Onward,
}

/// One start of one key.
struct Cue {
    at: Duration,
    starter: usize,
    wanted: usize,
    /// What happens to the connection meanwhile.
    fault: u64,
    /// Whether the starter waits for the run's end.
    waits: bool,
}

/// The longest time that a storm keeps the store from being opened.
const OPEN_TIME: Duration = Duration::from_secs(30);

/// Opens the store, again while it does not answer: the storm may have begun.
async fn open(url: &str) -> Result<Onward, onward::Error> {
    let begun = Instant::now();
    loop {
        match Onward::open(url).await {
            Err(error) if error.code() == Code::StoreUnavailable && begun.elapsed() < OPEN_TIME => {
                sleep(OPEN_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// The pause before the store is opened again.
const OPEN_PAUSE: Duration = Duration::from_millis(200);

impl Starting {
    /// Starts everything, and waits for every end; gives what went wrong.
    ///
    /// # Errors
    /// When the starters cannot be set up.
    pub async fn start_all(self) -> Result<Vec<String>, NoVerdict> {
        let mut starters = Vec::new();
        for _ in 0..STARTERS {
            let proxy = Proxy::postgres(address_of(&self.url)?)?;
            let url = url_at(&self.url, Some(proxy.address()), None);
            let onward = open(&format!("{url}{TIMES}")).await?;
            starters.push(Arc::new(Starter { proxy, onward }));
        }
        let begun = Instant::now();
        let mut starts = JoinSet::new();
        for cue in self.cues() {
            sleep_until(begun + cue.at).await;
            let (workflow, input) = self.wanted[cue.wanted].clone();
            let starter = Arc::clone(&starters[cue.starter]);
            let counts = Arc::clone(&self.counts);
            starts.spawn(async move {
                starter.suffer(cue.fault);
                let started = timeout(ANSWER_TIME, starter.start(workflow, &input, &counts)).await;
                let started = started.unwrap_or_else(|_| Err("does not answer".to_owned()));
                if cue.waits
                    && let Ok(run) = &started
                {
                    counts.waits(&input.key);
                    until_ended(run).await;
                    counts.heard(&input.key);
                }
                (input, started.map(|run| run.id()))
            });
        }
        Ok(judge(starts.join_all().await))
    }

    /// When each start is made, in order.
    fn cues(&self) -> Vec<Cue> {
        let mut random = Random::seeded(self.seed);
        let time_ms = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        let mut cues = Vec::new();
        for wanted in 0..self.wanted.len() {
            let first_ms = random.below(time_ms.saturating_sub(CROWD_TIME_MS).max(1));
            let crowded = random.below(CROWD_EVERY) == 0;
            let starts = if crowded { CROWD } else { 1 + random.below(3) };
            for _ in 0..starts {
                let at = Duration::from_millis(first_ms + random.below(CROWD_TIME_MS));
                let starter = usize::try_from(random.below(STARTERS)).unwrap_or_default();
                let (fault, waits) = (random.below(CUT_EVERY * 2), random.below(WAIT_EVERY) == 0);
                cues.push(Cue { at, starter, wanted, fault, waits });
            }
        }
        cues.sort_by_key(|cue| cue.at);
        cues
    }
}

impl Starter {
    /// Makes one start in many go wrong, in one of two ways.
    fn suffer(&self, fault: u64) {
        match fault {
            0 => self.proxy.cut(Cut::Reset),
            1 => drop(self.proxy.swallow_commit(0, Cut::Finish, |sql| sql.contains(START))),
            _ => {}
        }
    }

    async fn start(
        &self,
        workflow: Workflow<Input, Output>,
        input: &Input,
        counts: &Counts,
    ) -> Result<RunHandle<Output>, String> {
        loop {
            match flow::start(&self.onward, workflow.clone(), input).await {
                Ok(run) => {
                    counts.made.fetch_add(1, Ordering::SeqCst);
                    if workflow.name() == flow::MAILBOX.name() {
                        send_letters(&run).await?;
                    }
                    return Ok(run);
                }
                Err(error) if error.code() == Code::StoreUnavailable => {
                    counts.repeated.fetch_add(1, Ordering::SeqCst);
                    sleep(REPEAT_PAUSE).await;
                }
                Err(error) => return Err(format!("is refused: {} {error}", error.code())),
            }
        }
    }
}

impl Counts {
    fn waits(&self, key: &str) {
        self.waiting().insert(key.to_owned());
    }

    fn heard(&self, key: &str) {
        self.waiting().remove(key);
    }

    /// The keys of runs whose end a starter still waits for.
    pub fn waiting(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a mailbox its letters, all of them again while the store does not answer.
async fn send_letters(run: &RunHandle<Output>) -> Result<(), String> {
    loop {
        match flow::send_letters(run).await {
            Ok(()) => return Ok(()),
            Err(error) if error.code() == Code::StoreUnavailable => sleep(REPEAT_PAUSE).await,
            Err(error) => return Err(format!("gets no letters: {} {error}", error.code())),
        }
    }
}

/// Waits for a run's end, as long as that takes: whoever waits is told, or that it cannot be known.
async fn until_ended(run: &RunHandle<Output>) {
    while run.ended().await.is_err() {
        sleep(LOOK_PAUSE).await;
    }
}

/// What went wrong: a start without a run, or one key with several. A run that goes on as another
/// hands its key on, so those are left to the checker.
fn judge(started: Vec<(Input, Result<RunId, String>)>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut runs: BTreeMap<String, BTreeSet<RunId>> = BTreeMap::new();
    for (input, run) in started {
        match run {
            Ok(run) => drop(runs.entry(input.key).or_default().insert(run)),
            Err(why) => wrong.push(format!("a start of {:?} {why}", input.key)),
        }
    }
    let split = runs.iter().filter(|(key, runs)| runs.len() > 1 && !key.starts_with("relay"));
    wrong.extend(split.map(|(key, runs)| format!("the key {key:?} gave several runs: {runs:?}")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(key: &str, run: u128) -> (Input, Result<RunId, String>) {
        (Input { key: key.to_owned(), number: 0, laps: 0 }, Ok(RunId::from_u128(run)))
    }

    #[test]
    fn key_with_several_runs_is_found() {
        assert_eq!(judge(vec![started("chain-0-0", 1), started("chain-0-0", 1)]).len(), 0);
        assert_eq!(judge(vec![started("chain-0-0", 1), started("chain-0-0", 2)]).len(), 1);
        assert_eq!(judge(vec![started("relay-0-0", 1), started("relay-0-0", 2)]).len(), 0);
    }

    #[test]
    fn start_without_a_run_is_found() {
        let (input, _) = started("chain-0-0", 1);
        assert_eq!(judge(vec![(input, Err("does not answer".to_owned()))]).len(), 1);
    }
}
