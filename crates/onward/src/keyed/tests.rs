//! Keys that are taken while their holders are at work, are gone, or cannot reach the store.
//!
//! Owns: the checks of how long an expired hold is left alone, and of how it is renewed.

use super::*;
use crate::TestClock;
use crate::limits::KEY_EXPIRED_WAIT;
use crate::store::MemoryStore;

fn wish(holder: &str) -> TakeKey {
    let (key, caller) = ("k".to_owned(), "test".to_owned());
    let holder = KeyHolder { id: holder.to_owned(), attempt: 1, caller };
    let (lease_ms, counted, seen_expired) = (millis(KEY_LEASE), None, None);
    TakeKey { key, holder, fingerprint: None, lease_ms, counted, seen_expired }
}

fn memory() -> (TestClock, Arc<dyn Store>) {
    let clock = TestClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    (clock, Arc::new(store))
}

async fn held(store: &dyn Store, holder: &str) -> KeyLease {
    match store.keys().unwrap().take_key(wish(holder)).await.unwrap() {
        KeyAnswer::Held(lease) => lease,
        other => panic!("{holder} should have the key, and was told {other:?}"),
    }
}

/// What `b` is told, who waits for as long as the hold looks expired.
async fn asked(place: &KeyPlace, store: &dyn Store, patience: Duration) -> KeyAnswer {
    take(place.keys().unwrap(), place.holders(store), wish("b"), patience).await.unwrap()
}

/// Fails where a clock that is set forward frees the key of a holder who is at work.
#[tokio::test(start_paused = true)]
async fn a_hold_that_looks_expired_stays_its_holders_who_renews_it() {
    let (clock, store) = memory();
    let (place, lease) = (KeyPlace::in_store(Arc::clone(&store)), held(&*store, "a").await);
    let renewal = Renewal::start(place.clone(), lease.clone(), millis(KEY_LEASE));
    for step in [31, 3_600] {
        clock.advance(Duration::from_secs(step));
        let asked = asked(&place, &*store, Duration::ZERO).await;
        assert!(matches!(&asked, KeyAnswer::Busy(busy) if busy.left_ms > 0), "{asked:?}");
    }
    drop(renewal);
    clock.advance(KEY_LEASE);
    let begun = Instant::now();
    let asked = asked(&place, &*store, Duration::ZERO).await;
    assert!(matches!(&asked, KeyAnswer::Held(held) if held.token > lease.token), "{asked:?}");
    assert!(begun.elapsed() >= KEY_EXPIRED_WAIT, "{:?}", begun.elapsed());
}

/// Fails where each caller begins to look anew: those who wait less than the whole time never get the
/// key of a holder who is gone.
#[tokio::test(start_paused = true)]
async fn the_looks_of_callers_who_give_up_count_for_the_next_one() {
    let (clock, store) = memory();
    let (place, lease) = (KeyPlace::in_store(Arc::clone(&store)), held(&*store, "a").await);
    clock.advance(KEY_LEASE);
    let begun = Instant::now();
    let caller = || asked(&place, &*store, Duration::MAX);
    for _ in 0..2 {
        let gave_up = tokio::time::timeout(Duration::from_secs(5), caller()).await;
        assert!(gave_up.is_err(), "{gave_up:?} after {:?}", begun.elapsed());
    }
    let third = tokio::time::timeout(Duration::from_secs(5), caller()).await.expect("it is gone");
    assert!(matches!(&third, KeyAnswer::Held(held) if held.token > lease.token), "{third:?}");
    assert!(begun.elapsed() >= KEY_EXPIRED_WAIT, "{:?}", begun.elapsed());
}

