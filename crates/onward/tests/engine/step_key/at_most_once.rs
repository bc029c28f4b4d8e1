//! Steps with a key that must not execute twice: whoever is dropped, dies or is cancelled in them.

use std::future::pending;

use super::*;

/// Serves a step whose body is without end for an input of 0.
fn serve_fax(process: &Process, effects: &Counter) -> onward::WorkerBuilder {
    let effects = Arc::clone(effects);
    let worker = process.onward.worker().cancel_grace(Duration::from_millis(10));
    worker.serve(WORK, move |ctx: Ctx, n: u32| {
        let effects = Arc::clone(&effects);
        async move {
            let body = async |_| {
                count(&effects);
                match n {
                    0 => pending().await,
                    _ => Ok::<_, Failure>(n.to_string()),
                }
            };
            ctx.step("fax", body).key(KEY).at_most_once().await
        }
    })
}

/// A run that was killed inside the body.
async fn killed_inside(data: &Arc<dyn onward::store::Store>, effects: &Counter) -> onward::RunId {
    let first = Process::on(data);
    let worker = serve_fax(&first, effects).start().await.unwrap();
    let run = first.onward.start(WORK, &0).await.unwrap();
    until("it began", async || counted(effects) == 1).await;
    first.kill(worker).await;
    run.id()
}

/// Another run with the key is told that nobody knows.
async fn nobody_knows(process: &Process, effects: &Counter) {
    let other = process.onward.start(WORK, &2).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), other.result()).await;
    let error = told.unwrap().unwrap_err();
    assert!(error.failure().unwrap().is("interrupted"), "{error}");
    assert_eq!(counted(effects), 1, "it is not executed again");
}

