//! Whole runs, out of one store and into another: nothing is lost, nothing is there twice, and a
//! run goes on as if it had always been there.
//!
//! The other store is the reference. A store that is not portable passes by having no answer.

use tokio::task::JoinSet;

use super::child::child_of;
use super::every_kind::{expiring, fail_at_pay, full, populate};
use super::stage::*;
use crate::limits::{COPY_BATCH_MAX, COPY_BYTES_MAX};
use crate::store::{
    Conflict, End, Error, Filter, Import, Imported, Lease, NewRun, Query, Settle, Settled,
    StartedHow, Topic, WholeRun,
};
use crate::{Json, OnConflict, Run, RunId, RunState, Waits};

/// Runs of every kind come out with all that the store shows of them.
pub async fn every_kind_of_run_goes_out_whole(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    populate(stage).await;
    let reference = stage.reference();
    let runs = all(stage).await;
    assert_eq!(import(&reference, &runs).await.unwrap().new, runs.len() as u64);
    assert_same(stage, &reference).await;
}

/// Runs of every kind go in with all that the other store shows of them.
pub async fn every_kind_of_run_comes_in_whole(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    populate(&reference).await;
    let runs = all(&reference).await;
    assert_eq!(import(stage, &runs).await.unwrap().new, runs.len() as u64);
    assert_same(&reference, stage).await;
}

/// Every field of a run, and of what belongs to it, comes in and goes out again.
pub async fn every_field_is_kept(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let whole = full(stage);
    import(stage, std::slice::from_ref(&whole)).await.unwrap();
    let kept = all(stage).await;
    assert_eq!(kept, [whole]);
    assert_eq!(import(stage, &kept).await.unwrap(), Imported { new: 0, there: 1 });
}

/// Runs come in the order of their ids, after the given one, up to the limit.
pub async fn export_goes_by_id_and_is_bounded(stage: &Stage) {
    let Some(from) = stage.store.portable() else { return };
    let started: Vec<_> = (0..COPY_BATCH_MAX + 2).map(|_| new_run()).collect();
    let mut ids: Vec<_> = started.iter().map(|run| run.id).collect();
    ids.sort();
    stage.store.start(started).await.unwrap();
    assert_eq!(named(&from.export(None, 2).await.unwrap()), ids[..2]);
    assert_eq!(named(&from.export(Some(ids[1]), 2).await.unwrap()), ids[2..4]);
    assert_eq!(named(&from.export(None, usize::MAX).await.unwrap()), ids[..COPY_BATCH_MAX]);
    assert_eq!(named(&from.export(None, 0).await.unwrap()), ids[..1]);
    let last = ids.last().copied();
    assert_eq!(from.export(last, 10).await.unwrap(), []);
}

/// A batch ends with the run that fills it, and a run that fills it alone still comes.
pub async fn export_is_bounded_in_bytes(stage: &Stage) {
    let Some(from) = stage.store.portable() else { return };
    let half = Json::of(&"x".repeat(COPY_BYTES_MAX / 4 - 2)).unwrap();
    for _ in 0..6 {
        stage.start(NewRun { input: half.clone(), ..new_run() }).await;
    }
    // What is encrypted is stored as text, which makes four bytes of three.
    let most = if stage.store.coded().is_some() { 3 } else { 4 };
    let first = from.export(None, 10).await.unwrap();
    assert_eq!(first.len(), most);
    assert_eq!(from.export(Some(first[most - 1].run.id), 10).await.unwrap().len(), 6 - most);
}

/// An import again finds its runs there and changes nothing.
pub async fn import_twice(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    let count = runs.len() as u64;
    assert_eq!(import(stage, &runs).await.unwrap(), Imported { new: count, there: 0 });
    let before = stage.snapshot().await;
    stage.pass(60_000);
    assert_eq!(import(stage, &runs).await.unwrap(), Imported { new: 0, there: count });
    stage.assert_unchanged(&before).await;
}