/// Fails where one hold's time counts for it again after it was renewed.
#[tokio::test(start_paused = true)]
async fn a_renewal_between_two_callers_ends_what_the_first_one_saw() {
    let (clock, store) = memory();
    let (place, lease) = (KeyPlace::in_store(Arc::clone(&store)), held(&*store, "a").await);
    for _ in 0..3 {
        clock.advance(KEY_LEASE);
        let caller = asked(&place, &*store, Duration::MAX);
        let gave_up = tokio::time::timeout(Duration::from_secs(11), caller).await;
        assert!(gave_up.is_err(), "{gave_up:?}");
        clock.advance(Duration::from_secs(1));
        let keys = store.keys().unwrap();
        keys.renew_key(lease.clone(), millis(KEY_LEASE)).await.unwrap();
    }
}

#[cfg(any(feature = "conformance", feature = "testing"))]
mod outage {
    use super::*;
    use crate::store::lossy::LossyStore;

    fn lossy() -> (TestClock, Arc<LossyStore>, KeyPlace) {
        let (clock, store) = memory();
        let store = Arc::new(LossyStore::around(store));
        let place = KeyPlace::in_store(Arc::clone(&store) as Arc<dyn Store>);
        (clock, store, place)
    }

    async fn away_for(store: &LossyStore, time: Duration) {
        store.go_away_after(0);
        tokio::time::sleep(time).await;
        store.come_back();
    }

    /// Fails where time counts in which the holder could not have renewed its hold: two would do the work.
    #[tokio::test(start_paused = true)]
    async fn an_outage_costs_nobody_who_is_at_work_the_key() {
        let (clock, store, place) = lossy();
        let lease = held(&*store, "a").await;
        let _renewal = Renewal::start(place.clone(), lease, millis(KEY_LEASE));
        tokio::time::sleep(Duration::from_millis(9_900)).await;
        clock.advance(Duration::from_secs(3_600));
        let outage = away_for(&store, Duration::from_secs(65));
        let (asked, ()) = tokio::join!(asked(&place, &*store, Duration::ZERO), outage);
        let renewed = matches!(&asked, KeyAnswer::Busy(busy) if busy.left_ms > 0);
        assert!(renewed, "{asked:?}");
    }

    /// Fails where what was seen before an outage counts after it.
    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_not_answered_begins_the_wait_anew() {
        let (clock, store, place) = lossy();
        held(&*store, "a").await;
        clock.advance(KEY_LEASE);
        let outage = async {
            tokio::time::sleep(Duration::from_millis(11_500)).await;
            away_for(&store, Duration::from_secs(5)).await;
            Instant::now()
        };
        let taken = async {
            let asked = asked(&place, &*store, Duration::ZERO).await;
            assert!(matches!(asked, KeyAnswer::Held(_)), "{asked:?}");
            Instant::now()
        };
        let (back, taken) = tokio::join!(outage, taken);
        assert!(taken - back >= KEY_EXPIRED_WAIT, "{:?}", taken.duration_since(back));
    }

    /// Fails where a holder whose renewal failed leaves it at that for as long as after one that succeeded.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_failed_is_repeated_soon() {
        let (clock, store, place) = lossy();
        let lease = held(&*store, "a").await;
        let _renewal = Renewal::start(place, lease, millis(KEY_LEASE));
        tokio::time::sleep(Duration::from_millis(9_900)).await;
        away_for(&store, Duration::from_secs(1)).await;
        clock.advance(Duration::from_secs(29));
        tokio::time::sleep(Duration::from_secs(2)).await;
        clock.advance(Duration::from_secs(2));
        let asked = store.keys().unwrap().take_key(wish("b")).await.unwrap();
        assert!(matches!(&asked, KeyAnswer::Busy(busy) if busy.left_ms > 0), "{asked:?}");
    }
}

#[test]
fn looks_become_rarer_and_end_with_the_lease() {
    let look =
        |held_ms, left_ms| look_in(&KeyBusy { holder: String::new(), token: 1, held_ms, left_ms });
    assert_eq!(look(0, 30_000), LOOK_MIN);
    assert_eq!(look(800, 30_000), Duration::from_millis(800));
    assert_eq!(look(3_600_000, 60_000), KEY_LOOK_MAX);
    assert_eq!(look(29_000, 1_000), Duration::from_secs(1), "its lease may not be renewed");
    assert_eq!(look(29_000, -5), LOOK_MIN);
}
