//! A worker without the key: no run is failed or lost, and each goes on when the key is back.

use onward::limits::UNREADABLE_LOOK_MAX;
use onward::store::MemoryStore;
use onward::{Code, RunState, TestClock, Undoing, Waits, Why};

use super::*;

fn data() -> (Arc<dyn Store>, TestClock) {
    let clock = TestClock::new();
    (Arc::new(MemoryStore::with_clock(Arc::new(clock.clone()))), clock)
}

async fn waits_readably(onward: &Onward, run: onward::RunId) -> String {
    let mut detail = String::new();
    until("the run waits for a key", async || {
        match onward.run(run).status().await.unwrap().waits_for {
            Some(Waits::Readable { detail: found }) => detail = found,
            _ => return false,
        }
        true
    })
    .await;
    detail
}

/// Lets the time pass after which an unreadable run is looked at again, until it has ended.
async fn ended(onward: &Onward, run: onward::RunId, clock: &TestClock) -> onward::Run {
    until("the run ends", async || {
        clock.advance(UNREADABLE_LOOK_MAX);
        tokio::time::sleep(Duration::from_millis(20)).await;
        onward.run(run).status().await.unwrap().state.is_final()
    })
    .await;
    onward.run(run).status().await.unwrap()
}

#[tokio::test]
async fn a_worker_without_the_key_leaves_a_run_that_goes_on_with_it() {
    let (store, clock) = data();
    let run = client(&store, &[1]).start(ECHO, &"hello".to_owned()).await.unwrap().id();
    let without = client(&store, &[2]);
    let worker = without.worker().serve(ECHO, echo).start().await.unwrap();
    let detail = waits_readably(&without, run).await;
    assert!(detail.contains("key \"k1\", which is not in the key ring"), "{detail}");
    let why = without.run(run).why().await.unwrap();
    assert!(matches!(&why, Why::Until { what, .. } if what.contains("k1")), "{why}");
    worker.shutdown().await.unwrap();

    let with = client(&store, &[2, 1]);
    let worker = with.worker().serve(ECHO, echo).start().await.unwrap();
    let ended = ended(&with, run, &clock).await;
    assert_eq!((ended.state, ended.output.unwrap().as_str()), (RunState::Completed, "\"hello!\""));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_worker_without_any_codec_executes_nothing_of_an_encoded_run() {
    const ANY: Workflow<serde_json::Value, serde_json::Value> = Workflow::named("any");
    let (store, clock) = data();
    let input = serde_json::json!({ "secret": 7 });
    let run = client(&store, &[1]).start(ANY, &input).await.unwrap().id();
    // Its input would be read as a value, whatever it is.
    let without = Onward::with_store(Arc::clone(&store));
    let worker = without.worker().serve(ANY, async |_, input| Ok(input)).start().await.unwrap();
    let detail = waits_readably(&without, run).await;
    assert!(detail.contains("encrypted with key \"k1\", and no codec is set up"), "{detail}");
    worker.shutdown().await.unwrap();

    let with = client(&store, &[1]);
    let worker = with.worker().serve(ANY, async |_, input| Ok(input)).start().await.unwrap();
    let ended = ended(&with, run, &clock).await;
    assert_eq!(ended.output.unwrap().read::<serde_json::Value>().unwrap(), input);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_ends_a_run_that_nobody_can_read() {
    let (store, _clock) = data();
    let run = client(&store, &[1]).start(ECHO, &"hello".to_owned()).await.unwrap().id();
    let without = client(&store, &[2]);
    let worker = without.worker().serve(ECHO, echo).start().await.unwrap();
    waits_readably(&without, run).await;
    without.run(run).cancel().await.unwrap();
    let ended = without.run(run).ended().await.unwrap();
    assert_eq!(ended.state, RunState::Cancelled);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_run_that_did_something_waits_for_who_can_undo_it() {
    const BOOK: Workflow<(), ()> = Workflow::named("book");
    async fn book(ctx: Ctx, (): ()) -> Result<(), Failure> {
        let seat = ctx.step("book", async |_| Ok::<_, Failure>(7)).undo(async |seat: u32, _| {
            assert_eq!(seat, 7);
            Ok::<_, Failure>(())
        });
        seat.await?;
        ctx.signal::<()>("never").await
    }
    let (store, clock) = data();
    let with = client(&store, &[1]);
    let worker = with.worker().serve(BOOK, book).linger(Duration::ZERO).start().await.unwrap();
    let run = with.start(BOOK, &()).await.unwrap().id();
    until("the run waits", async || {
        matches!(with.run(run).status().await.unwrap().waits_for, Some(Waits::Signal { .. }))
    })
    .await;
    worker.shutdown().await.unwrap();

    let without = client(&store, &[2]);
    without.run(run).cancel().await.unwrap();
    let worker = without.worker().serve(BOOK, book).start().await.unwrap();
    waits_readably(&without, run).await;
    worker.shutdown().await.unwrap();

    let worker = with.worker().serve(BOOK, book).start().await.unwrap();
    let ended = ended(&with, run, &clock).await;
    assert_eq!(ended.state, RunState::Cancelled);
    let history = with.run(run).history().await.unwrap();
    assert!(history.iter().any(|record| record.step == "$undo/book"), "{history:?}");
    worker.shutdown().await.unwrap();
}

/// Whoever looks without the key is told that the run turned back, and that the rest is not known.
#[tokio::test]
async fn a_run_that_turned_back_is_known_to_have_without_the_key() {
    const BOOK: Workflow<(), ()> = Workflow::named("book");
    async fn book(ctx: Ctx, (): ()) -> Result<(), Failure> {
        let seat = ctx.step("book", async |_| Ok::<_, Failure>(7));
        seat.undo(async |_: u32, _| Ok::<_, Failure>(())).await?;
        Err(Failure::fatal("no money"))
    }
    let (store, _clock) = data();
    let with = client(&store, &[1]);
    let worker = with.worker().serve(BOOK, book).start().await.unwrap();
    let run = with.start(BOOK, &()).await.unwrap();
    run.ended().await.unwrap();
    worker.shutdown().await.unwrap();

    let read = Undoing::of(&run.history().await.unwrap()).unwrap();
    assert_eq!((read.outcome, read.unreadable), (Some(RunState::Failed), false));
    let without = client(&store, &[2]).run(run.id()).history().await.unwrap();
    let guessed = Undoing::of(&without).expect("it turned back");
    assert_eq!((guessed.outcome, guessed.failure, guessed.unreadable), (None, None, true));
    assert_eq!((guessed.began_at, guessed.undone), (read.began_at, read.undone));
}

const TWO_KEYS: Workflow<String, String> = Workflow::named("two keys");

/// The signal of that workflow, as it is recorded.
const GO: &str = "$signal/go";

/// A run whose records before the signal were made with key 1, and those from it on with key 2.
async fn recorded_with_two_keys(store: &Arc<dyn Store>) -> onward::RunId {
    async fn two_keys(ctx: Ctx, text: String) -> Result<String, Failure> {
        let said = ctx.step("early", async |_| Ok::<_, Failure>(format!("{text}!"))).await?;
        ctx.signal::<()>("go").await?;
        ctx.step("late", async |_| Ok::<_, Failure>(format!("{said}?"))).await
    }
    let old = client(store, &[1]);
    let worker = old.worker().serve(TWO_KEYS, two_keys).linger(Duration::ZERO);
    let worker = worker.start().await.unwrap();
    let run = old.start(TWO_KEYS, &"hello".to_owned()).await.unwrap();
    until("the run waits", async || {
        matches!(run.status().await.unwrap().waits_for, Some(Waits::Signal { .. }))
    })
    .await;
    worker.shutdown().await.unwrap();
    run.signal("go", &()).await.unwrap();
    let both = client(store, &[2, 1]);
    let worker = both.worker().serve(TWO_KEYS, two_keys).start().await.unwrap();
    assert_eq!(both.run(run.id()).ended().await.unwrap().state, RunState::Completed);
    worker.shutdown().await.unwrap();
    run.id()
}

/// A fork opens what it takes along, and nothing else.
#[tokio::test]
async fn a_fork_does_without_records_that_cannot_be_read_after_its_step() {
    let (store, _clock) = data();
    let run = recorded_with_two_keys(&store).await;
    let old = client(&store, &[1]);
    let fork = old.run(run).fork(GO).await.unwrap();
    let history = fork.history().await.unwrap();
    let steps: Vec<_> = history.iter().map(|record| record.step.as_str()).collect();
    assert_eq!(steps, ["early"]);
    let early = old.run(run).history().await.unwrap().remove(0);
    assert_eq!(history[0].entry, early.entry, "and reads what it took");
    let unreadable = client(&store, &[2]).run(run).fork(GO).await.unwrap_err();
    assert_eq!(unreadable.code(), Code::PayloadUnreadable, "what it takes along must be read");
}

/// A fork whose answer was lost is found when it is made again, and nothing is opened for it.
#[tokio::test]
async fn a_fork_that_is_there_is_given_without_a_look_at_the_source() {
    let (store, _clock) = data();
    let run = recorded_with_two_keys(&store).await;
    let coded = |keys: &[u8]| CodedStore::around(Arc::clone(&store), coding(keys));
    let (id, step) = (onward::RunId::new(), GO.to_owned());
    let fork = onward::store::Fork { id, run, step, input: None, key: None, rewritten: None };
    coded(&[1]).steer().unwrap().fork(fork.clone()).await.unwrap();
    let again = coded(&[3]).steer().unwrap().fork(fork).await.unwrap();
    assert_eq!(again.id, id);
    let key = client(&store, &[1]).run(run).fork(GO).key("again").await.unwrap();
    let taken = client(&store, &[1]).run(run).fork(GO).key("again").await.unwrap_err();
    assert_eq!((taken.code(), taken.run()), (Code::KeyTaken, Some(key.id())));
}

#[tokio::test]
async fn a_deadline_ends_a_run_that_nobody_can_read() {
    let (store, clock) = data();
    let start = client(&store, &[1]).start(ECHO, &"hello".to_owned());
    let run = start.timeout(Duration::from_secs(60)).await.unwrap().id();
    let without = client(&store, &[2]);
    let worker = without.worker().serve(ECHO, echo).start().await.unwrap();
    waits_readably(&without, run).await;
    let ended = ended(&without, run, &clock).await;
    assert!(ended.failure.unwrap().is("deadline_exceeded"));
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_signal_that_cannot_be_read_holds_the_run_until_it_can() {
    const ASK: Workflow<(), String> = Workflow::named("ask");
    async fn ask(ctx: Ctx, (): ()) -> Result<String, Failure> {
        ctx.signal::<String>("answer").await
    }
    let (store, clock) = data();
    let old = client(&store, &[1]);
    let worker = old.worker().serve(ASK, ask).start().await.unwrap();
    let run = old.start(ASK, &()).await.unwrap().id();
    // Somebody has made a new key current before everybody knew it.
    client(&store, &[2, 1]).run(run).signal("answer", "forty-two").await.unwrap();
    // It lingers for a moment first.
    let passing = tokio::spawn({
        let clock = clock.clone();
        async move {
            loop {
                clock.advance(Duration::from_millis(100));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let detail = waits_readably(&old, run).await;
    passing.abort();
    assert!(detail.contains("the signal \"answer\"") && detail.contains("k2"), "{detail}");
    worker.shutdown().await.unwrap();

    let both = client(&store, &[2, 1]);
    let worker = both.worker().serve(ASK, ask).start().await.unwrap();
    let ended = ended(&both, run, &clock).await;
    assert_eq!(ended.output.unwrap().as_str(), "\"forty-two\"");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_key_result_that_cannot_be_read_holds_the_run_until_it_can() {
    const MAIL: Workflow<(), u32> = Workflow::named("mail");
    async fn mail(ctx: Ctx, (): ()) -> Result<u32, Failure> {
        ctx.step("mail", async |_| Ok::<_, Failure>(1)).key("mail-7").await
    }
    let (store, clock) = data();
    let new = client(&store, &[2, 1]);
    new.once("mail-7").run(async || Ok::<_, Failure>(7_u32)).await.unwrap();
    let old = client(&store, &[1]);
    let worker = old.worker().serve(MAIL, mail).start().await.unwrap();
    let run = old.start(MAIL, &()).await.unwrap().id();
    let detail = waits_readably(&old, run).await;
    assert!(detail.contains("the step key \"mail-7\""), "{detail}");
    let once = old.once("mail-7").run(async || Ok::<_, Failure>(8_u32)).await.unwrap_err();
    assert_eq!(once.code(), Code::PayloadUnreadable);
    worker.shutdown().await.unwrap();

    let worker = new.worker().serve(MAIL, mail).start().await.unwrap();
    let ended = ended(&new, run, &clock).await;
    assert_eq!(ended.output.unwrap().as_str(), "7");
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn who_looks_without_the_key_sees_the_rest() {
    let (store, _clock) = data();
    let with = client(&store, &[1]);
    let worker = with.worker().serve(ECHO, echo).start().await.unwrap();
    let run = with.start(ECHO, &"hello".to_owned()).await.unwrap();
    run.result().await.unwrap();
    worker.shutdown().await.unwrap();
    for without in [client(&store, &[2]), Onward::with_store(Arc::clone(&store))] {
        let run = without.by_key(ECHO, "none").await.err().map(|_| without.run(run.id())).unwrap();
        let shown = run.status().await.unwrap();
        assert_eq!((shown.state, shown.workflow.as_str()), (RunState::Completed, "echo"));
        let said = onward::codec::describe(&shown.input).unwrap();
        assert_eq!(said, "encrypted with key \"k1\"");
        assert_eq!(run.history().await.unwrap()[0].step, "say");
        let error = shown.output.unwrap().read::<String>().unwrap_err();
        assert_eq!(error.code(), Code::PayloadUnreadable);
        assert!(error.to_string().contains("\"k1\""), "{error}");
    }
}

#[tokio::test]
async fn a_schedule_that_cannot_be_read_is_not_fired_and_not_lost() {
    let (store, _clock) = data();
    let with = client(&store, &[1]);
    let setup = with.schedule("nightly").every(Duration::from_secs(3_600));
    setup.start(ECHO, &"hello".to_owned()).await.unwrap();
    let without = client(&store, &[2]);
    let refused = without.schedule("nightly").trigger().await.unwrap_err();
    assert_eq!(refused.code(), Code::PayloadUnreadable, "{refused}");
    let from = onward::Timestamp::from_millis(0);
    let before = without.store().clock().now();
    let refused = without.schedule("nightly").backfill(from, before).await.unwrap_err();
    assert_eq!(refused.code(), Code::PayloadUnreadable, "{refused}");
    assert!(with.schedule("nightly").trigger().await.unwrap().run().is_some());
}
