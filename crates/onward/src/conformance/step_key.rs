//! Step keys: one holder at a time, one result for everybody, and no word from a stale holder.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::stage::assert_lost;
use crate::limits::DUPLICATES_KEPT_MAX;
use crate::store::{
    KeyAnswer, KeyEnd, KeyHolder, KeyLease, KeyState, Keys, SettleKey, StepKey, TakeKey,
};
use crate::{Clock, Failure, Json, TestClock};

/// How long a hold lasts on the stage.
pub const HOLD_MS: i64 = 10_000;

/// Callers that take one key at the same moment, through two handles.
const CALLERS: usize = 50;

/// How a place of keys is opened for a case. The value lives as long as the case.
pub trait KeysHarness: Sized + Send + Sync + 'static {
    /// A fresh, empty place that takes its times from `clock`.
    fn open(clock: TestClock) -> impl Future<Output = Self> + Send;

    /// The keys.
    fn keys(&self) -> Arc<dyn Keys>;

    /// A second handle on the same keys, as another process would have it.
    fn other(&self) -> Arc<dyn Keys> {
        self.keys()
    }
}

/// A fresh place of keys and its clock.
pub struct KeyStage {
    /// The keys.
    pub keys: Arc<dyn Keys>,
    /// A second handle on them.
    pub other: Arc<dyn Keys>,
    /// Their clock.
    pub clock: TestClock,
    _harness: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for KeyStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyStage").field("keys", &self.keys).finish()
    }
}

impl KeyStage {
    /// Opens a fresh place of keys.
    pub async fn open<H: KeysHarness>() -> Self {
        let clock = TestClock::new();
        let harness = H::open(clock.clone()).await;
        let (keys, other) = (harness.keys(), harness.other());
        Self { keys, other, clock, _harness: Box::new(harness) }
    }

    pub(super) fn pass(&self, ms: i64) {
        self.clock.advance(Duration::from_millis(ms.unsigned_abs()));
    }

    pub(super) async fn take(&self, take: TakeKey) -> KeyAnswer {
        self.keys.take_key(take).await.unwrap()
    }

    /// Takes the key, which must be free.
    pub(super) async fn held(&self, holder: &str) -> KeyLease {
        match self.take(wish(holder)).await {
            KeyAnswer::Held(lease) => lease,
            other => panic!("{holder} should have the key, and was told {other:?}"),
        }
    }

    /// Takes the key from one whose hold was seen to have expired.
    pub(super) async fn taken_over(&self, holder: &str, from: &KeyLease) -> KeyLease {
        match self.take(TakeKey { seen_expired: Some(from.token), ..wish(holder) }).await {
            KeyAnswer::Held(lease) => lease,
            other => panic!("{holder} should have the key, and was told {other:?}"),
        }
    }

    pub(super) async fn assert_busy(&self, holder: &str, with: &str) {
        match self.take(wish(holder)).await {
            KeyAnswer::Busy(busy) => assert_eq!(busy.holder, with),
            other => panic!("{holder} should wait for {with}, and was told {other:?}"),
        }
    }

    pub(super) async fn row(&self) -> Option<StepKey> {
        self.keys.step_key(KEY.to_owned()).await.unwrap()
    }

    async fn count(&self) -> u64 {
        self.keys.key_duplicates(KEY.to_owned()).await.unwrap().count
    }
}

pub(super) const KEY: &str = "welcome-7";

pub(super) fn wish(holder: &str) -> TakeKey {
    TakeKey {
        key: KEY.to_owned(),
        holder: KeyHolder { id: holder.to_owned(), attempt: 1, caller: format!("at {holder}") },
        fingerprint: None,
        lease_ms: HOLD_MS,
        counted: None,
        seen_expired: None,
    }
}

fn in_attempt(attempt: u32, take: TakeKey) -> TakeKey {
    TakeKey { holder: KeyHolder { attempt, ..take.holder }, ..take }
}

pub(super) fn of_input(input: &str, take: TakeKey) -> TakeKey {
    TakeKey { fingerprint: Some(Json::stored(input).fingerprint()), ..take }
}

pub(super) fn done(json: &str) -> SettleKey {
    SettleKey { end: KeyEnd::Done(Json::stored(json)), ttl_ms: None }
}

fn done_for(json: &str, ttl_ms: i64) -> SettleKey {
    SettleKey { ttl_ms: Some(ttl_ms), ..done(json) }
}

fn failed(why: &str) -> SettleKey {
    SettleKey { end: KeyEnd::Failed(Failure::fatal(why)), ttl_ms: None }
}

