//! Writes that are repeated while their first try is still under way: its answer is lost, and its
//! commit is not done yet. What waits for a stranger's lock ends before its caller gives it up.

use onward::store::*;
use onward::{RunState, Waits, WorkerId};
use tokio_postgres::Client;

use super::stage::*;

/// Fails where a claim looks by its ticket before the first try is committed, and finds nothing: the
/// runs of the first try are held by a worker that never hears of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_claim_finds_what_its_first_try_is_about_to_take() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let run = started(&store).await;
    let raw = held_inputs(&stage).await;
    let first = store.claim(claim_of(worker, 7));
    stage.waiting(1).await;
    let repeat = store.claim(claim_of(worker, 7));
    stage.waiting(2).await;
    let_go(&raw).await;
    for claims in [soon(first).await.unwrap(), soon(repeat).await.unwrap()] {
        let taken: Vec<_> = claims.runs.iter().map(|claimed| claimed.lease.run).collect();
        assert_eq!(taken, [run]);
    }
}

/// Fails where a claim that is asked for again leaves its ticket open: the first try, which a network
/// may deliver minutes later, would take runs for a worker that never hears of them.
#[tokio::test]
async fn a_claim_that_comes_after_its_repeat_takes_nothing() {
    let stage = Stage::new();
    let (store, late) = (stage.open().await, stage.open().await);
    let worker = joined(&store).await;
    for _ in 0..2 {
        assert!(store.claim(claim_of(worker, 1)).await.unwrap().runs.is_empty());
    }
    let run = started(&store).await;
    // Another store knows nothing of the repeat, as the statement of the first try does not.
    assert!(late.claim(claim_of(worker, 1)).await.unwrap().runs.is_empty());
    assert_eq!(claimed(&store, worker, 2).await.run, run);
}

/// Fails where a closed ticket hides what its first try took.
#[tokio::test]
async fn a_repeated_claim_finds_what_was_taken_and_takes_no_more() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let run = started(&store).await;
    let first = claimed(&store, worker, 1).await;
    let next = started(&store).await;
    let again = store.claim(claim_of(worker, 1)).await.unwrap();
    let leases: Vec<_> = again.runs.iter().map(|claimed| claimed.lease).collect();
    assert_eq!((first.run, leases), (run, vec![first]));
    assert!(again.more, "there is more, for the next ticket");
    assert_eq!(claimed(&store, worker, 2).await.run, next);
}

/// Fails where a claim gives a signal that came after it had read the run: the run hears of it again,
/// as of one that is new, and its second record clashes with the first.
#[tokio::test]
async fn a_signal_that_comes_while_its_run_is_claimed_arrives_once() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let run = started(&store).await;
    let raw = stage.raw().await;
    let send = format!("select signal({}, 'letter')", literal(run));
    raw.batch_execute(&format!("{send}; {send}")).await.unwrap();
    // As the claim reads the run when the second comes after that, and before the signals are read.
    raw.batch_execute("update runs set signals = 1").await.unwrap();
    let claimed = store.claim(claim_of(worker, 1)).await.unwrap().runs.remove(0);
    raw.batch_execute("update runs set signals = 2").await.unwrap();
    let known: Vec<_> = claimed.signals.iter().map(|signal| signal.no).collect();
    assert_eq!((claimed.run.signals, known), (1, vec![1]));
    let heard = store.inbox(run, claimed.run.signals).await.unwrap().signals;
    assert_eq!(heard.iter().map(|signal| signal.no).collect::<Vec<_>>(), [2]);
}

/// Holds the inputs in an open transaction: a claim reads them after it has chosen, and before it takes.
async fn held_inputs(stage: &Stage) -> Client {
    let raw = stage.raw().await;
    raw.batch_execute("begin; lock table inputs in access exclusive mode").await.unwrap();
    raw
}