#[tokio::test]
async fn an_interrupted_step_leaves_its_key_to_nobody() {
    let (data, effects) = (data(), Counter::default());
    let id = killed_inside(&data, &effects).await;
    let second = Process::on(&data);
    let worker = serve_fax(&second, &effects).start().await.unwrap();
    let error = second.onward.run(id).of_type::<String>().result().await.unwrap_err();
    assert!(error.failure().unwrap().is("interrupted"), "{error}");
    nobody_knows(&second, &effects).await;
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_cancel_inside_the_body_leaves_its_key_to_nobody() {
    let (data, effects) = (data(), Counter::default());
    let process = Process::on(&data);
    let worker = serve_fax(&process, &effects).start().await.unwrap();
    let run = process.onward.start(WORK, &0).await.unwrap();
    until("it began", async || counted(&effects) == 1).await;
    run.cancel().await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    nobody_knows(&process, &effects).await;
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_is_cancelled_after_its_process_died_leaves_its_key_to_nobody() {
    let (data, effects) = (data(), Counter::default());
    let id = killed_inside(&data, &effects).await;
    let second = Process::on(&data);
    let run = second.onward.run(id);
    run.cancel().await.unwrap();
    let worker = serve_fax(&second, &effects).start().await.unwrap();
    assert_eq!(run.ended().await.unwrap().state, RunState::Cancelled);
    let once = second.onward.once(KEY).run(async || Ok::<_, Failure>("sent".to_owned()));
    let told = tokio::time::timeout(Duration::from_secs(20), once).await;
    let error = told.unwrap().unwrap_err();
    assert!(error.failure().unwrap().is("interrupted"), "{error}");
    nobody_knows(&second, &effects).await;
    worker.shutdown().await.unwrap();
}

/// A program that shares the keys does not know the runs of the other, and leaves their holds alone.
#[tokio::test]
async fn a_hold_of_another_programs_run_is_waited_for() {
    let keys = Arc::new(MemoryStore::new());
    let (effects, go_on) = (Counter::default(), Arc::new(Notify::new()));
    let mut programs = Vec::new();
    for n in 0..2 {
        let onward = Onward::open("memory:").await.unwrap().with_keys(keys.clone());
        let inside = (Arc::clone(&effects), Arc::clone(&go_on));
        let worker = onward.worker().serve(WORK, move |ctx: Ctx, _| {
            let (effects, go_on) = inside.clone();
            async move {
                let body = async |_| {
                    count(&effects);
                    go_on.notified().await;
                    Ok::<_, Failure>("sent".to_owned())
                };
                ctx.step("fax", body).key(KEY).at_most_once().await
            }
        });
        let worker = worker.linger(Duration::ZERO).start().await.unwrap();
        let run = onward.start(WORK, &n).await.unwrap();
        until("one is at work", async || counted(&effects) == 1).await;
        programs.push((run, worker));
    }
    in_state(&programs[1].0, RunState::Waiting).await;
    go_on.notify_one();
    for (run, worker) in programs {
        let told = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
        assert_eq!(told.unwrap().unwrap(), "sent");
        worker.shutdown().await.unwrap();
    }
    assert_eq!(counted(&effects), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_body_keeps_its_key_for_as_long_as_it_was_taken_for() {
    let (data, effects) = (data(), Counter::default());
    let process = Process::on(&data);
    let worker = serve_fax(&process, &effects).start().await.unwrap();
    process.onward.start(WORK, &0).await.unwrap();
    until("it began", async || counted(&effects) == 1).await;
    // Its hold is renewed meanwhile.
    tokio::time::sleep(onward::limits::KEY_LEASE).await;
    let key = data.keys().unwrap().step_key(KEY.to_owned()).await.unwrap().unwrap();
    let left = key.until.unwrap().since(data.clock().now());
    assert!(left > Duration::from_secs(365 * 24 * 3_600), "{left:?}");
    process.kill(worker).await;
}

/// Serves a step with three tries whose body is in vain, in this way.
fn serve_in_vain(onward: &Onward, effects: &Counter, how: &'static str) -> onward::WorkerBuilder {
    let effects = Arc::clone(effects);
    onward.worker().serve(WORK, move |ctx: Ctx, keyed: u32| {
        let effects = Arc::clone(&effects);
        async move {
            let body = |_| {
                count(&effects);
                assert_ne!(how, "panics at once");
                async move {
                    match how {
                        "takes too long" => pending().await,
                        "panics" => panic!("on purpose"),
                        _ => Ok::<_, Failure>(f64::NAN),
                    }
                }
            };
            let fax = ctx.step("fax", body).timeout(Duration::from_millis(20)).at_most_once();
            let fax = fax.retry(Retry::fixed(Duration::ZERO).tries(3));
            let faxed = if keyed == 1 { fax.key(KEY).await } else { fax.await };
            faxed.map(|number| number.to_string())
        }
    })
}

/// What comes of two runs, with one key or with none.
async fn in_vain(onward: &Onward, how: &'static str, keyed: u32) -> ([String; 2], u32) {
    let effects = Counter::default();
    let worker = serve_in_vain(onward, &effects, how).start().await.unwrap();
    let mut codes = Vec::new();
    for _ in 0..2 {
        let error = onward.start(WORK, &keyed).await.unwrap().result().await.unwrap_err();
        codes.push(error.failure().unwrap().code.clone());
    }
    worker.shutdown().await.unwrap();
    (codes.try_into().unwrap(), counted(&effects))
}

#[tokio::test]
async fn a_body_that_does_not_return_is_interrupted() {
    on_each_store(|onward: Onward| async move {
        for how in ["takes too long", "panics", "panics at once"] {
            let both = ["interrupted"; 2].map(str::to_owned);
            assert_eq!(
                in_vain(&onward, how, 0).await,
                (both.clone(), 2),
                "it {how}, without a key"
            );
            assert_eq!(in_vain(&onward, how, 1).await, (both, 1), "it {how}, with a key");
            onward.release_key(KEY).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_result_that_cannot_be_recorded_leaves_the_key_to_nobody() {
    on_each_store(|onward: Onward| async move {
        let both = ["not_serializable"; 2].map(str::to_owned);
        assert_eq!(in_vain(&onward, "gives no number", 1).await, (both, 1));
    })
    .await;
}
