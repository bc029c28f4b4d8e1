//! The features of the language, two by two: for each pair a test that has both in play, or the reason why
//! nothing can go wrong between them.
//!
//! Owns: the table (`pairs/table.txt`), and the tests of pairs that belong to no feature alone. Never tests
//! a feature by itself.

mod continuation;
mod fork;
mod replace;
mod retry;
mod stop;
mod table;

use std::future::{Future, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::codec::{Encryption, KeyRing, SecretKey};
use onward::{Ctx, Failure, Onward, StepFuture, Worker, WorkerBuilder, Workflow};

use crate::database::Schema;

/// What was executed, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|found| *found == line).count()
    }

    async fn until(&self, line: &str) {
        self.until_lines(line, 1).await;
    }

    async fn until_lines(&self, line: &str, count: usize) {
        let waiting = async {
            while self.count(line) < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(waited.is_ok(), "{line:?} never came: {:?}", self.lines());
    }

    /// A step that notes that it executes and that it is undone.
    fn step<'a>(&self, ctx: &Ctx, name: &'a str) -> StepFuture<'a, ()> {
        let (doing, undoing, undone) = (self.clone(), self.clone(), format!("undo {name}"));
        let step = ctx.step(name, move |_| {
            doing.add(name);
            ready(Ok::<_, Failure>(()))
        });
        step.undo(move |(), _| {
            undoing.add(undone.as_str());
            ready(Ok::<_, Failure>(()))
        })
    }
}

/// The deadline is only there so that a fault does not hang the suite.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), what).await.expect("it comes to an end")
}

/// Plays a test on every store, through a codec.
async fn on_each_coded_store<F: Future<Output = ()>>(test: impl Fn(Onward) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema::lent();
    let sqlite = format!("sqlite:{}", folder.path().join("onward.db").display());
    for url in ["memory:".to_owned(), sqlite, schema.url()] {
        let ring = KeyRing::new("k1", &SecretKey::new([1; 32]), SecretKey::new([0; 32])).unwrap();
        test(Onward::open(&url).codec(Encryption::new(ring)).await.unwrap()).await;
    }
}

const MARKED: Workflow<(), ()> = Workflow::named("marked");

/// A worker that also serves what says when it has heard of marks.
async fn start(worker: WorkerBuilder, log: &Log) -> Worker {
    let of = log.clone();
    let worker = worker.serve(MARKED, move |ctx: Ctx, ()| {
        let log = of.clone();
        async move {
            let endless = ctx.step("endless", async |step| {
                log.add("marked begins");
                step.cancelled().await;
                log.add("marked ends");
                Ok::<_, Failure>(())
            });
            endless.await
        }
    });
    worker.start().await.unwrap()
}

/// Returns when the worker has heard of what was asked of its runs: a mark that came later has reached it.
async fn until_heard(onward: &Onward, log: &Log) {
    let before = log.count("marked begins");
    let later = onward.start(MARKED, &()).await.unwrap();
    log.until_lines("marked begins", before + 1).await;
    later.cancel().await.unwrap();
    log.until_lines("marked ends", before + 1).await;
}
