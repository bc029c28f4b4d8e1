//! Crash tests: real processes, really killed.
//!
//! Each test lets victims work on one SQLite file, ends them in its own way, lets a last one
//! finish, and hands the story to the checker.

#![allow(clippy::unwrap_used, reason = "a test may panic, outside its own function too")]

mod stage;

use std::time::{Duration, Instant};

use onward_crash::check::{Snapshot, check_fenced};
use onward_crash::form::Form;
use onward_crash::random::Random;
use rustix::process::Signal;

use crate::stage::{Cast, Stage, Victim, wait_until};

/// The lease of the victims that are killed one after the other: short, as a crash test wants it.
const LEASE_SHORT: Duration = Duration::from_millis(500);

/// A lease that no test outlives: whoever takes over before it ends saw the file lock.
const LEASE_LONG: Duration = Duration::from_secs(120);

/// Runs in a round: more than a victim executes at once.
const ROUND_RUNS: u32 = 36;

/// At which hit of a failpoint each generation dies, for each database. Early hits come again and
/// again, so that no generation gets far; late ones fall in the middle of a busy victim.
const HITS: [[u32; 4]; 3] = [[1, 2, 3, 5], [4, 1, 6, 2], [3, 1, 2, 7]];

/// Kills of one test of random kills.
const RANDOM_KILLS: usize = 50;

/// The suite kills at least two hundred times: each test asserts its own part of that.
const _: () = assert!(FAILPOINT_TESTS * HITS.len() * HITS[0].len() + 2 * RANDOM_KILLS >= 200);

macro_rules! survives_kills_at {
    ($($test:ident $failpoint:literal,)*) => {
        $(#[test]
        fn $test() {
            survives_kills_at($failpoint);
        })*

        const FAILPOINT_TESTS: usize = [$($failpoint),*].len();
    };
}

survives_kills_at! {
    survives_kills_before_a_start "start.before_commit",
    survives_kills_after_a_start "start.after_commit",
    survives_kills_before_a_claim "claim.before_commit",
    survives_kills_after_a_claim "claim.after_commit",
    survives_kills_before_a_record "record.before_commit",
    survives_kills_after_a_record "record.after_commit",
    survives_kills_inside_a_transaction "transact.before_record",
    survives_kills_before_a_transaction "transact.before_commit",
    survives_kills_after_a_transaction "transact.after_commit",
    survives_kills_before_a_settle "settle.before_commit",
    survives_kills_after_a_settle "settle.after_commit",
    survives_kills_before_a_signal "signal.before_commit",
    survives_kills_after_a_signal "signal.after_commit",
    survives_kills_before_a_key "key.before_commit",
    survives_kills_after_a_key "key.after_commit",
    survives_kills_before_parking "park.before",
    survives_kills_after_parking "park.after",
}

fn survives_kills_at(failpoint: &str) {
    for hits in HITS {
        let mut stage = Stage::new();
        stage.want_round(0, ROUND_RUNS);
        for hit in hits {
            let mut victim = stage.spawn(&one_of_a_round(0, Some(format!("{failpoint}:{hit}"))));
            stage.wait_for_death(&mut victim);
        }
        stage.spawn(&one_of_a_round(0, None)).wait_until_done();
        stage.assert_nothing_broken();
        assert_eq!(stage.kills, hits.len());
    }
}

fn one_of_a_round(round: u32, failpoint: Option<String>) -> Cast {
    Cast { lease: LEASE_SHORT, round: Some((round, ROUND_RUNS)), failpoint }
}

#[test]
fn survives_kills_at_random_effects() {
    survives_random_kills(Form::Plain, at_random_effects);
}

#[test]
fn encoded_payloads_survive_kills_at_random_effects() {
    survives_random_kills(Form::Encoded, at_random_effects);
}

fn at_random_effects(random: &mut Random, stage: &Stage, victim: &mut Victim, _: u64) {
    let enough = stage.effects_bytes() + random.below(25) * EFFECT_BYTES;
    wait_until("the victim has worked", || stage.effects_bytes() >= enough || victim.is_done());
}

#[test]
fn survives_kills_at_random_times() {
    survives_random_kills(Form::Plain, |random, _, victim, kills| {
        // The longer a round takes, the more time its victims get, or a slow machine ends none.
        let most = 120_000 + 20_000 * kills;
        let moment = Instant::now() + Duration::from_micros(random.below(most));
        wait_until("the moment has come", || Instant::now() >= moment || victim.is_done());
    });
}

