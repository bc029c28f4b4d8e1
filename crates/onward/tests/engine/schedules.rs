//! Schedules through their public face: fired once by many, caught up by policy, paused, changed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use onward::conformance::{Death, LossyStore};
use onward::limits::{SCHEDULE_CATCH_UP_MAX, SCHEDULE_GRACE, START_BATCH_MAX, TAGS_MAX};
use onward::store::{MemoryStore, SqliteOptions, SqliteStore, Store};
use onward::{
    CatchUp, Clock, Code, Ctx, Failure, Filter, Occurred, Onward, Overlap, Query, Run, RunState,
    TestClock, Timestamp, Worker, Workflow,
};

use crate::database;
use crate::stores::on_each_clocked_store;

mod processes;

const REPORT: Workflow<String, Option<Timestamp>> = Workflow::named("report");

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// A memory store on a clock that begins with the year 2026.
fn memory() -> (TestClock, Onward) {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    (clock, Onward::with_store(store))
}

async fn report(ctx: Ctx, _: String) -> Result<Option<Timestamp>, Failure> {
    Ok(ctx.scheduled_at())
}

async fn serve(onward: &Onward) -> Worker {
    onward.worker().serve(REPORT, report).start().await.unwrap()
}

/// A worker that fires, and executes none of what it starts.
async fn only_fire(onward: &Onward) -> Worker {
    onward.worker().serve(REPORT, report).queues(["elsewhere"]).start().await.unwrap()
}

fn input() -> String {
    "sales".to_owned()
}

/// The runs of a schedule, oldest first.
async fn runs(onward: &Onward, name: &str) -> Vec<Run> {
    let tags = BTreeMap::from([("schedule".to_owned(), name.to_owned())]);
    let filter = Filter { tags, ..Filter::default() };
    let mut runs = onward.list(Query { filter, limit: 1_000, before: None }).await.unwrap().runs;
    runs.reverse();
    runs
}

/// The hours and minutes of the runs of a schedule, as they were to come.
async fn times(onward: &Onward, name: &str) -> Vec<String> {
    let at = |run: &Run| run.tags["scheduled_at"][11..16].to_owned();
    let mut times: Vec<_> = runs(onward, name).await.iter().map(at).collect();
    times.sort();
    times
}

async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "it never came to hold");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until the worker has fired all that is due of a schedule.
async fn until_fired(onward: &Onward, name: &str) {
    until(async || {
        let schedule = onward.schedule(name).status().await.unwrap();
        schedule.next_at.is_none_or(|next_at| next_at > onward.store().clock().now())
    })
    .await;
}

#[tokio::test]
async fn a_schedule_starts_its_workflow_at_its_times() {
    let (clock, onward) = memory();
    let worker = serve(&onward).await;
    let hourly = onward.schedule("hourly").every(HOUR).tag("tenant", "acme");
    let stored = hourly.start(REPORT, &input()).await.unwrap();
    assert_eq!(stored.next_at, Some(clock.now() + HOUR));
    for _ in 0..3 {
        clock.advance(HOUR);
        until_fired(&onward, "hourly").await;
        let key = onward.schedule("hourly").status().await.unwrap().latest.unwrap().key;
        let run = onward.by_key(REPORT, key.as_str()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), Some(clock.now()));
    }
    assert_eq!(times(&onward, "hourly").await, ["01:00", "02:00", "03:00"]);
    let first = &runs(&onward, "hourly").await[0];
    assert_eq!(first.key.as_deref(), Some("schedule/hourly/2026-01-01T01:00:00.000Z"));
    assert_eq!(first.tags["tenant"], "acme");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_schedule_comes_by_the_clock_of_the_machine_too() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    let (here, there) = (Onward::open(&url).await.unwrap(), Onward::open(&url).await.unwrap());
    let workers = [serve(&here).await, serve(&there).await];
    // The workers look at the store already, and are told of it.
    let setup = here.schedule("secondly").every(Duration::from_secs(1));
    setup.start(REPORT, &input()).await.unwrap();
    until(async || runs(&here, "secondly").await.len() >= 2).await;
    for run in runs(&here, "secondly").await {
        let late = here.run(run.id).result().await.unwrap();
        let late: Option<Timestamp> = late.read().unwrap();
        assert!(run.created_at.since(late.unwrap()) < Duration::from_secs(3), "{run:?}");
    }
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_no_schedule_started_has_no_time_of_one() {
    let (_clock, onward) = memory();
    let worker = serve(&onward).await;
    let run = onward.start(REPORT, &input()).key("order-7").await.unwrap();
    assert_eq!(run.result().await.unwrap(), None);
    worker.shutdown().await.unwrap();
}

