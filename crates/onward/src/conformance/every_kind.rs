//! A store full of runs of every kind, to take to another store.
//!
//! Owns: that each state a run can be in, and each thing that a store keeps for it, is there.

use super::stage::*;
use crate::store::{
    End, KeyHold, Lease, NewKey, NewRun, Settle, Settled, Signal, StartAt, Trace, WholeRun,
};
use crate::{
    CodeChange, Duplicate, Entry, Failure, Fingerprint, LogLine, Noted, Notes, OnConflict, Origin,
    Parent, Record, Run, RunId, RunProgress, RunState, Seed, Waits, WorkerId,
};

/// A run to start with a key that expires.
pub(super) fn expiring(key: &str, ttl_ms: i64) -> NewRun {
    let new = keyed(key, 1, OnConflict::Existing);
    let key = new.key.map(|key| NewKey { ttl_ms: Some(ttl_ms), ..key });
    NewRun { key, ..new }
}

/// A run whose step "pay" failed for good after a failed try.
pub(super) async fn fail_at_pay(stage: &Stage) -> Lease {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let records = vec![done(1, "find", 1), tried(2, "pay", "busy"), failed(3, "pay")];
    stage.store.settle(lease, Settle::new(records, failed_at("pay"))).await.unwrap();
    lease
}

/// Fills a store with runs of every kind, each with what a store keeps for its kind.
pub(super) async fn populate(stage: &Stage) {
    let worker = stage.worker().await;
    populate_ended(stage, &worker).await;
    populate_waiting(stage, &worker).await;
    populate_keyed(stage, &worker).await;
    // Last, so that no claim above takes them.
    let lease = stage.running(&worker).await;
    stage.record(lease, vec![entry(1, "pay", Entry::Began)]).await.unwrap();
    let tags = [("tenant", "acme"), ("kind", "pdf")];
    stage
        .start(NewRun {
            tags: tags.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            queue: "bulk".to_owned(),
            lane: Some("acme".to_owned()),
            priority: -7,
            timeout_ms: Some(90_000),
            ..new_run()
        })
        .await;
    let behind = stage.start(keyed("behind", 1, OnConflict::Existing)).await;
    let lease = worker.take(behind).await;
    stage.start(keyed("behind", 2, OnConflict::Replace)).await;
    stage.record(lease, vec![done(1, "pay", 1)]).await.unwrap();
    let stats = stage.store.stats().await.unwrap();
    assert!(RunState::ALL.iter().all(|state| stats.runs.contains_key(state)), "{stats:?}");
}

async fn populate_ended(stage: &Stage, worker: &Worker) {
    stage.settled(worker, End::Completed(json(1))).await;
    let lease = stage.running(worker).await;
    let settle = Settle {
        unasked: vec!["gone".to_owned()],
        ..Settle::new(vec![done(1, "gone", 1)], End::Completed(json(2)))
    };
    stage.store.settle(lease, settle).await.unwrap();
    fail_at_pay(stage).await;
    let retried = fail_at_pay(stage).await;
    stage.pass(5);
    stage.store.retry(retried.run).await.unwrap();
    let lease = worker.take(retried.run).await;
    let details = Failure::fatal("declined").code("card_declined").details(&["a", "b"]);
    let end = End::Failed { failure: details, step: None };
    stage.store.settle(lease, Settle::new(vec![done(9, "pay", 2)], end)).await.unwrap();
    let unclaimed = stage.start(new_run()).await;
    stage.store.cancel(unclaimed).await.unwrap();
    let lease = stage.running(worker).await;
    stage.store.cancel(lease.run).await.unwrap();
    stage.settle(lease, End::Cancelled).await.unwrap();
}

async fn populate_waiting(stage: &Stage, worker: &Worker) {
    stage.start(NewRun { start_at: StartAt::After(60_000), ..new_run() }).await;
    stage.settled(worker, parked_until(Some(stage.in_ms(90_000)), 0)).await;
    stage.settled(worker, parked(0)).await;
    stage.settled(worker, stuck(0)).await;
    let asked = stage.running(worker).await;
    let records = vec![done(1, "find", 1), entry(2, "$sleep", Entry::Fired)];
    stage.store.settle(asked, Settle::new(records, parked(0))).await.unwrap();
    // One that the loss of its worker left to be claimed again, and one that was marked besides.
    for marked in [false, true] {
        let doomed = stage.worker_of("build-0").await;
        let lease = stage.running(&doomed).await;
        if marked {
            stage.record(lease, vec![done(1, "find", 1)]).await.unwrap();
            stage.store.cancel(lease.run).await.unwrap();
        }
        stage.lose(&doomed, worker).await;
        let lease = worker.take(lease.run).await;
        let wakes = stage.run(lease.run).await.wakes;
        let end = if marked { parked(wakes) } else { stuck(wakes) };
        stage.settle(lease, end).await.unwrap();
    }
}

async fn populate_keyed(stage: &Stage, worker: &Worker) {
    let run = stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    stage.start(keyed("order-1", 1, OnConflict::Existing)).await;
    stage.pass(1);
    assert!(stage.try_start(keyed("order-1", 2, OnConflict::Existing)).await.is_err());
    let lease = worker.take(run).await;
    let next = End::Continued { run: RunId::new(), input: json(7), undelivered: Vec::new() };
    stage.settle(lease, next).await.unwrap();
    worker.claim(1).await;
    // A key that another run took over after it had expired, and one that nobody has any more.
    stage.start(expiring("order-2", 10)).await;
    stage.start(expiring("order-3", 10)).await;
    stage.pass(10);
    stage.start(expiring("order-2", 900_000)).await;
    worker.claim(10).await;
}

