//! Places to wait in: what the waiters for one thing share, for as long as there is one.
//!
//! Owns: who is in which place, counted under one lock, so that the last to go takes the place
//! away however many go at once. Never says what they wait for.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places in which somebody waits.
pub(crate) struct Waiting<K, V> {
    places: Mutex<HashMap<K, Place<V>>>,
}

struct Place<V> {
    shared: Arc<V>,
    waiters: usize,
}

impl<K: Copy + Eq + Hash, V: Default> Waiting<K, V> {
    /// Enters a place, which is made if nobody is in it.
    pub(crate) fn enter(self: &Arc<Self>, key: K) -> Seat<K, V> {
        let mut places = self.lock();
        let place =
            places.entry(key).or_insert_with(|| Place { shared: Arc::default(), waiters: 0 });
        place.waiters += 1;
        Seat { key, shared: Arc::clone(&place.shared), waiting: Arc::clone(self) }
    }
}

impl<K: Copy + Eq + Hash, V> Waiting<K, V> {
    /// What those in this place share.
    pub(crate) fn get(&self, key: K) -> Option<Arc<V>> {
        self.lock().get(&key).map(|place| Arc::clone(&place.shared))
    }

    /// Takes a place away from those in it: whoever enters from here on finds a new one.
    pub(crate) fn take(&self, key: K) -> Option<Arc<V>> {
        self.lock().remove(&key).map(|place| place.shared)
    }

    /// What those in each place share.
    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        self.lock().values().map(|place| Arc::clone(&place.shared)).collect()
    }

    /// How many places somebody is in.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl<K, V> Waiting<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Place<V>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Default for Waiting<K, V> {
    fn default() -> Self {
        Self { places: Mutex::default() }
    }
}

/// One waiter's part of a place; leaves it when dropped.
pub(crate) struct Seat<K: Copy + Eq + Hash, V> {
    key: K,
    shared: Arc<V>,
    waiting: Arc<Waiting<K, V>>,
}

impl<K: Copy + Eq + Hash, V> Seat<K, V> {
    /// What those in the place share.
    pub(crate) fn shared(&self) -> &Arc<V> {
        &self.shared
    }

    /// Whether the place was taken away.
    pub(crate) fn is_taken(&self) -> bool {
        !self.waiting.lock().get(&self.key).is_some_and(|place| self.is_in(place))
    }

    fn is_in(&self, place: &Place<V>) -> bool {
        Arc::ptr_eq(&place.shared, &self.shared)
    }
}

impl<K: Copy + Eq + Hash, V> Drop for Seat<K, V> {
    fn drop(&mut self) {
        let mut places = self.waiting.lock();
        if let Some(place) = places.get_mut(&self.key).filter(|place| self.is_in(place)) {
            place.waiters -= 1;
            if place.waiters == 0 {
                places.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn waiters_that_go_at_once_leave_no_place_behind() {
        const THREADS: usize = 8;
        let waiting = Arc::new(Waiting::<u8, ()>::default());
        let barrier = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let seats = [waiting.enter(1), waiting.enter(1), waiting.enter(2)];
                        barrier.wait();
                        drop(seats);
                        barrier.wait();
                        assert_eq!(waiting.len(), 0);
                        barrier.wait();
                    }
                });
            }
        });
    }

    #[test]
    fn who_sat_in_a_place_that_was_taken_does_not_count_in_the_next() {
        let waiting = Arc::new(Waiting::<u8, ()>::default());
        let old = waiting.enter(1);
        waiting.take(1);
        let new = waiting.enter(1);
        assert!(old.is_taken() && !new.is_taken());
        drop(old);
        assert!(waiting.get(1).is_some());
        drop(new);
        assert!(waiting.get(1).is_none());
    }
}