/// Ten clients, each with a worker, on what each of these opens.
async fn ten_fire_once(clock: TestClock, stores: Vec<Arc<dyn Store>>) {
    assert_eq!(stores.len(), 10);
    let clients: Vec<_> = stores.into_iter().map(Onward::with_store).collect();
    let setup = clients[0].schedule("every-minute").every(MINUTE).overlap(Overlap::Allow);
    setup.start(REPORT, &input()).await.unwrap();
    let mut workers = Vec::new();
    for client in &clients {
        workers.push(serve(client).await);
    }
    for _ in 0..5 {
        clock.advance(MINUTE);
        until_fired(&clients[9], "every-minute").await;
    }
    let due = ["00:01", "00:02", "00:03", "00:04", "00:05"];
    assert_eq!(times(&clients[0], "every-minute").await, due);
    until(async || {
        let runs = runs(&clients[0], "every-minute").await;
        runs.iter().all(|run| run.state == RunState::Completed && run.attempt == 1)
    })
    .await;
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
    assert_eq!(times(&clients[0], "every-minute").await, due);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_workers_on_one_memory_store_fire_once() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    ten_fire_once(clock, (0..10).map(|_| store.clone() as Arc<dyn Store>).collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_stores_on_one_sqlite_file_fire_once() {
    let clock = TestClock::new();
    let folder = tempfile::tempdir().unwrap();
    let open = |_| {
        let options = SqliteOptions { clock: Arc::new(clock.clone()), ..SqliteOptions::default() };
        let store = SqliteStore::open_with(folder.path().join("onward.db"), options).unwrap();
        Arc::new(store) as Arc<dyn Store>
    };
    let stores = (0..10).map(open).collect();
    ten_fire_once(clock.clone(), stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_stores_on_one_postgres_schema_fire_once() {
    let clock = TestClock::new();
    let schema = database::Schema::new();
    let mut stores = Vec::new();
    for _ in 0..10 {
        stores.push(database::open(&schema, &clock).await as Arc<dyn Store>);
    }
    ten_fire_once(clock, stores).await;
}

/// What is started when a worker comes up at 05:30, after five hours without one.
async fn after_an_outage(catch_up: CatchUp) -> Vec<String> {
    let (clock, onward) = memory();
    let setup = onward.schedule("hourly").every(HOUR).catch_up(catch_up).overlap(Overlap::Allow);
    setup.start(REPORT, &input()).await.unwrap();
    clock.advance(HOUR * 5 + MINUTE * 30);
    let worker = only_fire(&onward).await;
    until_fired(&onward, "hourly").await;
    worker.shutdown().await.unwrap();
    let next_at = onward.schedule("hourly").status().await.unwrap().next_at;
    assert_eq!(next_at, Some(clock.now() + MINUTE * 30));
    times(&onward, "hourly").await
}

#[tokio::test]
async fn missed_times_are_caught_up_by_the_policy() {
    assert!(after_an_outage(CatchUp::Skip).await.is_empty());
    assert_eq!(after_an_outage(CatchUp::One).await, ["05:00"]);
    assert_eq!(after_an_outage(CatchUp::All { max: 3 }).await, ["03:00", "04:00", "05:00"]);
    let all = after_an_outage(CatchUp::All { max: 100 }).await;
    assert_eq!(all, ["01:00", "02:00", "03:00", "04:00", "05:00"]);
}

#[tokio::test]
async fn a_time_within_the_grace_is_not_missed() {
    let (clock, onward) = memory();
    let setup = onward.schedule("hourly").every(HOUR).catch_up(CatchUp::Skip);
    setup.start(REPORT, &input()).await.unwrap();
    clock.advance(HOUR + SCHEDULE_GRACE);
    let worker = only_fire(&onward).await;
    until_fired(&onward, "hourly").await;
    assert_eq!(times(&onward, "hourly").await, ["01:00"]);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_missed_times_than_fit_one_transaction_are_all_started() {
    let (clock, onward) = memory();
    let setup = onward.schedule("often").every(MINUTE).overlap(Overlap::Allow);
    let setup = setup.catch_up(CatchUp::All { max: 300 });
    setup.start(REPORT, &input()).await.unwrap();
    clock.advance(HOUR * 10 + MINUTE / 2);
    let worker = only_fire(&onward).await;
    until_fired(&onward, "often").await;
    let times = times(&onward, "often").await;
    assert_eq!((times.len(), times[0].as_str(), times[299].as_str()), (300, "05:01", "10:00"));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_overlap_policy_holds_while_a_run_is_live() {
    let expected = [
        (Overlap::Skip, vec![RunState::Queued]),
        (Overlap::Allow, vec![RunState::Queued; 3]),
        (Overlap::CancelPrevious, vec![RunState::Cancelled, RunState::Cancelled, RunState::Queued]),
        (Overlap::BufferOne, vec![RunState::Queued, RunState::Waiting]),
    ];
    for (overlap, states) in expected {
        let (clock, onward) = memory();
        let worker = only_fire(&onward).await;
        let setup = onward.schedule("hourly").every(HOUR).overlap(overlap);
        setup.start(REPORT, &input()).await.unwrap();
        for _ in 0..3 {
            clock.advance(HOUR);
            until_fired(&onward, "hourly").await;
        }
        let found: Vec<_> = runs(&onward, "hourly").await.iter().map(|run| run.state).collect();
        assert_eq!(found, states, "{overlap}");
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_buffered_run_begins_when_the_one_before_has_ended() {
    let (clock, onward) = memory();
    let setup = onward.schedule("hourly").every(HOUR).overlap(Overlap::BufferOne);
    setup.start(REPORT, &input()).await.unwrap();
    let firing = only_fire(&onward).await;
    for _ in 0..2 {
        clock.advance(HOUR);
        until_fired(&onward, "hourly").await;
    }
    firing.shutdown().await.unwrap();
    let worker = serve(&onward).await;
    for run in runs(&onward, "hourly").await {
        onward.run(run.id).result().await.unwrap();
    }
    let done = runs(&onward, "hourly").await;
    assert!(done[1].started_at >= done[0].finished_at, "{done:?}");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn times_that_pass_during_a_pause_are_not_caught_up() {
    let (clock, onward) = memory();
    let worker = only_fire(&onward).await;
    let hourly = onward.schedule("hourly");
    let setup = hourly.clone().every(HOUR).catch_up(CatchUp::All { max: 100 });
    setup.overlap(Overlap::Allow).start(REPORT, &input()).await.unwrap();
    hourly.pause().await.unwrap();
    clock.advance(HOUR * 5 + MINUTE);
    let again = hourly.clone().every(HOUR).catch_up(CatchUp::All { max: 100 });
    again.overlap(Overlap::Allow).start(REPORT, &input()).await.unwrap();
    assert!(hourly.status().await.unwrap().paused_at.is_some(), "a deploy does not end a pause");
    let resumed = hourly.resume().await.unwrap();
    assert_eq!(resumed.next_at, Some(clock.now() + (HOUR - MINUTE)));
    clock.advance(HOUR);
    until_fired(&onward, "hourly").await;
    assert_eq!(times(&onward, "hourly").await, ["06:00"]);
    assert_eq!(hourly.resume().await.unwrap(), hourly.status().await.unwrap());
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn other_times_are_a_new_generation_and_lose_no_time_that_is_due() {
    let (clock, onward) = memory();
    let nightly = onward.schedule("nightly");
    nightly.clone().every(HOUR).start(REPORT, &input()).await.unwrap();
    clock.advance(HOUR);
    // No worker was up at 01:00, and the next deploy brings other times.
    let changed = nightly.clone().every(MINUTE * 30).start(REPORT, &input()).await.unwrap();
    assert_eq!((changed.generation, changed.next_at), (2, Some(clock.now() + MINUTE * 30)));
    assert_eq!(times(&onward, "nightly").await, ["01:00"]);
    onward.run(runs(&onward, "nightly").await[0].id).cancel().await.unwrap();
    let worker = only_fire(&onward).await;
    clock.advance(MINUTE * 30);
    until_fired(&onward, "nightly").await;
    let keys: Vec<_> = runs(&onward, "nightly").await.into_iter().filter_map(|r| r.key).collect();
    let expected =
        ["schedule/nightly/2026-01-01T01:00:00.000Z", "schedule/nightly/2026-01-01T01:30:00.000Z"];
    assert_eq!(keys, expected);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn no_time_is_started_twice_whatever_was_changed() {
    on_each_clocked_store(async |store, clock| {
        let onward = Onward::with_store(store);
        let hourly = onward.schedule("hourly");
        let every = |every| hourly.clone().every(every).overlap(Overlap::Allow);
        let (worker, begin) = (only_fire(&onward).await, clock.now());
        every(HOUR).start(REPORT, &input()).await.unwrap();
        for _ in 0..3 {
            clock.advance(HOUR);
            until_fired(&onward, "hourly").await;
        }
        every(HOUR).start(REPORT, &"other".to_owned()).await.unwrap();
        let filled = hourly.backfill(begin + HOUR, clock.now()).await.unwrap();
        assert_eq!(
            (filled.started, filled.refused),
            (0, 2),
            "these had their run with the input of then"
        );
        every(HOUR / 2).start(REPORT, &input()).await.unwrap();
        let filled = hourly.backfill(begin + HOUR, clock.now()).await.unwrap();
        assert_eq!((filled.started, filled.existing), (2, 2), "only the half hours are new");
        let expected = ["01:00", "01:30", "02:00", "02:30", "03:00"];
        assert_eq!(times(&onward, "hourly").await, expected);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Before its write, or after it and before its answer: another fires what is left to fire.
#[tokio::test]
async fn a_process_that_dies_while_it_fires_loses_and_doubles_nothing() {
    for death in [Death::Before, Death::After] {
        let (clock, onward) = memory();
        let hourly = onward.schedule("hourly");
        hourly.clone().every(HOUR).start(REPORT, &input()).await.unwrap();
        clock.advance(HOUR);
        let dying = Arc::new(LossyStore::around(onward.store().clone()));
        dying.die_after(0, death);
        let other = Onward::with_store(dying.clone()).schedule("hourly").every(MINUTE * 30);
        // Its first write fires what is due by the old times.
        let task = tokio::spawn(async move { other.start(REPORT, &input()).await });
        dying.died().await;
        task.abort();
        assert_eq!(runs(&onward, "hourly").await.len(), usize::from(death == Death::After));
        let worker = only_fire(&onward).await;
        until_fired(&onward, "hourly").await;
        assert_eq!(times(&onward, "hourly").await, ["01:00"], "{death:?}");
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn the_same_again_changes_nothing() {
    let (clock, onward) = memory();
    let put = async || {
        let setup = onward.schedule("nightly").cron("0 3 * * *").time_zone("Europe/Berlin");
        setup.start(REPORT, &input()).await.unwrap()
    };
    let first = put().await;
    clock.advance(HOUR);
    assert_eq!(put().await, first);
    assert_eq!(onward.schedules(None).await.unwrap().schedules, [first]);
}

#[tokio::test]
async fn the_next_times_go_with_the_clocks_of_the_zone() {
    let (clock, onward) = memory();
    let nightly = onward.schedule("nightly");
    let setup = nightly.clone().cron("30 2 * * *").time_zone("Europe/Berlin");
    setup.start(REPORT, &input()).await.unwrap();
    // The clocks go forward at 02:00 on 29 March and back at 03:00 on 25 October.
    clock.advance(HOUR * 24 * 86);
    let spring: Vec<_> = nightly.next(5).await.unwrap().iter().map(Timestamp::to_string).collect();
    let expected = [
        "2026-03-28T01:30:00.000Z",
        "2026-03-29T01:00:00.000Z",
        "2026-03-30T00:30:00.000Z",
        "2026-03-31T00:30:00.000Z",
        "2026-04-01T00:30:00.000Z",
    ];
    assert_eq!(spring, expected);
    clock.advance(HOUR * 24 * 211);
    let autumn: Vec<_> = nightly.next(3).await.unwrap().iter().map(Timestamp::to_string).collect();
    let expected =
        ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z", "2026-10-27T01:30:00.000Z"];
    assert_eq!(autumn, expected);
}

#[tokio::test]
async fn a_doubled_hour_is_fired_once_by_a_worker() {
    let (clock, onward) = memory();
    let setup = onward.schedule("nightly").cron("30 2 * * *").time_zone("Europe/Berlin");
    clock.advance(HOUR * 24 * 297);
    setup.overlap(Overlap::Allow).start(REPORT, &input()).await.unwrap();
    let worker = only_fire(&onward).await;
    for _ in 0..12 {
        clock.advance(MINUTE * 30);
        until_fired(&onward, "nightly").await;
    }
    let runs = runs(&onward, "nightly").await;
    let at: Vec<_> = runs.iter().map(|run| run.tags["scheduled_at"].as_str()).collect();
    assert_eq!(at, ["2026-10-25T00:30:00.000Z"], "02:30 comes twice by the clocks");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_trigger_goes_by_the_overlap_policy_and_leaves_the_times() {
    let (clock, onward) = memory();
    let hourly = onward.schedule("hourly");
    hourly.clone().every(HOUR).start(REPORT, &input()).await.unwrap();
    let first = hourly.trigger().await.unwrap();
    let Occurred::Started { run } = first else { panic!("{first:?}") };
    assert_eq!(hourly.trigger().await.unwrap(), Occurred::Skipped { live: run });
    let status = hourly.status().await.unwrap();
    assert_eq!(status.next_at, Some(clock.now() + HOUR));
    let nobody = onward.schedule("another").trigger().await.unwrap_err();
    assert_eq!(nobody.code(), Code::ScheduleNotFound);
}

#[tokio::test]
async fn a_backfill_starts_what_is_missing_and_nothing_twice() {
    let (clock, onward) = memory();
    let worker = only_fire(&onward).await;
    let often = onward.schedule("often");
    let setup = often.clone().every(MINUTE).overlap(Overlap::Allow);
    setup.start(REPORT, &input()).await.unwrap();
    clock.advance(MINUTE);
    until_fired(&onward, "often").await;
    worker.shutdown().await.unwrap();
    let before = clock.now();
    let count = START_BATCH_MAX as u32 + 7;
    clock.advance(MINUTE * count);
    let filled = often.backfill(before, clock.now()).await.unwrap();
    assert_eq!((filled.started, filled.existing), (u64::from(count) - 1, 1));
    let again = often.backfill(before, clock.now()).await.unwrap();
    assert_eq!((again.started, again.existing), (0, u64::from(count)));
    let error = often.backfill(before, clock.now() + HOUR).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidOption);
    // What was filled is not fired again.
    let worker = only_fire(&onward).await;
    until_fired(&onward, "often").await;
    let found = runs(&onward, "often").await.len();
    assert_eq!(found, count as usize + 1, "and the last minute, which is not before itself");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let (_clock, onward) = memory();
    let hourly = || onward.schedule("s").every(HOUR);
    let mut tagged = hourly();
    for tag in 0..TAGS_MAX {
        tagged = tagged.tag(format!("t{tag}"), "x");
    }
    let refused = [
        (onward.schedule("s").cron("0 3 * *"), Code::InvalidSchedule),
        (onward.schedule("s").cron("0 0 30 2 *"), Code::InvalidSchedule),
        (onward.schedule("s").cron("0 3 * * *").time_zone("Mars/Base"), Code::InvalidSchedule),
        (onward.schedule("s").every(Duration::from_millis(10)), Code::InvalidSchedule),
        (onward.schedule("").every(HOUR), Code::InvalidName),
        (hourly().queue(""), Code::InvalidName),
        (hourly().time_zone("UTC"), Code::InvalidOption),
        (
            onward.schedule("s").cron("0 3 * * *").anchor(Timestamp::from_millis(0)),
            Code::InvalidOption,
        ),
        (hourly().tag("schedule", "x"), Code::InvalidOption),
        (tagged, Code::InvalidOption),
        (hourly().catch_up(CatchUp::All { max: 0 }), Code::InvalidOption),
        (hourly().catch_up(CatchUp::All { max: SCHEDULE_CATCH_UP_MAX + 1 }), Code::InvalidOption),
    ];
    for (setup, code) in refused {
        let text = format!("{setup:?}");
        assert_eq!(setup.start(REPORT, &input()).await.unwrap_err().code(), code, "{text}");
    }
    assert!(onward.schedules(None).await.unwrap().schedules.is_empty());
    assert_eq!(onward.schedule("s").status().await.unwrap_err().code(), Code::ScheduleNotFound);
    assert_eq!(onward.schedule("s").pause().await.unwrap_err().code(), Code::ScheduleNotFound);
    assert!(!onward.schedule("s").remove().await.unwrap());
}
