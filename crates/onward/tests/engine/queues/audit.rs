//! The checker: what the store gave out and what bodies did, against the limits.
//!
//! Owns: what counts as a breach. It is given the whole story, and reads nothing itself.

use std::collections::{BTreeMap, BTreeSet};

/// The limits that must have held.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) concurrency: usize,
    pub(crate) per_worker: usize,
    pub(crate) per_lane: usize,
    pub(crate) rate: usize,
    pub(crate) period_ms: i64,
}

/// A run that changed its state, in the order of the store's own log.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) run: String,
    pub(crate) lane: String,
    /// The worker that holds it from here on; `None`: nobody does.
    pub(crate) holder: Option<String>,
}

/// What the store's own log says, in its order.
#[derive(Clone, Debug)]
pub(crate) enum Logged {
    Change(Change),
    /// The queue was set up otherwise: what counts for every grant from here on.
    SetUp {
        concurrency: usize,
        paused: bool,
    },
}

/// A line of the effect log: a body that begins or ends.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) at_us: u64,
    pub(crate) pid: u32,
    pub(crate) run: String,
    pub(crate) lane: String,
    pub(crate) begins: bool,
}

/// All that happened.
pub(crate) struct Story {
    /// The runs and their lanes, in the order of their starts.
    pub(crate) started: Vec<(String, String)>,
    pub(crate) log: Vec<Logged>,
    /// The time of each grant, by the store's clock.
    pub(crate) grants: Vec<i64>,
    pub(crate) effects: Vec<Effect>,
    /// When each process was killed.
    pub(crate) kills: BTreeMap<u32, u64>,
}

/// Everything that went past a limit.
pub(crate) fn check(story: &Story, limits: &Limits) -> Vec<String> {
    let mut breaches = check_leases(story, limits);
    breaches.extend(check_rate(&story.grants, limits));
    breaches.extend(check_bodies(story, limits));
    breaches.extend(check_order(story));
    let ended = story.effects.iter().filter(|effect| !effect.begins);
    let ended: BTreeSet<_> = ended.map(|effect| effect.run.as_str()).collect();
    let undone = story.started.iter().filter(|(run, _)| !ended.contains(run.as_str()));
    breaches.extend(undone.map(|(run, _)| format!("run {run} never did its work")));
    breaches
}

/// Who held what, at each change.
fn check_leases(story: &Story, limits: &Limits) -> Vec<String> {
    let mut held: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut breaches = Vec::new();
    let (mut concurrency, mut paused) = (limits.concurrency, false);
    for (place, logged) in story.log.iter().enumerate() {
        let change = match logged {
            Logged::Change(change) => change,
            Logged::SetUp { concurrency: new, paused: is_paused } => {
                (concurrency, paused) = (*new, *is_paused);
                continue;
            }
        };
        // What is held when a limit is lowered stays so; only what is given must fit.
        let Some(worker) = &change.holder else {
            held.remove(change.run.as_str());
            continue;
        };
        held.insert(&change.run, (worker, &change.lane));
        if paused {
            breaches.push(format!("a paused queue gives a run at {place}"));
        }
        let lane = held.values().filter(|(_, lane)| *lane == change.lane).count();
        let by_worker = held.values().filter(|(other, _)| *other == worker).count();
        let counts = [
            ("the queue", held.len(), concurrency),
            ("a lane", lane, limits.per_lane),
            ("a worker", by_worker, limits.per_worker),
        ];
        let over = counts.into_iter().filter(|(_, count, limit)| count > limit);
        breaches.extend(over.map(|(what, count, _)| format!("{what} has {count} at {place}")));
    }
    breaches
}

fn check_rate(grants: &[i64], limits: &Limits) -> Vec<String> {
    let mut grants = grants.to_vec();
    grants.sort_unstable();
    let later = grants.iter().skip(limits.rate);
    let close =
        grants.iter().zip(later).filter(|(first, later)| **later - **first < limits.period_ms);
    close
        .map(|(first, later)| format!("{} grants from {first} to {later}", limits.rate + 1))
        .collect()
}

