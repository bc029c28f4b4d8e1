//! A story: what happens to two stores, in words that do not name ids.
//!
//! Owns: which scenes there are and how often they come. Numbers in a scene are chosen from
//! whatever is there when it is played, so that a shortened story still makes sense.

use onward::store::{ClaimMode, ExpiredLeases, Gather};
use onward::{OnConflict, QueueLimits, Rate, RunState};
use proptest::collection::vec;
use proptest::prelude::*;

/// Scenes of one story.
const SCENES: std::ops::Range<usize> = 1..80;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Scene {
    Start(Vec<Beginning>),
    /// A worker starts in this place, or joins again under the name it has.
    Join {
        place: usize,
        build: usize,
        fresh: bool,
    },
    Renew {
        place: usize,
    },
    Leave {
        place: usize,
    },
    Claim {
        place: usize,
        limit: usize,
        mode: ClaimMode,
    },
    Record {
        lease: Choice,
        lines: Vec<Line>,
    },
    Settle {
        lease: Choice,
        lines: Vec<Line>,
        ending: Ending,
    },
    /// A cancel of a run that is held, or of any.
    Cancel {
        held: bool,
        run: usize,
    },
    /// A retry of a run that failed or got stuck, or of any.
    Retry {
        troubled: bool,
        run: usize,
    },
    /// A retry of such a run by somebody who saw it when it had been woken so often.
    RetrySeen {
        run: usize,
        wakes: u64,
    },
    /// A pause of a run that is held, or of any.
    Pause {
        held: bool,
        run: usize,
    },
    /// A resume of a run that was paused.
    Resume {
        run: usize,
    },
    Fork {
        run: usize,
        step: usize,
        input: Option<i64>,
    },
    Note {
        lease: Choice,
        tag: Option<usize>,
    },
    /// A worker claims and dies, several times over: its lease expires, another sweeps, and a
    /// new one comes in its place.
    Death {
        place: usize,
        times: usize,
    },
    Sweep {
        place: usize,
        expired: ExpiredLeases,
    },
    Prune {
        older_than_ms: i64,
        states: Vec<RunState>,
        limit: usize,
        dry_run: bool,
    },
    /// A queue gets other limits, or is paused.
    Limit {
        queue: usize,
        limits: QueueLimits,
        paused: bool,
    },
    Pass(u64),
    /// The latest call again, as after a lost answer.
    Again,
    /// An earlier call again, late.
    Late(usize),
}

/// A run to start.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    pub(crate) key: Option<usize>,
    pub(crate) input: i64,
    pub(crate) on_conflict: OnConflict,
    pub(crate) ttl_ms: Option<i64>,
    pub(crate) workflow: usize,
    pub(crate) queue: usize,
    pub(crate) lane: Option<usize>,
    pub(crate) gather: Option<Gather>,
    pub(crate) priority: i32,
    pub(crate) delay_ms: Option<i64>,
    pub(crate) timeout_ms: Option<i64>,
    pub(crate) claimant: Option<usize>,
}

/// A lease: one of those that hold, or any that was ever given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    Held(usize),
    Ever(usize),
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) step: usize,
    pub(crate) kind: usize,
    /// It is of the step before, in the same place, and ends it if that one did.
    pub(crate) same_place: bool,
}

impl Line {
    /// Another line in the place of one: of its step, and final if it was.
    pub(crate) fn instead_of(self, before: Line) -> Line {
        let kind = if before.kind < 3 { self.kind % 3 } else { 3 + self.kind % 2 };
        Line { step: before.step, kind, ..self }
    }
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Completed,
    Failed { step: Option<usize> },
    Cancelled,
    Continued,
    Parked { after_ms: Option<u64>, knows_wakes: bool },
    Stuck { knows_wakes: bool },
    Released,
}

pub(crate) fn story() -> impl Strategy<Value = Vec<Scene>> {
    vec(scene(), SCENES)
}

fn scene() -> impl Strategy<Value = Scene> {
    let place = 0..3_usize;
    prop_oneof![
        8 => vec(beginning(), 1..3).prop_map(Scene::Start),
        1 => (place.clone(), 0..3_usize, any::<bool>())
            .prop_map(|(place, build, fresh)| Scene::Join { place, build, fresh }),
        2 => place.clone().prop_map(|place| Scene::Renew { place }),
        1 => place.clone().prop_map(|place| Scene::Leave { place }),
        10 => (place.clone(), 0..4_usize, mode())
            .prop_map(|(place, limit, mode)| Scene::Claim { place, limit, mode }),
        6 => (choice(), vec(line(), 1..4))
            .prop_map(|(lease, lines)| Scene::Record { lease, lines }),
        8 => (choice(), vec(line(), 0..3), ending())
            .prop_map(|(lease, lines, ending)| Scene::Settle { lease, lines, ending }),
        4 => (any::<bool>(), 0..20_usize).prop_map(|(held, run)| Scene::Cancel { held, run }),
        4 => (prop::bool::weighted(0.8), 0..20_usize)
            .prop_map(|(troubled, run)| Scene::Retry { troubled, run }),
        2 => (0..20_usize, 0..4_u64).prop_map(|(run, wakes)| Scene::RetrySeen { run, wakes }),
        3 => (any::<bool>(), 0..20_usize).prop_map(|(held, run)| Scene::Pause { held, run }),
        3 => (0..20_usize).prop_map(|run| Scene::Resume { run }),
        2 => (0..20_usize, 0..6_usize, prop::option::weighted(0.3, Just(7_i64)))
            .prop_map(|(run, step, input)| Scene::Fork { run, step, input }),
        3 => (choice(), prop::option::weighted(0.5, 0..3_usize))
            .prop_map(|(lease, tag)| Scene::Note { lease, tag }),
        4 => (place.clone(), prop_oneof![6 => Just(1_usize), 2 => Just(4), 1 => Just(11)])
            .prop_map(|(place, times)| Scene::Death { place, times }),
        5 => (place, expired()).prop_map(|(place, expired)| Scene::Sweep { place, expired }),
        1 => prune(),
        3 => limit(),
        5 => clock().prop_map(Scene::Pass),
        4 => Just(Scene::Again),
        4 => (0..40_usize).prop_map(Scene::Late),
    ]
}