/// A key that nobody has is taken, and shows its holder.
pub async fn free_key_is_taken(stage: &KeyStage) {
    assert_eq!(stage.row().await, None);
    let lease = stage.held("a").await;
    assert_eq!((lease.key.as_str(), lease.holder.as_str(), lease.attempt), (KEY, "a", 1));
    let row = stage.row().await.unwrap();
    assert_eq!((row.state, row.token, row.lease()), (KeyState::Held, lease.token, lease));
    assert_eq!((row.taken_at, row.settled_at), (stage.clock.now(), None));
    assert_eq!(row.until, Some(stage.clock.now() + Duration::from_millis(HOLD_MS as u64)));
    assert_eq!(row.holder.caller, "at a");
}

/// A take that is repeated, because its answer was lost, gives the same hold.
pub async fn take_twice(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(HOLD_MS - 1);
    assert_eq!(stage.held("a").await, lease);
    stage.pass(HOLD_MS - 1);
    stage.assert_busy("b", "a").await;
    assert_eq!(stage.row().await.unwrap().token, lease.token, "its lease ran from the repeat");
}

/// Of many that take a key at once, one has it and the others wait for it.
pub async fn concurrent_takes_have_one_holder(stage: &KeyStage) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let keys = if caller % 2 == 0 { &stage.keys } else { &stage.other };
        let keys = Arc::clone(keys);
        callers.spawn(async move { keys.take_key(wish(&format!("c{caller}"))).await.unwrap() });
    }
    let answers = callers.join_all().await;
    let held = answers.iter().filter(|answer| matches!(answer, KeyAnswer::Held(_))).count();
    let busy = answers.iter().filter(|answer| matches!(answer, KeyAnswer::Busy(_))).count();
    assert_eq!((held, busy), (1, CALLERS - 1));
    assert_eq!(stage.count().await, CALLERS as u64 - 1, "each that came second is counted");
}

/// A busy key says for how long it is held, and how long it is held yet.
pub async fn busy_key_tells_its_times(stage: &KeyStage) {
    stage.held("a").await;
    stage.pass(4_000);
    let KeyAnswer::Busy(busy) = stage.take(wish("b")).await else { panic!("the key is held") };
    assert_eq!((busy.held_ms, busy.left_ms), (4_000, HOLD_MS - 4_000));
}

