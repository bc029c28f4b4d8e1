//! Step keys on a real Redis: the conformance cases, and what only Redis does.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use onward::conformance::KeysHarness;
use onward::store::{
    KeyAnswer, KeyEnd, KeyHolder, KeyLease, Keys, RedisKeys, RedisOptions, SettleKey, TakeKey,
};
use onward::{Code, Ctx, Failure, Json, KeyState, Onward, RunId, TestClock, Workflow};
use tokio::sync::Notify;

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
    TakeKey {
        key: "k".to_owned(),
        holder,
        fingerprint: None,
        lease_ms,
        counted: None,
        seen_expired: None,
    }
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

/// A server of a test's own, which keeps nothing over its death.
struct Private {
    port: u16,
    process: Child,
}

impl Private {
    fn start() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        Self { port, process: Self::process(port) }
    }

    fn process(port: u16) -> Child {
        let arguments = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
        let start = |program| {
            Command::new(program)
                .args(arguments)
                .args(["--appendonly", "no"])
                .stdout(Stdio::null())
                .spawn()
        };
        let process = start("redis-server").or_else(|_| start("valkey-server"));
        let process =
            process.expect("install redis-server or valkey-server: this test restarts one");
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the server does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
        process
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills it, and starts it again where it was.
    fn restart(&mut self) {
        self.kill();
        self.process = Self::process(self.port);
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The hold on a free key, from a server that may have to be found again.
async fn held(keys: &RedisKeys, holder: &str) -> KeyLease {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match keys.take_key(wish(holder, 60_000)).await {
            Ok(KeyAnswer::Held(lease)) => return lease,
            Err(onward::store::Error::Unavailable(..)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_without_its_data_refuses_the_first_holder() {
    let mut server = Private::start();
    let keys = RedisKeys::open_with(&server.url(), options(None)).await.unwrap();
    let first = held(&keys, "a").await;
    server.restart();
    let second = held(&keys, "b").await;
    assert!(second.token > first.token, "what it protects can tell them apart");
    let done = SettleKey { end: KeyEnd::Done(Json::of(&1).unwrap()), ttl_ms: None };
    let late = keys.settle_key(first, done).await;
    assert!(matches!(late, Err(onward::store::Error::LeaseLost)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_outlives_a_restart_of_the_server_that_has_its_key() {
    let mut server = Private::start();
    let onward = Onward::open("memory:").keys(server.url()).await.unwrap();
    let (effects, began) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let go_on = Arc::new(Notify::new());
    let inside = (Arc::clone(&effects), Arc::clone(&began), Arc::clone(&go_on));
    let function = move |ctx: Ctx, n: u32| {
        let (effects, began, go_on) = inside.clone();
        async move {
            let body = async |_| {
                effects.fetch_add(1, Ordering::SeqCst);
                began.notify_one();
                go_on.notified().await;
                Ok::<_, Failure>(n)
            };
            ctx.step("work", body).key("restart").await
        }
    };
    let worker = onward.worker().serve(WORK, function).start().await.unwrap();
    let run = onward.start(WORK, &7).await.unwrap();
    began.notified().await;
    server.restart();
    go_on.notify_one();
    let ended = tokio::time::timeout(Duration::from_secs(60), run.result()).await;
    assert_eq!(ended.expect("it is not held up").unwrap(), 7);
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    assert_eq!(onward.step_key("restart").await.unwrap().unwrap().state, KeyState::Done);
    worker.shutdown().await.unwrap();
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
