//! Holds that look as if they had expired.
//!
//! Owns: for how long each has been seen so, by all callers of a client together, so that callers who
//! give up soon see together what one who is patient sees alone. Never asks for a key, and never
//! decides whose it is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{KEY_EXPIRED_SEEN_MAX, KEY_EXPIRED_WAIT};
use crate::store::KeyBusy;

/// The pause between two looks at a hold that has expired: it may be renewed, or end. Two looks that are
/// further apart count as this much: in the rest of the time its holder may have reached the store no more
/// than who looks.
const EXPIRED_LOOK: Duration = Duration::from_secs(1);

/// The holds of a client's keys that looked expired when they were looked at last, by key.
#[derive(Debug, Default)]
pub(crate) struct Expired(Mutex<HashMap<String, Look>>);

/// The last look at an expired hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    token: u64,
    /// When its time was over, in milliseconds after it was taken: a renewal changes that, a clock that is
    /// set does not.
    end_ms: i64,
    at: Instant,
    /// For how long it has been seen expired, by a clock that nobody sets.
    seen: Duration,
}

impl Expired {
    /// Adds a look at a hold; `None` if it has not expired. `own`: the last look of the same caller, which
    /// may be forgotten here.
    pub(super) fn look(&self, key: &str, busy: &KeyBusy, own: Option<Look>) -> Option<Look> {
        if busy.left_ms > 0 {
            self.forget(key);
            return None;
        }
        let first = Look::first(busy);
        let mut looks = self.looks();
        let last = looks.get(key).copied().filter(|look| look.is_at_same(&first));
        let last = last.or(own.filter(|look| look.is_at_same(&first)));
        let look = last.map_or(first, |last| last.again(first.at));
        if !looks.contains_key(key) && looks.len() >= KEY_EXPIRED_SEEN_MAX {
            drop_oldest(&mut looks);
        }
        looks.insert(key.to_owned(), look);
        Some(look)
    }

    /// Forgets what was seen of a key's hold.
    pub(super) fn forget(&self, key: &str) {
        self.looks().remove(key);
    }

    fn looks(&self) -> MutexGuard<'_, HashMap<String, Look>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn drop_oldest(looks: &mut HashMap<String, Look>) {
    let oldest = looks.iter().min_by_key(|(_, look)| look.at).map(|(key, _)| key.clone());
    oldest.map(|key| looks.remove(&key));
}

impl Look {
    fn first(busy: &KeyBusy) -> Self {
        let end_ms = busy.held_ms.saturating_add(busy.left_ms);
        Self { token: busy.token, end_ms, at: Instant::now(), seen: Duration::ZERO }
    }

    /// Whether both are at one hold that was not renewed in between.
    fn is_at_same(&self, other: &Self) -> bool {
        (self.token, self.end_ms) == (other.token, other.end_ms)
    }

    fn again(self, at: Instant) -> Self {
        let passed = at.saturating_duration_since(self.at).min(EXPIRED_LOOK);
        Self { at, seen: self.seen + passed, ..self }
    }

    /// How long to leave the hold alone yet; nothing for one whose holder is gone.
    pub(super) fn pause(&self) -> Duration {
        KEY_EXPIRED_WAIT.saturating_sub(self.seen).min(EXPIRED_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(token: u64, held_ms: i64) -> KeyBusy {
        KeyBusy { holder: "a".to_owned(), token, held_ms, left_ms: 10 - held_ms }
    }

    /// Looks once a second until the hold's holder is taken for gone, and says how many looks it took.
    async fn looks(seen: &Expired, key: &str) -> usize {
        for look in 1..100 {
            if seen.look(key, &expired(1, 20), None).unwrap().pause().is_zero() {
                return look;
            }
            tokio::time::sleep(EXPIRED_LOOK).await;
        }
        panic!("it is never taken for gone")
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_without_an_answer_counts_as_one_look() {
        let seen = Expired::default();
        seen.look("k", &expired(1, 20), None).unwrap();
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(looks(&seen, "k").await, 12, "with the one before");
    }

    #[tokio::test(start_paused = true)]
    async fn many_callers_see_no_more_time_than_passes() {
        let (seen, begun) = (Expired::default(), Instant::now());
        tokio::join!(looks(&seen, "k"), looks(&seen, "k"), looks(&seen, "k"));
        assert_eq!(begun.elapsed(), KEY_EXPIRED_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn another_hold_and_a_renewed_one_are_seen_anew() {
        let seen = Expired::default();
        let busy = |token, held_ms, left_ms| KeyBusy { held_ms, left_ms, ..expired(token, 0) };
        for anew in [busy(2, 20, -10), busy(1, 40, -10), busy(1, 3_600_000, -20)] {
            assert_eq!(looks(&seen, "k").await, 13);
            assert_eq!(seen.look("k", &anew, None).unwrap().seen, Duration::ZERO, "{anew:?}");
        }
        looks(&seen, "k").await;
        assert!(seen.look("k", &busy(1, 20, 30_000), None).is_none());
        assert_eq!(looks(&seen, "k").await, 13, "it was renewed in between");
    }

    /// A caller who waits is not held up by those who look at too many other keys.
    #[tokio::test(start_paused = true)]
    async fn the_oldest_look_is_forgotten_but_by_its_caller() {
        let seen = Expired::default();
        let own = seen.look("k", &expired(1, 20), None);
        tokio::time::sleep(EXPIRED_LOOK).await;
        for other in 0..KEY_EXPIRED_SEEN_MAX {
            seen.look(&format!("other-{other}"), &expired(1, 20), None);
        }
        assert_eq!(seen.looks().len(), KEY_EXPIRED_SEEN_MAX);
        assert!(!seen.looks().contains_key("k"));
        assert_eq!(seen.look("k", &expired(1, 20), own).unwrap().seen, EXPIRED_LOOK);
        assert_eq!(seen.looks().len(), KEY_EXPIRED_SEEN_MAX);
    }
}