/// What a holder settles is what everybody gets from then on.
pub async fn settled_result_goes_to_everybody(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(5);
    stage.keys.settle_key(lease, done(r#"{"mail":1}"#)).await.unwrap();
    for holder in ["b", "c"] {
        let answer = stage.take(wish(holder)).await;
        assert_eq!(answer, KeyAnswer::Done(Json::stored(r#"{"mail":1}"#)));
    }
    let row = stage.row().await.unwrap();
    assert_eq!((row.state, row.until), (KeyState::Done, None));
    assert_eq!(row.settled_at, Some(stage.clock.now()));
}

/// A settle that is repeated, because its answer was lost, changes nothing.
pub async fn settle_twice(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.keys.settle_key(lease.clone(), done_for("1", 500)).await.unwrap();
    let before = stage.row().await;
    stage.pass(400);
    stage.keys.settle_key(lease.clone(), done_for("1", 500)).await.unwrap();
    assert_eq!(stage.row().await, before);
    assert_lost(stage.keys.settle_key(lease, done("2")).await);
    assert_eq!(stage.row().await, before, "a result never changes");
}

/// A holder whose lease ran out, and whose key another took, cannot settle it, before or after the
/// other did.
pub async fn settle_with_stale_lease(stage: &KeyStage) {
    let stale = stage.held("a").await;
    stage.pass(HOLD_MS);
    let lease = stage.taken_over("b", &stale).await;
    assert!(lease.token > stale.token, "the token rises");
    let before = stage.row().await;
    assert_lost(stage.keys.settle_key(stale.clone(), done("1")).await);
    assert_lost(stage.keys.settle_key(stale.clone(), failed("no")).await);
    assert_eq!(stage.row().await, before);
    stage.keys.settle_key(lease, done("2")).await.unwrap();
    assert_lost(stage.keys.settle_key(stale, done("1")).await);
    assert_eq!(stage.take(wish("c")).await, KeyAnswer::Done(Json::stored("2")));
}

/// A holder whose lease ran out may settle as long as nobody took the key: its work is done.
pub async fn late_settle_is_kept_while_nobody_took_over(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(HOLD_MS * 3);
    stage.keys.settle_key(lease, done("1")).await.unwrap();
    assert_eq!(stage.take(wish("b")).await, KeyAnswer::Done(Json::stored("1")));
}

/// A renewal lets a hold last from then on.
pub async fn renew_key_twice(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(HOLD_MS - 1);
    for _ in 0..2 {
        stage.keys.renew_key(lease.clone(), HOLD_MS).await.unwrap();
    }
    stage.pass(HOLD_MS - 1);
    stage.assert_busy("b", "a").await;
    stage.pass(1);
    stage.taken_over("b", &lease).await;
}

/// A renewal comes too late once the key is another's, settled or free.
pub async fn renew_key_with_stale_lease(stage: &KeyStage) {
    let stale = stage.held("a").await;
    stage.pass(HOLD_MS);
    let lease = stage.taken_over("b", &stale).await;
    let before = stage.row().await;
    assert_lost(stage.keys.renew_key(stale, HOLD_MS).await);
    assert_eq!(stage.row().await, before);
    stage.keys.settle_key(lease.clone(), done("1")).await.unwrap();
    assert_lost(stage.keys.renew_key(lease.clone(), HOLD_MS).await);
    stage.keys.release_key(KEY.to_owned()).await.unwrap();
    assert_lost(stage.keys.renew_key(lease, HOLD_MS).await);
}

/// The next attempt of the same run takes the key over at once: the one before is known to be gone.
pub async fn later_attempt_takes_over(stage: &KeyStage) {
    let first = stage.held("run/step").await;
    let second = stage.take(in_attempt(2, wish("run/step"))).await;
    let KeyAnswer::Held(second) = second else { panic!("not held: {second:?}") };
    assert!(second.token > first.token);
    assert_lost(stage.keys.take_key(wish("run/step")).await);
    assert_lost(stage.keys.renew_key(first.clone(), HOLD_MS).await);
    assert_lost(stage.keys.settle_key(first, done("1")).await);
    assert_eq!(stage.row().await.unwrap().lease(), second);
    assert_eq!(stage.count().await, 0, "an attempt is no duplicate of its own run");
}

/// A holder that died after it settled finds its own result, and counts as no duplicate.
pub async fn own_result_is_found_again(stage: &KeyStage) {
    let lease = stage.held("run/step").await;
    stage.keys.settle_key(lease, done("1")).await.unwrap();
    let again = stage.take(in_attempt(2, wish("run/step"))).await;
    assert_eq!(again, KeyAnswer::Done(Json::stored("1")));
    assert_eq!(stage.count().await, 0);
}

/// A key that its holder gives up is free for the next.
pub async fn freed_key_is_taken_by_the_next(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.assert_busy("b", "a").await;
    for _ in 0..2 {
        stage.keys.settle_key(lease.clone(), SettleKey::free()).await.unwrap();
        assert_eq!(stage.row().await, None);
    }
    stage.held("b").await;
    assert_eq!(stage.count().await, 0, "one that has the key was not suppressed");
}

/// One that gives up a key that is no longer its own leaves it to its holder.
pub async fn free_with_stale_lease_changes_nothing(stage: &KeyStage) {
    let stale = stage.held("a").await;
    stage.pass(HOLD_MS);
    let lease = stage.taken_over("b", &stale).await;
    stage.keys.settle_key(stale, SettleKey::free()).await.unwrap();
    assert_eq!(stage.row().await.unwrap().lease(), lease);
    stage.keys.settle_key(lease.clone(), done("1")).await.unwrap();
    stage.keys.settle_key(lease, SettleKey::free()).await.unwrap();
    assert_eq!(stage.row().await.unwrap().state, KeyState::Done, "a result stays");
}

/// A failure that is kept goes to everybody.
pub async fn kept_failure_goes_to_everybody(stage: &KeyStage) {
    let lease = stage.held("a").await;
    let failure = Failure::fatal("no such address").code("bounced").details(&7);
    let settle = SettleKey { end: KeyEnd::Failed(failure.clone()), ttl_ms: None };
    for _ in 0..2 {
        stage.keys.settle_key(lease.clone(), settle.clone()).await.unwrap();
    }
    assert_eq!(stage.take(wish("b")).await, KeyAnswer::Failed(failure));
    assert_eq!(stage.row().await.unwrap().state, KeyState::Failed);
}

/// A result is kept for its time, which counts from the settle.
pub async fn result_is_forgotten_after_its_time(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(HOLD_MS - 1);
    stage.keys.settle_key(lease.clone(), done_for("1", 1_000)).await.unwrap();
    stage.pass(999);
    assert_eq!(stage.take(wish("b")).await, KeyAnswer::Done(Json::stored("1")));
    stage.pass(1);
    assert_eq!(stage.row().await, None);
    let next = stage.held("b").await;
    assert!(next.token > lease.token);
    assert_eq!(stage.count().await, 0, "what came second belongs to its hold");
}

/// Tokens rise however a hold ends, so that none is taken for a later one.
pub async fn token_rises_with_every_hold(stage: &KeyStage) {
    let mut last = 0;
    for round in 0..6 {
        let lease = stage.held("a").await;
        assert!(lease.token > last, "round {round}: {} after {last}", lease.token);
        last = lease.token;
        match round % 3 {
            0 => stage.keys.settle_key(lease, SettleKey::free()).await.unwrap(),
            1 => assert!(stage.keys.release_key(KEY.to_owned()).await.unwrap()),
            _ => stage.pass(HOLD_MS),
        }
    }
}

/// A key that comes with another input is refused, held or done; one without a word is not.
pub async fn other_input_is_refused(stage: &KeyStage) {
    let KeyAnswer::Held(lease) = stage.take(of_input("1", wish("a"))).await else {
        panic!("the key is free")
    };
    let refused = KeyAnswer::OtherInput { holder: "a".to_owned() };
    assert_eq!(stage.take(of_input("2", wish("b"))).await, refused);
    stage.keys.settle_key(lease, done("7")).await.unwrap();
    assert_eq!(stage.take(of_input("2", wish("b"))).await, refused);
    let seven = KeyAnswer::Done(Json::stored("7"));
    assert_eq!(stage.take(of_input("1.0", wish("c"))).await, seven);
    assert_eq!(stage.take(wish("d")).await, seven);
}

/// Those that came second are counted once each, and told apart by their input.
pub async fn key_duplicates_are_counted_and_told_apart(stage: &KeyStage) {
    let KeyAnswer::Held(lease) = stage.take(of_input("1", wish("a"))).await else {
        panic!("the key is free")
    };
    stage.take(of_input("1", wish("b"))).await;
    stage.pass(10);
    stage.take(of_input("2", wish("c"))).await;
    stage.take(of_input("1", wish("b"))).await;
    stage.keys.settle_key(lease, done("7")).await.unwrap();
    stage.take(of_input("1", wish("b"))).await;
    let token = stage.row().await.unwrap().token;
    stage.take(TakeKey { counted: Some(token), ..wish("d") }).await;
    let duplicates = stage.keys.key_duplicates(KEY.to_owned()).await.unwrap();
    assert_eq!(duplicates.count, 2);
    let latest = duplicates.latest.iter().map(|one| (one.caller.as_str(), one.same_input));
    assert_eq!(latest.collect::<Vec<_>>(), [("at c", false), ("at b", true)]);
    assert_eq!(duplicates.latest[0].at.since(duplicates.latest[1].at), Duration::from_millis(10));
    assert_eq!(stage.row().await.unwrap().duplicates, 2);
}

/// One that was counted while another had the key counts again under the next hold: that is what
/// it came second to in the end.
pub async fn key_duplicates_are_counted_for_each_hold(stage: &KeyStage) {
    let first = stage.held("a").await;
    let KeyAnswer::Busy(busy) = stage.take(wish("b")).await else { panic!("the key is held") };
    assert_eq!(busy.token, first.token);
    let again = TakeKey { counted: Some(busy.token), ..wish("b") };
    stage.take(again.clone()).await;
    assert_eq!(stage.count().await, 1);
    stage.keys.settle_key(first, SettleKey::free()).await.unwrap();
    let second = stage.held("c").await;
    stage.keys.settle_key(second, done("1")).await.unwrap();
    assert_eq!(stage.take(again).await, KeyAnswer::Done(Json::stored("1")));
    assert_eq!(stage.count().await, 1);
}

/// Of those that came second the latest are kept, and all are counted.
pub async fn key_duplicates_kept_are_bounded(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.keys.settle_key(lease, done("1")).await.unwrap();
    let more = DUPLICATES_KEPT_MAX + 3;
    for caller in 0..more {
        stage.take(wish(&format!("c{caller}"))).await;
    }
    let duplicates = stage.keys.key_duplicates(KEY.to_owned()).await.unwrap();
    assert_eq!(duplicates.count, more as u64);
    assert_eq!(duplicates.latest.len(), DUPLICATES_KEPT_MAX);
    assert_eq!(duplicates.latest[0].caller, format!("at c{}", more - 1));
}

/// A released key is free, and its holder finds that out.
pub async fn released_key_is_free(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.take(wish("b")).await;
    assert!(stage.keys.release_key(KEY.to_owned()).await.unwrap());
    assert!(!stage.keys.release_key(KEY.to_owned()).await.unwrap(), "it was free already");
    assert_eq!((stage.row().await, stage.count().await), (None, 0));
    assert_lost(stage.keys.settle_key(lease, done("1")).await);
    stage.held("b").await;
}

/// Keys are compared byte by byte: case and space at an end count.
pub async fn step_keys_are_compared_exactly(stage: &KeyStage) {
    for key in ["order-1", "Order-1", "order-1 ", "ordér-1", "order_1", "order%1", "or{d}er*?["] {
        let take = TakeKey { key: key.to_owned(), ..wish("a") };
        assert!(matches!(stage.take(take).await, KeyAnswer::Held(_)), "{key:?} is its own");
    }
}

/// Keys are listed by name, in pages, without those that are free.
pub async fn keys_are_listed_in_pages(stage: &KeyStage) {
    for (key, lease_ms) in [("c", 100), ("a", 100), ("over", 10), ("b", 100)] {
        stage.take(TakeKey { key: key.to_owned(), lease_ms, ..wish("h") }).await;
    }
    stage.pass(50);
    let page = stage.keys.step_keys(None, 2).await.unwrap();
    let names = |keys: &[StepKey]| keys.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
    assert_eq!((names(&page.keys), page.more), (vec!["a".to_owned(), "b".to_owned()], true));
    let rest = stage.keys.step_keys(Some("b".to_owned()), 2).await.unwrap();
    assert_eq!((names(&rest.keys), rest.more), (vec!["c".to_owned()], false));
}

/// What one handle takes and settles, another finds.
pub async fn handles_share_the_keys(stage: &KeyStage) {
    let lease = stage.held("a").await;
    let answer = stage.other.take_key(wish("b")).await.unwrap();
    assert!(matches!(answer, KeyAnswer::Busy(_)), "{answer:?}");
    stage.other.settle_key(lease, done("1")).await.unwrap();
    assert_eq!(stage.take(wish("b")).await, KeyAnswer::Done(Json::stored("1")));
}

/// A key that stood elsewhere stands here alike, under a higher token, and is added once.
pub async fn import_key_twice(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.keys.settle_key(lease, done_for("1", 1_000)).await.unwrap();
    stage.take(wish("b")).await;
    let mut key = stage.row().await.unwrap();
    stage.keys.release_key(KEY.to_owned()).await.unwrap();
    key.token += 100;
    assert!(stage.keys.import_key(key.clone()).await.unwrap());
    assert!(!stage.other.import_key(key.clone()).await.unwrap(), "it is there");
    let there = stage.row().await.unwrap();
    assert!(there.token > key.token);
    assert_eq!(StepKey { token: key.token, ..there.clone() }, key);
    assert_eq!(stage.take(wish("c")).await, KeyAnswer::Done(Json::stored("1")));
    stage.pass(1_000);
    assert!(stage.held("d").await.token > there.token, "tokens go on rising");
}

/// A key that is there and differs is not overwritten, unless it is free.
pub async fn import_of_another_key_is_refused(stage: &KeyStage) {
    let lease = stage.held("a").await;
    let held = stage.row().await.unwrap();
    stage.keys.settle_key(lease, done_for("1", 1_000)).await.unwrap();
    let before = stage.row().await;
    let refused = stage.keys.import_key(held.clone()).await;
    super::stage::assert_conflict(refused, crate::store::Conflict::StepKeyDiffers);
    assert_eq!(stage.row().await, before);
    stage.pass(1_000);
    assert!(stage.keys.import_key(held).await.unwrap());
}

/// Who waits for a key is told when it is settled, by whatever handle, and when it is released.
pub async fn waiter_resolves_at_the_end_of_a_hold(stage: &KeyStage) {
    let told = async |waiter: crate::store::Waiter| {
        let told = tokio::time::timeout(Duration::from_secs(10), waiter).await;
        assert!(told.is_ok(), "the waiter was not told");
    };
    let lease = stage.held("a").await;
    // Where there are no hints, whoever waits looks on a timer.
    let Some(waiter) = stage.keys.wait_key(KEY) else { return };
    stage.other.settle_key(lease, done("1")).await.unwrap();
    told(waiter).await;
    let Some(waiter) = stage.keys.wait_key(KEY) else { panic!("there were hints before") };
    stage.keys.release_key(KEY.to_owned()).await.unwrap();
    told(waiter).await;
}
