//! Chaos, the short form, and the proof that its checker finds a broken fence.

use std::time::Duration;

use onward_chaos::fence::Fence;
use onward_chaos::play::{Options, play};
use onward_chaos::{server, storm};
use onward_crash::random::seed_of_now;

/// The seed of a failure, to repeat it.
const SEED: &str = "ONWARD_CHAOS_SEED";

fn options(folder: &tempfile::TempDir) -> Options {
    server::shared_url().unwrap();
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    Options {
        program: env!("CARGO_BIN_EXE_onward-chaos").into(),
        workers: 4,
        runs: 400,
        storm: Duration::from_secs(20),
        calm: Duration::from_secs(60),
        lease: Duration::from_millis(1_000),
        pause_max: Duration::from_millis(500),
        deeds: &storm::ALL,
        seed: given.unwrap_or_else(seed_of_now),
        fence: Fence::Kept,
        folder: folder.path().to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_promise_holds_in_a_storm() {
    let folder = tempfile::tempdir().unwrap();
    let verdict = play(options(&folder)).await.unwrap();
    if !verdict.violations.is_empty() {
        let kept = folder.keep();
        panic!("{SEED}={}; logs in {}\n{verdict}", verdict.seed, kept.display());
    }
    println!("{verdict}");
    for (deed, _) in &storm::ALL {
        assert!(verdict.deeds.contains_key(deed), "the storm left out {deed:?}\n{verdict}");
    }
    assert!(verdict.lost > 0, "the storm was too weak: nobody lost a lease");
    assert!(verdict.swallowed > 0, "the storm was too weak: no answer was lost");
}

/// Plays that may be needed until a stopped worker comes back in the middle of a step.
const PLAYS_MAX: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn checker_finds_a_broken_fence() {
    let is_of_fence = |violation: &String| {
        ["LateRecord", "LateEnd", "LostWorkerWrote"].iter().any(|name| violation.contains(name))
    };
    let mut verdicts = Vec::new();
    while verdicts.len() < PLAYS_MAX {
        let folder = tempfile::tempdir().unwrap();
        let broken = Options {
            fence: Fence::Broken,
            deeds: &storm::STOPS,
            storm: Duration::from_secs(12),
            calm: Duration::from_secs(10),
            ..options(&folder)
        };
        let verdict = play(broken).await.unwrap();
        if verdict.violations.iter().any(is_of_fence) {
            return;
        }
        verdicts.push(verdict.to_string());
    }
    panic!("a store without a fence passed: {verdicts:#?}");
}