/// Which bodies executed at once. One whose process was killed executed until then.
fn check_bodies(story: &Story, limits: &Limits) -> Vec<String> {
    let mut points: Vec<(u64, bool, &str, &str, u32)> = Vec::new();
    let mut open: BTreeMap<(u32, &str), (&str, u64)> = BTreeMap::new();
    for effect in &story.effects {
        let body = (effect.pid, effect.run.as_str());
        points.push((effect.at_us, effect.begins, &effect.run, &effect.lane, effect.pid));
        if effect.begins {
            open.insert(body, (&effect.lane, effect.at_us));
        } else {
            open.remove(&body);
        }
    }
    for ((pid, run), (lane, begun)) in open {
        let killed = story.kills.get(&pid).copied().unwrap_or(begun).max(begun);
        points.push((killed, false, run, lane, pid));
    }
    // Of one moment, ends come first.
    points.sort_unstable();
    let mut executing: BTreeSet<(u32, &str, &str)> = BTreeSet::new();
    let mut breaches = Vec::new();
    for (at, begins, run, lane, pid) in points {
        if !begins {
            executing.remove(&(pid, run, lane));
            continue;
        }
        executing.insert((pid, run, lane));
        let in_lane = executing.iter().filter(|(_, _, other)| *other == lane).count();
        if executing.len() > limits.concurrency || in_lane > limits.per_lane {
            breaches.push(format!("{} bodies, {in_lane} in {lane}, at {at}", executing.len()));
        }
    }
    breaches
}

/// With one at a time, the runs of a lane begin in the order of their starts.
fn check_order(story: &Story) -> Vec<String> {
    let mut begins: Vec<_> = story.effects.iter().filter(|effect| effect.begins).collect();
    begins.sort_by_key(|effect| effect.at_us);
    let mut seen = BTreeSet::new();
    let mut begun: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for effect in begins.into_iter().filter(|effect| seen.insert(effect.run.as_str())) {
        begun.entry(&effect.lane).or_default().push(&effect.run);
    }
    let mut breaches = Vec::new();
    for (lane, order) in begun {
        let started = story.started.iter().filter(|(_, of)| of == lane).map(|(run, _)| run);
        if !started.eq(order.iter().copied()) {
            breaches.push(format!("the runs of {lane} began out of order"));
        }
    }
    breaches
}

const STRICT: Limits =
    Limits { concurrency: 2, per_worker: 1, per_lane: 1, rate: 2, period_ms: 100 };

fn change(run: &str, holder: Option<&str>) -> Logged {
    let lane = run[..1].to_owned();
    Logged::Change(Change { run: run.to_owned(), lane, holder: holder.map(str::to_owned) })
}

fn story() -> Story {
    let effect = |at_us, run: &str, begins| Effect {
        at_us,
        pid: 1,
        run: run.to_owned(),
        lane: run[..1].to_owned(),
        begins,
    };
    Story {
        started: vec![("a1".to_owned(), "a".to_owned()), ("a2".to_owned(), "a".to_owned())],
        log: vec![change("a1", Some("w1")), change("a1", None), change("a2", Some("w2"))],
        grants: vec![0, 50, 100],
        effects: vec![
            effect(1, "a1", true),
            effect(2, "a1", false),
            effect(3, "a2", true),
            effect(4, "a2", false),
        ],
        kills: BTreeMap::new(),
    }
}

#[test]
fn a_good_story_has_no_breach() {
    assert_eq!(check(&story(), &STRICT), Vec::<String>::new());
}

#[test]
fn every_breach_is_found() {
    let breaches = |spoil: fn(&mut Story)| {
        let mut story = story();
        spoil(&mut story);
        check(&story, &STRICT).join("; ")
    };
    let lane = breaches(|story| story.log.push(change("a3", Some("w3"))));
    assert!(lane.contains("a lane has 2"), "{lane}");
    let worker = breaches(|story| story.log.push(change("b1", Some("w2"))));
    assert!(worker.contains("a worker has 2"), "{worker}");
    let queue = breaches(|story| {
        story.log.extend([change("b1", Some("w3")), change("c1", Some("w4"))]);
    });
    assert!(queue.contains("the queue has 3"), "{queue}");
    let lowered = breaches(|story| {
        let lower = Logged::SetUp { concurrency: 1, paused: false };
        story.log.extend([lower, change("b1", Some("w3"))]);
    });
    assert!(lowered.contains("the queue has 2"), "{lowered}");
    let paused = breaches(|story| {
        story.log.insert(2, Logged::SetUp { concurrency: 2, paused: true });
    });
    assert!(paused.contains("a paused queue gives a run"), "{paused}");
    let rate = breaches(|story| story.grants.push(99));
    assert!(rate.contains("3 grants"), "{rate}");
    let bodies = breaches(|story| story.effects[1].at_us = 9);
    assert!(bodies.contains("2 in a"), "{bodies}");
    let order = breaches(|story| story.started.reverse());
    assert!(order.contains("out of order"), "{order}");
    let undone = breaches(|story| drop(story.effects.pop()));
    assert!(undone.contains("never did its work"), "{undone}");
}
