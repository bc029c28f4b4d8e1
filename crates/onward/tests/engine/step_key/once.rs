//! Work outside any workflow.

use futures::future::join_all;
use onward::limits::KEY_LEASE;

use super::*;

#[tokio::test]
async fn many_callers_at_once_do_the_work_once() {
    on_each_store(|onward: Onward| async move {
        let effects = Counter::default();
        let calls = (0..20).map(|_| {
            onward.once(KEY).run(async || {
                let number = count(&effects);
                tokio::time::sleep(Duration::from_millis(30)).await;
                Ok::<_, Failure>(number)
            })
        });
        let results = join_all(calls).await;
        assert!(results.iter().all(|result| *result.as_ref().unwrap() == 1), "{results:?}");
        assert_eq!(counted(&effects), 1);
        assert_eq!(onward.key_duplicates(KEY).await.unwrap().count, 19);
    })
    .await;
}

#[tokio::test]
async fn a_failure_frees_the_key_unless_it_is_kept() {
    on_each_store(|onward: Onward| async move {
        let fail = async || Err::<u32, _>(Failure::fatal("no").code("declined"));
        let error = onward.once(KEY).run(fail).await.unwrap_err();
        assert_eq!(error.code(), Code::KeyFailed);
        assert!(error.failure().unwrap().is("declined"));
        assert_eq!(onward.once(KEY).run(async || Ok::<_, Failure>(2)).await.unwrap(), 2);
        onward.once("other").keep_failure().run(fail).await.unwrap_err();
        let kept = onward.once("other").run(async || Ok::<_, Failure>(2)).await.unwrap_err();
        assert!(kept.failure().unwrap().is("declined"), "{kept}");
    })
    .await;
}

#[tokio::test]
async fn work_that_is_dropped_or_panics_frees_the_key() {
    let onward = Onward::open("memory:").await.unwrap();
    let hang = onward.once(KEY).run(async || std::future::pending::<Result<u32, Failure>>().await);
    assert!(tokio::time::timeout(Duration::from_millis(20), hang).await.is_err());
    assert_eq!(onward.once(KEY).run(async || Ok::<_, Failure>(2)).await.unwrap(), 2);
    let other = onward.clone();
    let panics = tokio::spawn(async move {
        let body = async || -> Result<u32, Failure> { panic!("on purpose") };
        other.once("other").run(body).await
    });
    assert!(panics.await.is_err());
    assert_eq!(onward.once("other").run(async || Ok::<_, Failure>(3)).await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dead_callers_key_is_free_after_its_lease() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let onward = Onward::with_store(store.clone());
    held_for(2_000, store.as_ref()).await;
    let waiting = onward.once(KEY).run(async || Ok::<_, Failure>(2));
    let time = async {
        for _ in 0..2_000 {
            clock.advance(Duration::from_millis(100));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        done = waiting => assert_eq!(done.unwrap(), 2),
        () = time => panic!("it still waits"),
    }
}

/// None of the callers waits for as long as a hold is left alone that has expired.
#[tokio::test(start_paused = true)]
async fn callers_who_give_up_soon_get_a_dead_callers_key() {
    let clock = TestClock::new();
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let onward = Onward::with_store(store.clone());
    held_for(2_000, store.as_ref()).await;
    clock.advance(Duration::from_secs(3));
    let caller = async || {
        let once = onward.once(KEY).run(async || Ok::<_, Failure>(2));
        tokio::time::timeout(Duration::from_secs(5), once).await
    };
    let (first, second, third) = (caller().await, caller().await, caller().await);
    assert!(first.is_err() && second.is_err(), "{first:?}, {second:?}");
    assert_eq!(third.expect("it is gone").unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_while_the_work_goes_on() {
    let store = Arc::new(MemoryStore::with_clock(Arc::new(Paused)));
    let onward = Onward::with_store(store.clone());
    let effects = Counter::default();
    let long = onward.once(KEY).run(async || {
        tokio::time::sleep(KEY_LEASE * 5).await;
        Ok::<_, Failure>(count(&effects))
    });
    let second = async {
        tokio::time::sleep(KEY_LEASE * 2).await;
        onward.once(KEY).run(async || Ok::<_, Failure>(count(&effects) + 100)).await
    };
    let (long, second) = tokio::join!(long, second);
    assert_eq!((long.unwrap(), second.unwrap(), counted(&effects)), (1, 1, 1));
}

/// The runtime's own time, which a test may pause.
#[derive(Debug)]
struct Paused;

impl onward::Clock for Paused {
    fn now(&self) -> onward::Timestamp {
        static BEGAN: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
        let began = *BEGAN.get_or_init(tokio::time::Instant::now);
        onward::Timestamp::from_millis(1_000_000) + began.elapsed()
    }

    fn sleep_until(&self, due: onward::Timestamp) -> onward::store::BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(due.since(self.now())))
    }
}

#[tokio::test]
async fn a_result_of_another_type_is_refused() {
    let onward = Onward::open("memory:").await.unwrap();
    onward.once(KEY).run(async || Ok::<_, Failure>("text".to_owned())).await.unwrap();
    let error = onward.once(KEY).run(async || Ok::<_, Failure>(7)).await.unwrap_err();
    assert_eq!(error.code(), Code::TypeMismatch);
}

#[tokio::test]
async fn once_and_a_step_share_a_key() {
    let onward = Onward::open("memory:").await.unwrap();
    let effects = Counter::default();
    let worker = serve(&onward, &effects).start().await.unwrap();
    let run = onward.start(WORK, &1).await.unwrap();
    let by_step = run.result().await.unwrap();
    let again = onward.once(KEY).run(async || Ok::<_, Failure>("again".to_owned())).await.unwrap();
    assert_eq!((by_step, counted(&effects)), (again, 1));
    worker.shutdown().await.unwrap();
}