/// An import of runs of which some are there adds the others.
pub async fn import_with_more_adds_the_rest(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    import(stage, &runs[..2]).await.unwrap();
    let imported = import(stage, &runs).await.unwrap();
    assert_eq!(imported, Imported { new: runs.len() as u64 - 2, there: 2 });
    assert_eq!(all(stage).await, runs);
}

/// A run that is there and is not the same refuses the whole import, whatever differs.
pub async fn import_that_differs_is_refused_whole(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    let whole = runs.iter().find(|whole| !whole.records.is_empty()).unwrap().clone();
    let run = whole.run.id;
    import(stage, std::slice::from_ref(&whole)).await.unwrap();
    let before = stage.snapshot().await;
    let mut others = vec![whole.clone(); 5];
    others[0].run.priority += 1;
    others[1].records.pop();
    others[2].records[0].at = stage.in_ms(1);
    others[3].attempts.clear();
    others[4].failed_step = Some("another".to_owned());
    let fresh = runs.iter().find(|whole| whole.run.id != run).unwrap();
    for other in others {
        let answer = import(stage, &[fresh.clone(), other]).await;
        assert_conflict(answer, Conflict::RunDiffers { run });
        stage.assert_unchanged(&before).await;
    }
}

/// A run whose key another run has refuses the whole import, and both are named.
pub async fn import_with_a_taken_key_is_refused_whole(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    reference.start(new_run()).await;
    let run = reference.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let holder = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let before = stage.snapshot().await;
    let runs = all(&reference).await;
    assert_conflict(import(stage, &runs).await, Conflict::KeyHeld { run, holder });
    stage.assert_unchanged(&before).await;
}

/// A run comes once in an import.
pub async fn import_of_one_run_twice_is_refused_whole(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    let run = runs[0].run.id;
    for known in [false, true] {
        let answer = import(stage, &[runs[0].clone(), runs[1].clone(), runs[0].clone()]).await;
        assert_conflict(answer, Conflict::RunDiffers { run });
        assert_eq!(stage.snapshot().await.runs.len(), usize::from(known));
        import(stage, &runs[..1]).await.unwrap();
    }
}

/// Two runs of one import cannot have one key.
pub async fn import_with_one_key_for_two_is_refused_whole(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let (one, two) = (stage.reference(), stage.reference());
    let holder = one.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let run = two.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let mut runs = all(&one).await;
    runs.append(&mut all(&two).await);
    assert_conflict(import(stage, &runs).await, Conflict::KeyHeld { run, holder });
    assert_eq!(stage.snapshot().await.runs, []);
}

/// A key that has expired is free for an imported run, as for a started one.
pub async fn import_takes_over_an_expired_key(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let old = stage.start(expiring("order-1", 1_000)).await;
    stage.pass(1_000);
    let reference = stage.reference();
    let new = reference.start(keyed("order-1", 2, OnConflict::Existing)).await;
    let runs = all(&reference).await;
    assert_eq!(import(stage, &runs).await.unwrap().new, 1);
    assert_eq!(stage.by_key("order-1").await, Some(new));
    assert_eq!(stage.run(old).await.key.as_deref(), Some("order-1"));
}

/// A hold that has expired takes no key from anybody, and makes no run differ.
pub async fn expired_hold_is_left_out(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    reference.start(expiring("order-1", 1_000)).await;
    let runs = all(&reference).await;
    stage.pass(1_000);
    let holder = stage.start(keyed("order-1", 2, OnConflict::Existing)).await;
    assert_eq!(import(stage, &runs).await.unwrap(), Imported { new: 1, there: 0 });
    assert_eq!(stage.by_key("order-1").await, Some(holder));
    assert_eq!(import(stage, &runs).await.unwrap(), Imported { new: 0, there: 1 });
}

