//! Step keys on a real Redis: the conformance cases, and what only Redis does.
#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::conformance::KeysHarness;
use onward::store::{
    KeyAnswer, KeyEnd, KeyHolder, Keys, RedisKeys, RedisOptions, SettleKey, TakeKey,
};
use onward::{Code, Ctx, Failure, Json, Onward, RunId, TestClock, Workflow};

/// The URL of the tests' server.
fn url() -> String {
    match std::env::var("ONWARD_TEST_REDIS") {
        Ok(url) => url,
        Err(_) => panic!(
            "ONWARD_TEST_REDIS is not set: run ./scripts/test, or scripts/redis cargo test …"
        ),
    }
}

/// A prefix that no other test has, with signs that mean something in a pattern.
fn options(clock: Option<TestClock>) -> RedisOptions {
    let prefix = format!("test[*]:{:032x}:", RunId::new().as_u128());
    RedisOptions { prefix, clock: clock.map(|clock| Arc::new(clock) as _) }
}

async fn open(options: &RedisOptions) -> Arc<RedisKeys> {
    Arc::new(RedisKeys::open_with(&url(), options.clone()).await.unwrap())
}

/// Two handles with one prefix, as two processes have them.
struct Redis {
    keys: Arc<RedisKeys>,
    other: Arc<RedisKeys>,
}

impl KeysHarness for Redis {
    async fn open(clock: TestClock) -> Self {
        let options = options(Some(clock));
        Redis { keys: open(&options).await, other: open(&options).await }
    }

    fn keys(&self) -> Arc<dyn Keys> {
        self.keys.clone()
    }

    fn other(&self) -> Arc<dyn Keys> {
        self.other.clone()
    }
}

onward::key_conformance_suite!(Redis);

/// The same with results that are encrypted.
#[cfg(feature = "encryption")]
mod coded {
    use onward::codec::{Coding, Encryption, KeyRing, SecretKey};
    use onward::store::CodedKeys;

    use super::*;

    fn coding() -> Coding {
        let secret = |byte| SecretKey::new([byte; 32]);
        let ring = KeyRing::new("k1", &secret(1), secret(2)).unwrap();
        Coding::new().and(Arc::new(Encryption::new(ring)))
    }

    struct Coded(Redis);

    impl KeysHarness for Coded {
        async fn open(clock: TestClock) -> Self {
            Self(Redis::open(clock).await)
        }

        fn keys(&self) -> Arc<dyn Keys> {
            Arc::new(CodedKeys::around(self.0.keys(), coding()))
        }

        fn other(&self) -> Arc<dyn Keys> {
            Arc::new(CodedKeys::around(self.0.other(), coding()))
        }
    }

    onward::key_conformance_suite!(Coded);
}

fn wish(holder: &str, lease_ms: i64) -> TakeKey {
    let holder = KeyHolder { id: holder.to_owned(), attempt: 1, caller: "test".to_owned() };
    TakeKey { key: "k".to_owned(), holder, fingerprint: None, lease_ms, counted: None }
}

async fn server() -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

#[tokio::test]
async fn times_are_the_servers_and_it_forgets_by_itself() {
    let options = options(None);
    let keys = open(&options).await;
    let KeyAnswer::Held(lease) = keys.take_key(wish("a", 60_000)).await.unwrap() else {
        panic!("the key is free")
    };
    let done = SettleKey { end: KeyEnd::Done(Json::of(&7).unwrap()), ttl_ms: Some(150) };
    keys.settle_key(lease, done).await.unwrap();
    let answer = keys.take_key(wish("b", 60_000)).await.unwrap();
    assert_eq!(answer, KeyAnswer::Done(Json::of(&7).unwrap()));
    tokio::time::sleep(Duration::from_millis(400)).await;
    let mut server = server().await;
    let name = format!("{}k", options.prefix);
    let there: bool = redis::cmd("EXISTS").arg(&name).query_async(&mut server).await.unwrap();
    assert!(!there, "the server forgets a key whose time is over");
    assert!(matches!(keys.take_key(wish("b", 60_000)).await.unwrap(), KeyAnswer::Held(_)));
}

#[tokio::test]
async fn a_server_that_forgot_gives_a_higher_token_and_refuses_the_first() {
    let options = options(None);
    let keys = open(&options).await;
    let KeyAnswer::Held(first) = keys.take_key(wish("a", 60_000)).await.unwrap() else {
        panic!("the key is free")
    };
    let name = format!("{}k", options.prefix);
    let mut server = server().await;
    let _: i64 = redis::cmd("DEL").arg(&name).query_async(&mut server).await.unwrap();
    let KeyAnswer::Held(second) = keys.take_key(wish("b", 60_000)).await.unwrap() else {
        panic!("a forgotten key is free")
    };
    assert!(second.token > first.token);
    let done = SettleKey { end: KeyEnd::Done(Json::of(&1).unwrap()), ttl_ms: None };
    let late = keys.settle_key(first, done).await;
    assert!(matches!(late, Err(onward::store::Error::LeaseLost)), "{late:?}");
}

const WORK: Workflow<u32, u32> = Workflow::named("work");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_with_stores_of_their_own_share_keys_in_redis() {
    let key = format!("shared-{}", RunId::new());
    let effects = Arc::new(AtomicU32::new(0));
    let mut workers = Vec::new();
    let mut runs = Vec::new();
    for n in 0..4 {
        let onward = Onward::open("memory:").keys(url()).await.unwrap();
        let (effects, key) = (Arc::clone(&effects), key.clone());
        let function = move |ctx: Ctx, _| {
            let (effects, key) = (Arc::clone(&effects), key.clone());
            async move {
                let body = async |_| {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    Ok::<_, Failure>(effects.fetch_add(1, Ordering::SeqCst) + 1)
                };
                ctx.step("send", body).key(key).ttl(Duration::from_secs(60)).await
            }
        };
        workers.push(onward.worker().serve(WORK, function).start().await.unwrap());
        runs.push(onward.start(WORK, &n).await.unwrap());
    }
    for run in &runs {
        assert_eq!(run.result().await.unwrap(), 1);
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    let onward = Onward::open("memory:").keys(url()).await.unwrap();
    assert_eq!(onward.key_duplicates(key.as_str()).await.unwrap().count, 3);
    let once = onward.once(key.as_str()).run(async || Ok::<_, Failure>(9)).await.unwrap();
    assert_eq!(once, 1);
    assert!(onward.release_key(key.as_str()).await.unwrap());
    for worker in workers {
        worker.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_says_so() {
    let error = Onward::open("memory:").keys("redis://127.0.0.1:1").await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable);
    let error = Onward::open("memory:").keys("redis://[bad").await.unwrap_err();
    assert_eq!(error.code(), Code::UnknownStoreUrl);
}
