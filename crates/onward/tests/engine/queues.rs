//! Limits of queues over real processes, which are killed: what was granted, who held what and which
//! bodies executed never went past a limit, and everything was done.

mod audit;
mod crew;
mod engine;
mod site;

use std::time::{Duration, Instant};

use onward::{Onward, QueueLimits, Rate, RunState};

use audit::{Limits, Logged, check};
use crew::{Crew, QUEUE, WORK};
use site::{OnPostgres, OnSqlite, Site};

/// Worker processes at a time.
const PROCESSES: usize = 4;

/// Kills of each test.
const KILLS: usize = 10;

/// Runs of each test: half of them are in one lane.
const RUNS: u64 = 160;

const LANES: u64 = 6;

/// How long a test may take.
const DEADLINE: Duration = Duration::from_secs(90);

/// The queue's concurrency while it is lowered.
const LOWERED: usize = 2;

/// From which kill to which the queue is paused: a process dies in between, and another comes.
const PAUSED: std::ops::Range<usize> = 4..6;

const LIMITS: Limits =
    Limits { concurrency: 5, per_worker: 2, per_lane: 1, rate: 12, period_ms: 300 };

#[test]
fn limits_hold_over_killed_processes_on_sqlite() {
    holds_over_killed_processes(&OnSqlite::new());
}

#[test]
fn limits_hold_over_killed_processes_on_postgres() {
    holds_over_killed_processes(&OnPostgres::new());
}

fn holds_over_killed_processes(site: &impl Site) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let onward = runtime.block_on(Onward::open(&site.url())).unwrap();
    site.watch();
    let started = runtime.block_on(start_all(&onward));
    let mut crew = Crew::new(site.url());
    let begun = Instant::now();
    while crew.kills.len() < KILLS {
        crew.fill(PROCESSES);
        if PAUSED.contains(&crew.kills.len()) {
            // What was held at the pause ends, or is taken from the dead; nothing more begins.
            while runtime.block_on(running(&onward)) > 0 {
                assert!(begun.elapsed() < DEADLINE, "a paused queue does not empty");
                std::thread::sleep(Duration::from_millis(20));
            }
        } else {
            crew.wait_for_effects(12, DEADLINE);
        }
        crew.kill_one();
        runtime.block_on(set_up_otherwise(&onward, crew.kills.len()));
    }
    crew.fill(PROCESSES);
    while !runtime.block_on(all_ended(&onward)) {
        assert!(begun.elapsed() < DEADLINE, "not all runs ended in time");
        std::thread::sleep(Duration::from_millis(20));
    }
    let kills = crew.end();
    let story = audit::Story {
        started,
        log: site.log(),
        grants: site.grants(),
        effects: crew.effects(),
        kills,
    };
    assert!(story.kills.len() >= KILLS && story.effects.len() as u64 >= 2 * RUNS);
    let set_up = story.log.iter().filter(|logged| matches!(logged, Logged::SetUp { .. }));
    assert_eq!(set_up.count(), 4, "lowered, paused, resumed and raised again");
    let breaches = check(&story, &LIMITS);
    assert!(breaches.is_empty(), "{breaches:#?}");
}

/// Changes the queue while processes claim from it, by how many were killed.
async fn set_up_otherwise(onward: &Onward, kills: usize) {
    match kills {
        2 => drop(onward.queue(QUEUE).limits(limits(LOWERED)).save().await.unwrap()),
        7 => drop(onward.queue(QUEUE).limits(limits(LIMITS.concurrency)).save().await.unwrap()),
        kills if kills == PAUSED.start => drop(onward.queue(QUEUE).pause().await.unwrap()),
        kills if kills == PAUSED.end => drop(onward.queue(QUEUE).resume().await.unwrap()),
        _ => {}
    }
}

async fn running(onward: &Onward) -> u64 {
    onward.stats().await.unwrap().runs.get(&RunState::Running).copied().unwrap_or(0)
}

fn limits(concurrency: usize) -> QueueLimits {
    QueueLimits {
        concurrency: Some(concurrency as u32),
        per_worker: Some(LIMITS.per_worker as u32),
        per_lane: Some(LIMITS.per_lane as u32),
        rate: Some(Rate { count: LIMITS.rate as u32, period_ms: LIMITS.period_ms }),
    }
}

/// Sets the queue up and starts all runs, in order; gives them with their lanes.
async fn start_all(onward: &Onward) -> Vec<(String, String)> {
    onward.queue(QUEUE).limits(limits(LIMITS.concurrency)).save().await.unwrap();
    let mut started = Vec::new();
    for number in 0..RUNS {
        let lane = if number % 2 == 0 { 0 } else { 1 + number / 2 % (LANES - 1) };
        let lane = format!("lane-{lane}");
        let run = onward.start(WORK, &lane).queue(QUEUE).lane(lane.as_str()).await.unwrap();
        started.push((run.id().to_string(), lane));
    }
    started
}

async fn all_ended(onward: &Onward) -> bool {
    let stats = onward.stats().await.unwrap();
    stats.runs.get(&RunState::Completed).copied() == Some(RUNS)
}
