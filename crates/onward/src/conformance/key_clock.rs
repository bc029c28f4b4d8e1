//! Step keys over changes of the clock: a hold that looks expired is not free before its holder had the time to
//! renew it.

use super::stage::assert_lost;
use super::step_key::{HOLD_MS, KeyStage, done, of_input, wish};
use crate::Json;
use crate::clock::millis;
use crate::limits::KEY_HELD_KEEP;
use crate::store::{KeyAnswer, TakeKey};

/// Keys that others take meanwhile: each take forgets a few that are over.
const OTHERS: usize = 8;

/// A clock that is set forward leaves a key to its holder, who renews it.
pub async fn clock_set_forward_leaves_a_key_to_its_holder(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(HOLD_MS + 1_000);
    let KeyAnswer::Busy(busy) = stage.take(wish("b")).await else { panic!("it is a's") };
    assert_eq!((busy.holder.as_str(), busy.token, busy.left_ms), ("a", lease.token, -1_000));
    stage.keys.renew_key(lease.clone(), HOLD_MS).await.unwrap();
    let seen = TakeKey { seen_expired: Some(lease.token), ..wish("b") };
    let asked = stage.take(seen).await;
    assert!(matches!(&asked, KeyAnswer::Busy(busy) if busy.left_ms == HOLD_MS), "{asked:?}");
    stage.keys.settle_key(lease, done("1")).await.unwrap();
    assert_eq!(stage.take(wish("b")).await, KeyAnswer::Done(Json::stored("1")));
}

/// A hold that looks expired is not forgotten when others take their keys.
pub async fn expired_hold_is_not_forgotten_at_once(stage: &KeyStage) {
    let lease = stage.held("a").await;
    stage.pass(3_600_000);
    for other in 0..OTHERS {
        let answer = stage.take(TakeKey { key: format!("other-{other}"), ..wish("o") }).await;
        assert!(matches!(answer, KeyAnswer::Held(_)), "{answer:?}");
    }
    stage.assert_busy("b", "a").await;
    stage.keys.renew_key(lease, HOLD_MS).await.unwrap();
}

/// Who has seen that a hold stays expired takes it over, and its holder has no say any more.
pub async fn hold_that_stays_expired_is_taken_over(stage: &KeyStage) {
    let stale = stage.held("a").await;
    stage.pass(HOLD_MS);
    stage.assert_busy("b", "a").await;
    let lease = stage.taken_over("b", &stale).await;
    assert!(lease.token > stale.token, "the token rises");
    assert_lost(stage.keys.renew_key(stale.clone(), HOLD_MS).await);
    assert_lost(stage.keys.settle_key(stale, done("1")).await);
    assert_eq!(stage.row().await.unwrap().lease(), lease);
}

/// A hold that may be forgotten is free to whoever asks first, who need not have seen it before.
pub async fn hold_that_is_long_over_is_free_to_anybody(stage: &KeyStage) {
    let stale = stage.held("a").await;
    stage.pass(HOLD_MS + millis(KEY_HELD_KEEP) - 1);
    stage.assert_busy("b", "a").await;
    stage.pass(1);
    let lease = stage.held("b").await;
    assert!(lease.token > stale.token, "the token rises");
    assert_lost(stage.keys.renew_key(stale, HOLD_MS).await);
    assert_eq!(stage.row().await.unwrap().lease(), lease);
}

/// What an expired hold was given refuses nobody: its holder may be gone, and its input with it.
pub async fn expired_hold_with_another_input_is_waited_for(stage: &KeyStage) {
    let KeyAnswer::Held(lease) = stage.take(of_input("1", wish("a"))).await else {
        panic!("the key is free")
    };
    stage.pass(HOLD_MS);
    let asked = stage.take(of_input("2", wish("b"))).await;
    assert!(matches!(asked, KeyAnswer::Busy(_)), "{asked:?}");
    let seen = TakeKey { seen_expired: Some(lease.token), ..of_input("2", wish("b")) };
    assert!(matches!(stage.take(seen).await, KeyAnswer::Held(_)));
}
