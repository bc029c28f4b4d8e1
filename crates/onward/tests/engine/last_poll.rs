//! The poll in which a function ends: what is handed over in it is neither lost nor done twice.

use std::future::{Future, IntoFuture, poll_fn, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use onward::conformance::{Held, LossyStore};
use onward::store::Store;
use onward::{
    Ctx, Entry, Failure, Filter, Onward, Query, Retry, Run, RunHandle, RunState, Step, Worker,
    Workflow,
};

use crate::stores::on_each_store;

const WORK: Workflow<(), u32> = Workflow::named("work");
const CHILD: Workflow<(), u32> = Workflow::named("child");

/// How a function ends in its last poll, and the state of its run then.
const ENDS: [(&str, RunState); 4] = [
    ("returns", RunState::Completed),
    ("fails", RunState::Failed),
    ("panics", RunState::Failed),
    ("is cancelled", RunState::Cancelled),
];

/// What happens, in order, and how the function is to end.
#[derive(Clone)]
struct Site {
    how: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
    /// Whether the function is called again, after a retry: then it waits for its step.
    again: Arc<AtomicBool>,
}

impl Site {
    fn new(how: &'static str) -> Self {
        Self { how, lines: Arc::default(), again: Arc::default() }
    }

    fn add(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits for so many lines.
    async fn until(&self, lines: usize) {
        let written = async {
            while self.lines().len() < lines {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        soon(written).await;
    }

    fn end(&self) -> Result<u32, Failure> {
        match self.how {
            "fails" => Err(Failure::fatal("no")),
            "panics" => panic!("on purpose"),
            _ => Ok(0),
        }
    }

    /// What a body does before it ends: where the run is to be cancelled, it waits for that.
    async fn body(&self, step: &Step) {
        self.add(format!("try {}", step.try_number()));
        if self.how == "is cancelled" {
            step.cancelled().await;
        }
    }

    async fn serve<Fut>(&self, onward: &Onward, function: fn(Site, Ctx) -> Fut) -> Worker
    where
        Fut: Future<Output = Result<u32, Failure>> + Send + 'static,
    {
        let of = self.clone();
        let worker = onward.worker().serve(CHILD, async |ctx: Ctx, ()| {
            ctx.step("once", async |_| Ok::<_, Failure>(7)).await
        });
        let worker = worker.serve(WORK, move |ctx: Ctx, ()| function(of.clone(), ctx));
        worker.cancel_grace(Duration::from_secs(600)).start().await.unwrap()
    }

    /// Starts a run, has it end as it is to end, and gives it.
    async fn play(&self, onward: &Onward, state: RunState) -> RunHandle<u32> {
        let run = onward.start(WORK, &()).await.unwrap();
        if self.how == "is cancelled" {
            self.until(1).await;
            run.cancel().await.unwrap();
        }
        assert_eq!(soon(run.ended()).await.unwrap().state, state, "it {}", self.how);
        run
    }
}

/// The deadline is only there so that a fault does not hang the suite.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it comes to an end")
}

/// Plays each way to end on each store.
async fn each_end<Fut: Future<Output = ()>>(test: impl Fn(Onward, Site, RunState) -> Fut) {
    let test = &test;
    on_each_store(async |onward| {
        for (how, state) in ENDS {
            test(onward.clone(), Site::new(how), state).await;
        }
    })
    .await;
}

/// Ready once the flag is set.
async fn over(flag: &AtomicBool) {
    poll_fn(|_| if flag.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }).await;
}

async fn buys(site: Site, ctx: Ctx) -> Result<u32, Failure> {
    let ended = AtomicBool::new(false);
    let body = async |step: Step| {
        site.body(&step).await;
        ended.store(true, Ordering::SeqCst);
        Ok::<_, Failure>(7)
    };
    let undoing = site.clone();
    let buy = ctx.step("buy", body).undo(move |number, _| {
        undoing.add(format!("undo {number}"));
        ready(Ok::<_, Failure>(()))
    });
    tokio::select! {
        biased;
        bought = buy => bought,
        () = over(&ended) => site.end(),
    }
}

#[tokio::test]
async fn a_step_that_ends_in_the_last_poll_is_undone_once() {
    each_end(async |onward, site, state| {
        let worker = site.serve(&onward, buys).await;
        let run = site.play(&onward, state).await;
        let history = run.history().await.unwrap();
        let steps: Vec<_> = history.iter().map(|record| record.step.as_str()).collect();
        if site.how == "returns" {
            assert_eq!((site.lines(), steps), (vec!["try 1".to_owned()], vec!["buy"]));
        } else {
            assert_eq!(site.lines(), ["try 1", "undo 7"], "it {}", site.how);
            assert_eq!(steps, ["buy", "$undo", "$undo/buy"], "it {}", site.how);
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

async fn tries(site: Site, ctx: Ctx) -> Result<u32, Failure> {
    let ended = AtomicBool::new(false);
    let body = async |step: Step| {
        site.body(&step).await;
        // After a retry the function waits for its step.
        ended.store(!site.again.load(Ordering::SeqCst), Ordering::SeqCst);
        Err::<u32, _>(Failure::new("busy").code("busy"))
    };
    let charge = ctx.step("charge", body).retry(Retry::fixed(Duration::from_millis(1)).tries(3));
    tokio::select! {
        biased;
        charged = charge => charged,
        () = over(&ended) => site.end(),
    }
}

/// Otherwise it would be a try that nobody counts.
#[tokio::test]
async fn a_try_that_fails_in_the_last_poll_is_counted() {
    each_end(async |onward, site, state| {
        let worker = site.serve(&onward, tries).await;
        let run = site.play(&onward, state).await;
        let history = run.history().await.unwrap();
        let is_try = |entry: &Entry| matches!(entry, Entry::TryFailed { .. });
        let tried: Vec<_> = history.iter().map(|record| is_try(&record.entry)).collect();
        assert_eq!(tried, [true], "it {}", site.how);
        if state == RunState::Failed {
            site.again.store(true, Ordering::SeqCst);
            run.retry().await.unwrap();
            let failure = soon(run.ended()).await.unwrap().failure.unwrap();
            assert!(failure.is("busy"), "{failure}");
            assert_eq!(site.lines(), ["try 1", "try 2", "try 3"], "it {}", site.how);
        } else {
            assert_eq!(site.lines(), ["try 1"], "it {}", site.how);
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// Starts a child, and ends in the poll in which that is handed over: its second one, for in the first
/// it only asks. Where the run is to be cancelled, that poll comes with the end of a body.
async fn parent(site: Site, ctx: Ctx) -> Result<u32, Failure> {
    let again = site.again.load(Ordering::SeqCst);
    let waits = AtomicBool::new(site.how == "is cancelled");
    let body = async |step: Step| {
        site.body(&step).await;
        waits.store(false, Ordering::SeqCst);
        Ok::<_, Failure>(7)
    };
    let wait = waits.load(Ordering::SeqCst).then(|| ctx.step("wait", body));
    let (mut wait, mut started) = (pin!(wait), pin!(ctx.start(CHILD, &()).into_future()));
    let mut polls = 0;
    let handed_over = poll_fn(|cx| {
        if let Some(wait) = wait.as_mut().as_pin_mut() {
            let _ = wait.poll(cx);
        }
        if polls == 1 && waits.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        polls += 1;
        match started.as_mut().poll(cx) {
            Poll::Ready(child) => Poll::Ready(Some(child)),
            Poll::Pending if polls == 2 && !again => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    match handed_over.await {
        Some(child) => child?.result().await,
        None => site.end(),
    }
}

async fn children(onward: &Onward, parent: &RunHandle<u32>) -> Vec<Run> {
    let filter = Filter { parent: Some(parent.id()), ..Filter::default() };
    onward.list(Query { filter, ..Query::default() }).await.unwrap().runs
}

/// Nobody would have asked for its end. A run that is retried starts it after all, and once.
#[tokio::test]
async fn a_child_that_is_handed_over_in_the_last_poll_is_not_started() {
    each_end(async |onward, site, state| {
        let worker = site.serve(&onward, parent).await;
        let run = site.play(&onward, state).await;
        assert!(children(&onward, &run).await.is_empty(), "it {}", site.how);
        if state == RunState::Failed {
            site.again.store(true, Ordering::SeqCst);
            run.retry().await.unwrap();
            assert_eq!(soon(run.result()).await.unwrap(), 7, "it {}", site.how);
            let found = children(&onward, &run).await;
            let states: Vec<_> = found.iter().map(|child| (child.state, child.attempt)).collect();
            assert_eq!(states, [(RunState::Completed, 1)], "it {}", site.how);
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}

async fn reserving_parent(site: Site, ctx: Ctx) -> Result<u32, Failure> {
    let undoing = site.clone();
    let reserve = ctx.step("reserve", async |_| Ok::<_, Failure>(1)).undo(move |number, _| {
        undoing.add(format!("undo {number}"));
        ready(Ok::<_, Failure>(()))
    });
    reserve.await?;
    parent(site, ctx).await
}

/// The run goes on with its undos, and what its function handed over is not part of them.
#[tokio::test]
async fn a_child_that_is_handed_over_before_the_undos_is_not_started() {
    each_end(async |onward, site, state| {
        let worker = site.serve(&onward, reserving_parent).await;
        let run = site.play(&onward, state).await;
        assert!(children(&onward, &run).await.is_empty(), "it {}", site.how);
        let undone = site.lines().contains(&"undo 1".to_owned());
        assert_eq!(undone, site.how != "returns", "it {}", site.how);
        worker.shutdown().await.unwrap();
    })
    .await;
}

/// A body that never ends, and says when it is dropped.
struct Dropped(Site);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add("dropped");
    }
}

/// The function is dropped while the record of its step is on its way.
#[tokio::test]
async fn a_step_whose_record_is_on_its_way_as_its_run_ends_is_undone_once() {
    on_each_store(async |onward| {
        let store = Arc::new(LossyStore::around(Arc::clone(onward.store())));
        let client = Onward::with_store(Arc::clone(&store) as Arc<dyn Store>);
        let (site, witness) = (Site::new("returns"), Site::new("is cancelled"));
        let of = (site.clone(), witness.clone());
        let worker = client.worker().serve(WORK, move |ctx: Ctx, ()| {
            let site = of.0.clone();
            async move {
                buys(site, ctx.clone()).await?;
                ctx.signal::<u32>("never").await
            }
        });
        let worker = worker.serve(CHILD, move |ctx: Ctx, ()| {
            let witness = of.1.clone();
            async move {
                let body = async |_| {
                    let _dropped = Dropped(witness.clone());
                    witness.add("begun");
                    std::future::pending::<Result<u32, Failure>>().await
                };
                ctx.step("witness", body).await
            }
        });
        let worker = worker.cancel_grace(Duration::ZERO).start().await.unwrap();
        let other = client.start(CHILD, &()).await.unwrap();
        witness.until(1).await;
        store.hold(Held::Records);
        let run = client.start(WORK, &()).await.unwrap();
        site.until(1).await;
        // Who is cancelled later hears of it no sooner.
        run.cancel().await.unwrap();
        other.cancel().await.unwrap();
        witness.until(2).await;
        assert_eq!(store.asked(Held::Records), 1);
        store.let_go(Held::Records);
        assert_eq!(soon(run.ended()).await.unwrap().state, RunState::Cancelled);
        assert_eq!(site.lines(), ["try 1", "undo 7"]);
        worker.shutdown().await.unwrap();
    })
    .await;
}

async fn notes(site: Site, ctx: Ctx) -> Result<u32, Failure> {
    ctx.log("begins");
    let ended = AtomicBool::new(false);
    let body = async |step: Step| {
        site.body(&step).await;
        step.log("the body ends");
        ended.store(true, Ordering::SeqCst);
        Ok::<_, Failure>(7)
    };
    tokio::select! {
        biased;
        noted = ctx.step("note", body) => noted,
        () = over(&ended) => {
            ctx.log("the function ends");
            ctx.progress(1, 1);
            site.end()
        }
    }
}

#[tokio::test]
async fn what_is_noted_in_the_last_poll_is_kept_once() {
    each_end(async |onward, site, state| {
        let worker = site.serve(&onward, notes).await;
        let run = site.play(&onward, state).await;
        let log = async || -> Vec<_> {
            run.log().await.unwrap().into_iter().map(|line| line.text).collect()
        };
        let all = ["begins", "the body ends", "the function ends"];
        assert_eq!(log().await, all, "it {}", site.how);
        assert!(run.status().await.unwrap().progress().is_some(), "it {}", site.how);
        if state == RunState::Failed {
            // What the body did is recorded, so neither it nor its note comes again.
            run.retry().await.unwrap();
            assert_eq!(soon(run.result()).await.unwrap(), 7);
            assert_eq!(log().await, all, "it {}", site.how);
            assert_eq!(site.lines(), ["try 1"], "it {}", site.how);
        }
        worker.shutdown().await.unwrap();
    })
    .await;
}