/// A dry import answers as a real one would, and changes nothing.
pub async fn dry_import_changes_nothing(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    import(stage, &runs[..1]).await.unwrap();
    let before = stage.snapshot().await;
    let dry = |runs: Vec<WholeRun>| {
        stage.store.portable().unwrap().import(Import { runs, dry_run: true })
    };
    let new = runs.len() as u64 - 1;
    assert_eq!(dry(runs.clone()).await.unwrap(), Imported { new, there: 1 });
    let mut other = runs[0].clone();
    other.run.priority += 1;
    let run = other.run.id;
    assert_conflict(dry(vec![other]).await, Conflict::RunDiffers { run });
    stage.assert_unchanged(&before).await;
}

/// Two that import the same runs at once add each of them once.
pub async fn concurrent_imports_add_each_run_once(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    let mut imports = JoinSet::new();
    for store in [stage.store.clone(), stage.other.clone()] {
        let runs = runs.clone();
        imports.spawn(async move {
            let import = Import { runs, dry_run: false };
            store.portable().unwrap().import(import).await.unwrap()
        });
    }
    let done = imports.join_all().await;
    assert_eq!(done.iter().map(|done| done.new).sum::<u64>(), runs.len() as u64);
    assert_eq!(done.iter().map(|done| done.there).sum::<u64>(), runs.len() as u64);
    assert_eq!(all(stage).await, runs);
}

/// A key suppresses after the import what it suppressed before, and still expires.
pub async fn imported_key_is_held_by_the_same_run(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let run = reference.start(expiring("order-1", 1_000)).await;
    let duplicate = keyed("order-1", 1, OnConflict::Existing);
    reference.start(duplicate.clone()).await;
    import(stage, &all(&reference).await).await.unwrap();
    // A start whose answer was lost before the copy is not counted again after it.
    assert_eq!(stage.start(duplicate).await, run);
    assert_eq!(stage.run(run).await.duplicates, 1);
    assert_eq!(stage.start(keyed("order-1", 1, OnConflict::Existing)).await, run);
    let other = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await;
    assert_conflict(other, Conflict::KeyInput { run });
    assert_eq!(stage.run(run).await.duplicates, 3);
    stage.pass(1_000);
    let next = stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await.unwrap();
    assert_eq!(next.how, StartedHow::New);
}

/// Lists find an imported run as they find a started one.
pub async fn imported_run_is_found_by_every_filter(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    import(stage, &runs).await.unwrap();
    let filter = |run: &Run| Filter {
        workflow: Some(run.workflow.clone()),
        states: vec![run.state],
        queue: Some(run.queue.clone()),
        key: run.key.clone(),
        tags: run.tags.clone(),
        created_from: Some(run.created_at),
        ..Filter::default()
    };
    for WholeRun { run, .. } in &runs {
        let query = Query { filter: filter(run), before: None, limit: 100 };
        let page = stage.store.list(query).await.unwrap();
        assert!(page.runs.contains(run), "{run:?}");
    }
    let tagged: Vec<_> = runs.iter().filter(|whole| !whole.run.tags.is_empty()).collect();
    assert_eq!(tagged.len(), 1);
    let filter = Filter { tags: tagged[0].run.tags.clone(), ..Filter::default() };
    let query = Query { filter, before: None, limit: 100 };
    assert_eq!(stage.store.list(query).await.unwrap().runs, [tagged[0].run.clone()]);
}

/// A parent that was cancelled, and whose children nobody has asked to end yet, has them asked to where
/// it is copied to.
pub async fn imported_cascade_reaches_the_children(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    for (from, to) in [(stage, &reference), (&reference, stage)] {
        let worker = from.worker().await;
        let lease = from.running(&worker).await;
        let child = from.start(child_of(lease, "$child/ship")).await;
        from.store.cancel(lease.run).await.unwrap();
        from.settle(lease, End::Cancelled).await.unwrap();
        let runs = all(from).await;
        let mine = runs.into_iter().filter(|it| [lease.run, child].contains(&it.run.id));
        for whole in mine {
            import(to, &[whole]).await.unwrap();
        }
        to.worker().await.sweep().await;
        assert_eq!(to.state(child).await, RunState::Cancelled, "it had not begun");
    }
}

