//! Two stores, one story: random calls applied to both, every answer and the whole visible state
//! compared. And one store and its copies: what was taken elsewhere goes on as it would have.
//!
//! The calls are made to mean something: leases come from earlier claims, repeats from earlier
//! calls, and the clock moves past leases, timers and keys. A failure shrinks to a short story.

mod story;
mod world;

use onward::conformance::{Harness, Snapshot, Stage};
use onward::store::{Import, Imported};
use proptest::prelude::*;

use crate::harness::Memory;
use story::{Scene, story};
use world::World;

/// `ONWARD_DIFFERENTIAL_CASES` makes them more: ./scripts/test --long has 256.
const CASES: u32 = 64;

fn config() -> ProptestConfig {
    let given =
        std::env::var("ONWARD_DIFFERENTIAL_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: given.unwrap_or(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// The suite's own check: a store agrees with itself, so whatever differs is the store's.
    #[test]
    fn memory_agrees_with_memory(story in story()) {
        compare::<Memory, Memory>(story);
    }
}

mod sqlite {
    use super::*;
    use crate::harness::Sqlite;

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn memory_agrees_with_sqlite(story in story()) {
            compare::<Memory, Sqlite>(story);
        }

        #[test]
        fn memory_agrees_with_its_copy_of_a_copy_in_sqlite(story in story()) {
            carry::<Memory, Sqlite>(story);
        }
    }
}

mod postgres {
    use super::*;
    use crate::harness::Postgres;

    proptest! {
        // Each case makes a schema of its own and answers over a connection.
        #![proptest_config(ProptestConfig { cases: config().cases / 4, ..config() })]

        #[test]
        fn memory_agrees_with_postgres(story in story()) {
            compare::<Memory, Postgres>(story);
        }

        #[test]
        fn memory_agrees_with_its_copy_of_a_copy_in_postgres(story in story()) {
            carry::<Memory, Postgres>(story);
        }
    }
}

/// Plays the story on both stores and compares what they say and show.
fn compare<A: Harness, B: Harness>(story: Vec<Scene>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (left, right) = (Stage::open::<A>().await, Stage::open::<B>().await);
        let mut world = World::default();
        for call in world.prelude() {
            same_answers(&mut world, &left, &right, &call).await;
        }
        for scene in story {
            match scene {
                Scene::Pass(ms) => pass(&left, &right, ms),
                Scene::Death { place, times } => {
                    for _ in 0..times {
                        for call in world.last_claims(place) {
                            same_answers(&mut world, &left, &right, &call).await;
                        }
                        pass(&left, &right, world::DEATH_MS);
                        for call in world.after_death(place) {
                            same_answers(&mut world, &left, &right, &call).await;
                        }
                    }
                }
                scene => {
                    if let Some(call) = world.call(&left, &scene).await {
                        same_answers(&mut world, &left, &right, &call).await;
                    }
                }
            }
        }
        same_sight(&left, &right).await;
        for call in world.finale() {
            same_answers(&mut world, &left, &right, &call).await;
        }
        same_sight(&left, &right).await;
    });
}

/// Plays the story on one store, takes its runs to the other and from there to a third, and
/// compares what all three show, what they give a worker that takes up all that is left, and what
/// they say to every write of the story that comes again.
fn carry<A: Harness, B: Harness>(story: Vec<Scene>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let first = Stage::open::<A>().await;
        let mut world = World::default();
        play(&mut world, &first, story).await;
        let (second, third) = (Stage::open::<B>().await, Stage::open::<A>().await);
        for stage in [&second, &third] {
            stage.clock.advance(first.now().since(stage.now()));
        }
        take(&first, &second).await;
        take(&second, &third).await;
        same_but_workers(&first, &second, &third).await;
        // In the first store the workers are dead now; in the copies they have never been.
        [&first, &second, &third].iter().for_each(|stage| stage.pass(world::DEATH_MS));
        let mut calls = world.finale();
        calls.append(&mut world.late_writes());
        for call in calls {
            let one = call.make(first.store.as_ref()).await;
            let two = call.make(second.store.as_ref()).await;
            let three = call.make(third.store.as_ref()).await;
            assert_eq!(two.text, three.text, "the copies answer {call:?} differently");
            if !matches!(call, world::Call::Sweep(_)) {
                assert_eq!(one.text, two.text, "the copy answers {call:?} differently");
            }
        }
        same_but_workers(&first, &second, &third).await;
    });
}

/// Plays the story on one store.
async fn play(world: &mut World, stage: &Stage, story: Vec<Scene>) {
    let mut calls = world.prelude();
    for scene in story {
        match scene {
            Scene::Pass(ms) => {
                make(world, stage, std::mem::take(&mut calls)).await;
                stage.pass(ms);
            }
            Scene::Death { place, times } => {
                for _ in 0..times {
                    calls.append(&mut world.last_claims(place));
                    make(world, stage, std::mem::take(&mut calls)).await;
                    stage.pass(world::DEATH_MS);
                    calls.append(&mut world.after_death(place));
                }
            }
            // What was granted, and whose turn is next, is not copied.
            Scene::Limit { .. } => {}
            scene => {
                make(world, stage, std::mem::take(&mut calls)).await;
                calls.extend(world.call(stage, &scene).await);
            }
        }
    }
    make(world, stage, calls).await;
}

async fn make(world: &mut World, stage: &Stage, calls: Vec<world::Call>) {
    for call in calls {
        let answer = call.make(stage.store.as_ref()).await;
        world.learn(&call, answer);
    }
}

/// Takes all runs from a store to another, in small batches.
async fn take(from: &Stage, to: &Stage) {
    let (source, destination) = (from.store.portable().unwrap(), to.store.portable().unwrap());
    let mut after = None;
    loop {
        let runs = source.export(after, 3).await.unwrap();
        let Some(last) = runs.last() else { return };
        after = Some(last.run.id);
        let count = runs.len() as u64;
        let import = Import { runs, dry_run: false };
        assert_eq!(destination.import(import).await.unwrap(), Imported { new: count, there: 0 });
    }
}

async fn same_but_workers(first: &Stage, second: &Stage, third: &Stage) {
    let shown = first.snapshot().await.without_workers();
    assert_eq!(shown, second.snapshot().await.without_workers(), "the copy shows another state");
    assert_eq!(shown, third.snapshot().await.without_workers(), "its copy shows another state");
}

fn pass(left: &Stage, right: &Stage, ms: u64) {
    left.pass(ms);
    right.pass(ms);
}

async fn same_answers(world: &mut World, left: &Stage, right: &Stage, call: &world::Call) {
    let answer = call.make(left.store.as_ref()).await;
    let other = call.make(right.store.as_ref()).await;
    assert_eq!(answer.text, other.text, "the stores answer {call:?} differently");
    world.learn(call, answer);
}

async fn same_sight(left: &Stage, right: &Stage) {
    let one = Snapshot::of(left.store.as_ref()).await;
    let two = Snapshot::of(right.store.as_ref()).await;
    assert_eq!(one, two, "the stores show different states");
}