/// About what one effect takes in the file.
const EFFECT_BYTES: u64 = 220;

/// Kills victims from outside, round after round on one database. `wait` is told how many died in
/// the round.
fn survives_random_kills(form: Form, wait: impl Fn(&mut Random, &Stage, &mut Victim, u64)) {
    let mut random = Random::from_environment();
    let mut stage = Stage::with(form);
    let mut round = 0;
    while stage.kills < RANDOM_KILLS {
        stage.want_round(round, ROUND_RUNS);
        for kills in 0.. {
            let mut victim = stage.spawn(&one_of_a_round(round, None));
            wait(&mut random, &stage, &mut victim, kills);
            if !stage.kill(&mut victim) {
                break;
            }
        }
        round += 1;
    }
    stage.assert_nothing_broken();
}

#[test]
fn survivors_take_over_at_once_from_a_killed_neighbour() {
    let mut stage = Stage::new();
    let server = Cast { lease: LEASE_LONG, round: None, failpoint: None };
    let mut holder = stage.spawn(&server);
    stage.start_at_gate("held", 4);
    wait_for_bodies(&stage, holder.generation, 4);
    let (b, c) = (stage.spawn(&server), stage.spawn(&server));
    let killed_at = Instant::now();
    assert!(stage.kill(&mut holder));
    wait_until("the others execute its runs", || {
        count_bodies(&stage, &[b.generation, c.generation]) == 4
    });
    assert_no_lease_since(killed_at);

    let b_is_busier = count_bodies(&stage, &[b.generation]) >= 2;
    let (mut busier, mut last) = if b_is_busier { (b, c) } else { (c, b) };
    let killed_at = Instant::now();
    assert!(stage.kill(&mut busier));
    wait_for_bodies(&stage, last.generation, 4);
    assert_no_lease_since(killed_at);
    stage.open_gate();
    stage.wait_until_ended();
    assert!(stage.kill(&mut last));
    stage.assert_nothing_broken();
}

fn assert_no_lease_since(killed_at: Instant) {
    let took = killed_at.elapsed();
    assert!(took < LEASE_LONG / 10, "taken over only after {took:?}");
}

fn count_bodies(stage: &Stage, generations: &[u32]) -> usize {
    let effects = stage.effects();
    effects.iter().filter(|effect| generations.contains(&effect.generation)).count()
}

fn wait_for_bodies(stage: &Stage, generation: u32, bodies: usize) {
    wait_until("the bodies have begun", || count_bodies(stage, &[generation]) >= bodies);
}

#[test]
fn stopped_worker_cannot_write_after_its_lease_and_joins_again() {
    let mut stage = Stage::new();
    let server = Cast { lease: LEASE_SHORT, round: None, failpoint: None };
    let mut stopped = stage.spawn(&server);
    stage.start_at_gate("first", 4);
    wait_for_bodies(&stage, stopped.generation, 4);
    stage.stop_between_writes(&stopped);
    let mut other = stage.spawn(&server);
    wait_for_bodies(&stage, other.generation, 4);

    // The gate is still shut: whatever the stopped one holds, the other holds in a later attempt.
    let taken_over = stage.live_snapshot();
    stage.open_gate();
    stopped.signal(Signal::CONT);
    wait_until("the stopped one says that it lost its lease", || lost_lines(&stopped) > 0);
    stage.wait_until_ended();
    let breaches = check_fenced(&taken_over, &stage.live_snapshot());
    assert!(breaches.is_empty(), "{breaches:#?}");
    assert_attempts(&taken_over, 2);

    // Alone, it serves what comes next.
    assert!(stage.kill(&mut other));
    let bodies = count_bodies(&stage, &[stopped.generation]);
    stage.start_at_gate("second", 4);
    stage.wait_until_ended();
    assert!(count_bodies(&stage, &[stopped.generation]) >= bodies + 8);
    assert_eq!(lost_lines(&stopped), 1, "{}", stopped.said());
    assert!(stage.kill(&mut stopped));
    stage.assert_nothing_broken();
}

fn lost_lines(victim: &Victim) -> usize {
    victim.said().lines().filter(|line| line.contains("lost its lease")).count()
}

fn assert_attempts(snapshot: &Snapshot, attempt: u32) {
    let attempts: Vec<u32> = snapshot.runs.iter().map(|(run, _)| run.attempt).collect();
    assert!(attempts.iter().all(|found| *found == attempt), "{attempts:?}");
}