/// Fails where a settle looks at the lease once: what it waited for may have made the run another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_settle_leaves_the_next_holder_alone() {
    let waits_for = Waits::Timer { step: "sleep".to_owned() };
    let parked = || End::Parked { wake_at: None, waits_for: waits_for.clone(), wakes_seen: 0 };
    for end in [parked(), End::Released, End::Completed(json("1"))] {
        let stage = Stage::new();
        let store = stage.open().await;
        let (worker, next) = (joined(&store).await, joined(&store).await);
        started(&store).await;
        let lease = claimed(&store, worker, 1).await;
        // What the first try left, and a claim after it, under way as one.
        let raw = stage.raw().await;
        let taken = format!(
            "begin; update runs set attempt = 2, worker = {} where id = {}",
            worker_literal(next),
            literal(lease.run)
        );
        raw.batch_execute(&taken).await.unwrap();
        let repeat = store.settle(lease, Settle::new(vec![], end));
        stage.waiting(1).await;
        raw.batch_execute("commit").await.unwrap();
        let answer = soon(repeat).await.unwrap_err();
        assert!(matches!(answer, Error::LeaseLost), "{answer}");
        let run = store.get(Which::Id(lease.run)).await.unwrap().unwrap();
        assert_eq!((run.state, run.worker, run.attempt), (RunState::Running, Some(next), 2));
    }
}

fn worker_literal(worker: WorkerId) -> String {
    format!("'{:032x}'::uuid", worker.as_u128())
}

/// Fails where a sweep looks for children of cancelled runs in one statement and forgets these runs
/// in the next: one that was cancelled in between is forgotten with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_is_cancelled_during_a_sweep_is_not_forgotten() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let (childless, parent) = (started(&store).await, started(&store).await);
    let child = started(&store).await;
    let raw = stage.raw().await;
    let family = format!(
        "update runs set state = 'cancelled', finished_at = 1, due_at = null where id in ({0}, {1});
         update runs set cascades = true where id = {0};
         update runs set parent = {1}, parent_step = 'c' where id = {2}",
        literal(childless),
        literal(parent),
        literal(child)
    );
    raw.batch_execute(&family).await.unwrap();
    raw.batch_execute("begin; lock table runs in share mode").await.unwrap();
    let swept = store.sweep(sweep_of(worker));
    // It has looked for children, and is about to forget.
    stage.waiting(1).await;
    let cancelled =
        format!("update runs set cascades = true where id = {}; commit", literal(parent));
    raw.batch_execute(&cancelled).await.unwrap();
    soon(swept).await.unwrap();
    store.sweep(sweep_of(worker)).await.unwrap();
    let child = store.get(Which::Id(child)).await.unwrap().unwrap();
    assert_eq!(child.state, RunState::Cancelled);
}

/// Fails where a release reads whether the run has ended and does not lock it: a retry that is under way
/// lets the run go on, and its key would be free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_retried_meanwhile_keeps_its_key() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let run = start(&store, keyed_run("k")).await;
    let lease = claimed(&store, worker, 1).await;
    store.settle(lease, Settle::new(vec![], End::Cancelled)).await.unwrap();
    let raw = stage.raw().await;
    let retried = format!(
        "begin; update runs set state = 'queued', finished_at = null, due_at = 1 where id = {}",
        literal(run)
    );
    raw.batch_execute(&retried).await.unwrap();
    let released = store.deletes().unwrap().release_run_key(run);
    stage.waiting(1).await;
    raw.batch_execute("commit").await.unwrap();
    let answer = soon(released).await.unwrap_err();
    assert!(matches!(answer, Error::Conflict(Conflict::NotEnded { .. })), "{answer}");
    let key = Which::Key { workflow: WORKFLOW.to_owned(), key: "k".to_owned() };
    assert_eq!(store.get(key).await.unwrap().unwrap().id, run);
}

/// Fails where these wait without a limit of their own: each repeat would leave one more behind in the
/// server, which does later what nobody waits for any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_strangers_lock_says_so_before_it_is_given_up() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    let run = started(&store).await;
    started(&store).await;
    let inputs = held_inputs(&stage).await;
    let row = stage.raw().await;
    let lock = format!("begin; select 1 from runs where id = {} for update", literal(run));
    row.batch_execute(&lock).await.unwrap();
    let signal = NewSignal {
        run,
        name: "go".to_owned(),
        step: "go".to_owned(),
        key: "k".to_owned(),
        fingerprint: json("1").fingerprint(),
        body: json("1"),
    };
    let (claim, signal) = (store.claim(claim_of(worker, 1)), store.signal(signal));
    let told = [soon(claim).await.unwrap_err(), soon(signal).await.unwrap_err()];
    for error in told {
        assert!(matches!(error, Error::Unavailable(Outage::Locked, _)), "{error}");
    }
    stage.waiting(0).await;
    let_go(&inputs).await;
    let_go(&row).await;
}