fn beginning() -> impl Strategy<Value = Beginning> {
    let key = (
        prop::option::weighted(0.7, prop_oneof![4 => Just(0_usize), 1 => Just(1)]),
        prop_oneof![9 => Just(1_i64), 1 => Just(2)],
        prop_oneof![
            3 => Just(OnConflict::Existing),
            1 => Just(OnConflict::Reject),
            4 => Just(OnConflict::RetryFailed),
            2 => Just(OnConflict::Replace),
        ],
        prop::option::weighted(0.2, Just(5_000_i64)),
    );
    let place = (
        prop_oneof![5 => Just(0_usize), 1 => Just(1)],
        prop_oneof![5 => Just(0_usize), 1 => Just(1)],
        prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(-1)],
        prop::option::weighted(0.5, 0..3_usize),
        prop::option::weighted(0.15, gather()),
    );
    let time = (
        prop::option::weighted(0.2, prop_oneof![Just(0_i64), Just(100), Just(10_000)]),
        prop::option::weighted(0.1, Just(30_000_i64)),
        prop::option::weighted(0.25, 0..3_usize),
    );
    (key, place, time).prop_map(|(key, place, time)| {
        let (key, input, on_conflict, ttl_ms) = key;
        let (workflow, queue, priority, lane, gather) = place;
        let (delay_ms, timeout_ms, claimant) = time;
        Beginning {
            key,
            input,
            on_conflict,
            ttl_ms,
            workflow,
            queue,
            lane,
            gather,
            priority,
            delay_ms,
            timeout_ms,
            claimant,
        }
    })
}

fn gather() -> impl Strategy<Value = Gather> {
    prop_oneof![
        Just(Gather::Debounce { ms: 100, max_ms: None }),
        Just(Gather::Debounce { ms: 10_000, max_ms: Some(10_001) }),
        Just(Gather::Throttle { ms: 5_000 }),
    ]
}

fn limit() -> impl Strategy<Value = Scene> {
    let runs = || prop::option::weighted(0.4, 1..3_u32);
    let rate = prop::option::weighted(0.3, Just(Rate { count: 2, period_ms: 5_000 }));
    let limits =
        (runs(), runs(), rate, runs()).prop_map(|(concurrency, per_worker, rate, per_lane)| {
            QueueLimits { concurrency, per_worker, rate, per_lane }
        });
    let queue = prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    (queue, limits, prop::bool::weighted(0.1)).prop_map(|(queue, limits, paused)| Scene::Limit {
        queue,
        limits,
        paused,
    })
}

fn mode() -> impl Strategy<Value = ClaimMode> {
    prop_oneof![4 => Just(ClaimMode::Ordinary), 1 => Just(ClaimMode::Suspect)]
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        5 => (0..6_usize).prop_map(Choice::Held),
        1 => (0..20_usize).prop_map(Choice::Ever),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let same_place = prop::bool::weighted(0.05);
    (0..6_usize, 0..5_usize, same_place).prop_map(|(step, kind, same_place)| Line {
        step,
        kind,
        same_place,
    })
}

fn ending() -> impl Strategy<Value = Ending> {
    let after = prop::option::of(prop_oneof![Just(0_u64), Just(100), Just(10_000)]);
    let knows = prop::bool::weighted(0.6);
    prop_oneof![
        2 => Just(Ending::Completed),
        3 => prop::option::of(0..6_usize).prop_map(|step| Ending::Failed { step }),
        1 => Just(Ending::Cancelled),
        2 => Just(Ending::Continued),
        3 => (after, knows)
            .prop_map(|(after_ms, knows_wakes)| Ending::Parked { after_ms, knows_wakes }),
        2 => knows.prop_map(|knows_wakes| Ending::Stuck { knows_wakes }),
        2 => Just(Ending::Released),
    ]
}

fn expired() -> impl Strategy<Value = ExpiredLeases> {
    prop_oneof![4 => Just(ExpiredLeases::Take), 1 => Just(ExpiredLeases::Leave)]
}

fn prune() -> impl Strategy<Value = Scene> {
    let states = prop::sample::subsequence(RunState::ALL.to_vec(), 1..=6);
    let older = prop_oneof![Just(0_i64), Just(5_000)];
    (older, states, 0..3_usize, prop::bool::weighted(0.3)).prop_map(
        |(older_than_ms, states, limit, dry_run)| Scene::Prune {
            older_than_ms,
            states,
            limit,
            dry_run,
        },
    )
}

/// Just before, at and past the leases, timers and keys of a story.
fn clock() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(100), Just(4_999), Just(10_000), Just(10_001), Just(60_000)]
}