/// A claim of an imported run brings its history, its numbers and its builds.
pub async fn imported_run_goes_on_with_its_history(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let old = reference.worker_of("build-0").await;
    let run = reference.start(new_run()).await;
    let lease = old.take(run).await;
    let records = vec![done(1, "find", 1), tried(4, "pay", "busy")];
    let settle = Settle::new(records, End::Released);
    reference.store.settle(lease, settle).await.unwrap();
    import(stage, &all(&reference).await).await.unwrap();
    let worker = stage.worker().await;
    let claimed = worker.take_whole(run).await;
    assert_eq!(claimed.lease.attempt, 2);
    assert_eq!(steps(&claimed.history), [(1, "find"), (4, "pay")]);
    assert_eq!((claimed.last_seq, claimed.voided_seq), (4, None));
    assert_eq!(claimed.builds.get(&1).map(String::as_str), Some("build-0"));
    stage.record(claimed.lease, vec![done(5, "pay", 2)]).await.unwrap();
    let twice = stage.record(claimed.lease, vec![done(6, "find", 2)]).await;
    assert_conflict(twice, Conflict::Record { run });
    stage.settle(claimed.lease, End::Completed(json(3))).await.unwrap();
    assert_eq!(stage.state(run).await, RunState::Completed);
}

/// A running run comes in as one of a missing worker, which the next sweep takes back.
pub async fn imported_run_of_a_missing_worker_is_taken_back(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let gone = reference.worker().await;
    let lease = reference.running(&gone).await;
    import(stage, &all(&reference).await).await.unwrap();
    assert_eq!(stage.state(lease.run).await, RunState::Running);
    assert_lost(stage.record(lease, vec![done(1, "pay", 1)]).await);
    let worker = stage.worker().await;
    assert_eq!(worker.sweep().await.taken, [lease.run]);
    assert_eq!(worker.take(lease.run).await.attempt, 2);
}

/// A retry of an imported run voids the failure that ended it, and its step is executed again.
pub async fn imported_failed_run_is_retried_at_its_step(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let lease = fail_at_pay(&reference).await;
    import(stage, &all(&reference).await).await.unwrap();
    stage.store.retry(lease.run).await.unwrap();
    let history = stage.history(lease.run).await;
    let voided: Vec<_> = history.into_iter().filter(|it| it.voided_at.is_some()).collect();
    assert_eq!(steps(&voided), [(2, "pay"), (3, "pay")]);
    let worker = stage.worker().await;
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(steps(&claimed.history), [(1, "find")]);
    stage.record(claimed.lease, vec![done(4, "pay", 1)]).await.unwrap();
}

/// A run that waits behind another waits behind it after the import too, and is let go.
pub async fn imported_run_behind_is_let_go(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let worker = reference.worker().await;
    let first = reference.start(keyed("order-1", 1, OnConflict::Existing)).await;
    let lease = worker.take(first).await;
    reference.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    reference.settle(lease, parked(0)).await.unwrap();
    let second = reference.start(keyed("order-1", 2, OnConflict::Replace)).await;
    import(stage, &all(&reference).await).await.unwrap();
    assert!(matches!(stage.run(second).await.waits_for, Some(Waits::Behind { .. })));
    let worker = stage.worker().await;
    let lease = worker.take(first).await;
    stage.settle(lease, End::Cancelled).await.unwrap();
    assert_eq!(stage.state(second).await, RunState::Queued);
    assert_eq!(stage.by_key("order-1").await, Some(second));
}