/// A run with something in every field, whether or not a run's life could bring it about.
pub(super) fn full(stage: &Stage) -> WholeRun {
    let at = |ms| Some(stage.in_ms(ms));
    let failure = || Failure::retry_after(std::time::Duration::from_secs(7), "late").code("late");
    let mut run = Run::fresh(RunId::new(), "full".to_owned(), json(1), stage.now());
    run.state = RunState::Failed;
    (run.queue, run.priority, run.key) = ("bulk".to_owned(), -3, Some("full-1".to_owned()));
    (run.output, run.failure) = (Some(json(2)), Some(failure()));
    (run.attempt, run.worker, run.build) = (4, Some(WorkerId::new()), Some("b4".to_owned()));
    (run.due_at, run.started_at, run.finished_at) = (at(1), at(2), at(3));
    (run.deadline_at, run.cancel_at, run.paused_at) = (at(4), at(5), at(6));
    run.waits_for = Some(Waits::Retry { step: "pay".to_owned(), try_number: 3 });
    (run.wakes, run.crashes, run.duplicates) = (1 << 40, 2, 1 << 41);
    run.stuck_builds = vec!["b1".to_owned(), String::new()];
    run.retried_at = at(7);
    run.tags = [("tenant".to_owned(), "acme \u{2603}".to_owned())].into();
    (run.continued_from, run.continued_as) = (Some(RunId::new()), Some(RunId::new()));
    run.successor = Some(RunId::new());
    let unasked = vec!["gone".to_owned()];
    run.signals = 3;
    (run.paused_by, run.forked_from) = (Some("ops".to_owned()), Some(RunId::new()));
    let progress = RunProgress { done: 3, total: 1 << 40, at: stage.in_ms(12) };
    let noted = Noted { seq: 9, calls: 2 };
    let seeds = vec![Seed { run: RunId::new(), until: 4 }];
    let origin = Some(Origin { began_at: stage.in_ms(1), seeds });
    run.notes = Notes {
        progress: Some(progress),
        log_lines: 2,
        noted,
        origin,
        start_at: run.started_at,
        timed_from: run.retried_at,
        own_time_ms: Some(90_000),
        ended_behind: Some(RunId::new()),
    };
    let (parent, step) = (RunId::new(), "$child/full".to_owned());
    run.parent = Some(Parent { run: parent, step, detached: true });
    run.lane = Some("acme".to_owned());
    run.code_change = Some(CodeChange { build: "b4".to_owned(), unasked, at: stage.in_ms(8) });
    assert_nothing_left_out(stage, &run);
    let lost = Trace { build: "b3".to_owned(), settled: None };
    let woken = Trace { build: String::new(), settled: Some(Settled::Queued) };
    let other = Trace { build: "b5".to_owned(), settled: Some(Settled::AsSaid) };
    let new = super::signal::new_signal(run.id, "go", 9);
    let signal = Signal::of(&new, 3, stage.in_ms(11));
    let caller = "place".to_owned();
    let duplicate = Duplicate { at: stage.in_ms(9), caller, same_input: true };
    WholeRun {
        run,
        records: full_records(stage, failure()),
        attempts: [(1, lost), (3, woken), (4, other)].into(),
        failed_step: Some("pay".to_owned()),
        hold: Some(KeyHold { fingerprint: Fingerprint::of(b"full"), expires_at: at(60_000) }),
        suppressed: vec![(RunId::new(), duplicate)],
        signals: vec![signal],
        log: full_log(stage),
        cascades: true,
    }
}

/// Asserts that no field is as it is in a run that was just started, one that is added to runs later
/// included.
fn assert_nothing_left_out(stage: &Stage, run: &Run) {
    let other = Run::fresh(RunId::new(), "other".to_owned(), json(0), stage.in_ms(77));
    let [full, fresh] = [run, &other].map(|run| serde_json::to_value(run).unwrap());
    for (field, value) in full.as_object().unwrap() {
        assert_ne!(value, &fresh[field], "{field} says nothing");
    }
}

/// A line of a function and one of a body.
fn full_log(stage: &Stage) -> Vec<LogLine> {
    let line = |no, step: Option<&str>| LogLine {
        no,
        at: stage.in_ms(no),
        step: step.map(str::to_owned),
        try_number: step.map(|_| 2),
        text: format!("line {no} \u{2603}"),
    };
    vec![line(1, None), line(2, Some("pay"))]
}

/// Records of every kind, with something in every field.
fn full_records(stage: &Stage, failure: Failure) -> Vec<Record> {
    let entries = [
        Entry::Began,
        Entry::TryFailed { failure: failure.clone(), next_at: stage.in_ms(10) },
        Entry::Failed(failure),
        Entry::Done(json(3)),
        Entry::Fired,
        Entry::Arrived(json(4)),
    ];
    let record = |(place, what): (u64, Entry)| Record {
        try_number: 2,
        attempt: 3,
        began_at: stage.in_ms(place),
        foreign: place % 2 == 1,
        undoable: matches!(what, Entry::Done(_)),
        voided_at: (place == 2).then(|| stage.in_ms(99)),
        ..Record::new(7 * place, "pay".to_owned() + &place.to_string(), what, stage.in_ms(50))
    };
    (0..).zip(entries).map(record).collect()
}