/// A timer that was set in the other store wakes its run in this one.
pub async fn imported_timer_wakes(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let old = reference.worker().await;
    let due = stage.in_ms(1_000);
    let lease = reference.settled(&old, parked_until(Some(due), 0)).await;
    import(stage, &all(&reference).await).await.unwrap();
    let worker = stage.worker().await;
    assert_eq!(worker.claim(1).await.next_due, Some(due));
    stage.pass(1_000);
    worker.take(lease.run).await;
}

/// A stuck run stays with its builds, and another build mends it.
pub async fn imported_stuck_run_is_mended(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let old = reference.worker().await;
    let lease = reference.settled(&old, stuck(0)).await;
    import(stage, &all(&reference).await).await.unwrap();
    let same = stage.worker().await;
    same.sweep().await;
    same.assert_nothing_to_claim().await;
    let other = stage.worker_of("build-2").await;
    other.sweep().await;
    other.take(lease.run).await;
}

/// The traces of ended attempts come along, that of the one which ended the run too.
pub async fn late_repeat_of_a_settle_is_known_after_an_import(stage: &Stage) {
    if stage.store.portable().is_none() {
        return;
    }
    let reference = stage.reference();
    let worker = reference.worker().await;
    let ended = reference.settled(&worker, End::Completed(json(1))).await;
    let parked_before = reference.settled(&worker, parked(0)).await;
    let woken = reference.running(&worker).await;
    reference.store.cancel(woken.run).await.unwrap();
    reference.settle(woken, parked(0)).await.unwrap();
    import(stage, &all(&reference).await).await.unwrap();
    let again = |lease, end| stage.settle(lease, end);
    assert_eq!(again(ended, End::Completed(json(1))).await.unwrap(), Settled::AsSaid);
    assert_eq!(again(parked_before, parked(0)).await.unwrap(), Settled::AsSaid);
    assert_eq!(again(woken, parked(0)).await.unwrap(), Settled::Queued);
    assert_lost(again(Lease { attempt: 2, ..ended }, End::Released).await);
}

/// Whoever waits for work looks again after an import.
pub async fn waiter_for_work_resolves_at_an_import(stage: &Stage) {
    let Some(runs) = made_elsewhere(stage).await else { return };
    let waiter = stage.store.wait(Topic::Work);
    import(stage, &runs).await.unwrap();
    waiter.await;
}

async fn import(stage: &Stage, runs: &[WholeRun]) -> Result<Imported, Error> {
    let import = Import { runs: runs.to_vec(), dry_run: false };
    stage.store.portable().unwrap().import(import).await
}

/// All runs of a store, from batch to batch, without holds that have expired.
async fn all(stage: &Stage) -> Vec<WholeRun> {
    let from = stage.store.portable().unwrap();
    let mut runs: Vec<WholeRun> = Vec::new();
    loop {
        let batch = from.export(runs.last().map(|whole| whole.run.id), 3).await.unwrap();
        if batch.is_empty() {
            return runs;
        }
        runs.extend(batch.into_iter().map(|whole| whole.seen_at(stage.now())));
    }
}

fn named(runs: &[WholeRun]) -> Vec<RunId> {
    runs.iter().map(|whole| whole.run.id).collect()
}

/// Asserts that two stores show the same and give out the same, workers aside.
async fn assert_same(one: &Stage, two: &Stage) {
    let (left, right) = (one.snapshot().await, two.snapshot().await);
    assert_eq!(left.without_workers(), right.without_workers());
    let (left, right) = (all(one).await, all(two).await);
    assert_eq!(named(&left), named(&right));
    left.iter().zip(&right).for_each(|(left, right)| assert_eq!(left, right));
}

/// Whole runs of every kind from another store, if this one is portable.
async fn made_elsewhere(stage: &Stage) -> Option<Vec<WholeRun>> {
    stage.store.portable()?;
    let reference = stage.reference();
    populate(&reference).await;
    Some(all(&reference).await)
}
