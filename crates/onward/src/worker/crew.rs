//! The crew: the drivers of one worker and the places they take.
//!
//! Owns: how many runs execute at once, and reaching each of them. Never claims.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::RunId;
use crate::driver::{Control, Stop};
use crate::store::Lease;

/// The drivers of one worker.
pub(crate) struct Crew {
    places: usize,
    inner: Mutex<Inner>,
    /// Notified when a place is freed, and when a suspect is cleared.
    freed: Notify,
}

#[derive(Default)]
struct Inner {
    taken: usize,
    drivers: HashMap<RunId, (Lease, Arc<Control>)>,
    /// The suspects among them that have neither ended nor recorded. They are few.
    suspects: Vec<Lease>,
    /// Told to every driver that comes from here on.
    stop: Option<Stop>,
}

impl Crew {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, inner: Mutex::default(), freed: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn free(&self) -> usize {
        self.places.saturating_sub(self.lock().taken)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().taken == 0
    }

    /// Whether a driver has this run.
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.lock().drivers.contains_key(&run)
    }

    /// Whether a driver has its run under this very lease.
    pub(crate) fn holds(&self, lease: Lease) -> bool {
        self.lock().drivers.get(&lease.run).is_some_and(|(held, _)| *held == lease)
    }

    /// Notes that a driver has a suspect.
    pub(crate) fn suspect(&self, lease: Lease) {
        self.lock().suspects.push(lease);
    }

    /// How many suspects execute that may still be what kills its workers.
    pub(crate) fn suspects(&self) -> usize {
        self.lock().suspects.len()
    }

    /// Notes that a suspect made progress.
    pub(crate) fn clear(&self, lease: Lease) {
        self.lock().suspects.retain(|suspect| *suspect != lease);
        self.freed.notify_waiters();
    }

    /// Counts the suspects that execute as any other run from here on.
    pub(crate) fn give_up_suspects(&self) {
        self.lock().suspects.clear();
    }

    /// Takes a place, if one is free.
    pub(crate) fn take_place(self: &Arc<Self>) -> Option<Place> {
        let mut inner = self.lock();
        if inner.taken >= self.places || inner.stop.is_some() {
            return None;
        }
        inner.taken += 1;
        Some(Place { crew: Arc::clone(self), lease: None })
    }

    /// A place for a run that is held already, above the limit if need be.
    pub(crate) fn take_place_for_claimed(self: &Arc<Self>) -> Place {
        self.lock().taken += 1;
        Place { crew: Arc::clone(self), lease: None }
    }

    /// Tells one driver to stop, if it is in this attempt.
    pub(crate) fn stop(&self, lease: Lease, stop: Stop) {
        let control = (self.lock().drivers.get(&lease.run))
            .filter(|(held, _)| *held == lease)
            .map(|(_, control)| Arc::clone(control));
        if let Some(control) = control {
            control.stop(stop);
        }
    }

    /// Tells every driver to stop, those that come later too.
    pub(crate) fn stop_all(&self, stop: Stop) {
        let mut inner = self.lock();
        inner.stop = inner.stop.max(Some(stop));
        let controls: Vec<_> = inner.drivers.values().map(|(_, c)| Arc::clone(c)).collect();
        drop(inner);
        controls.iter().for_each(|control| control.stop(stop));
    }

    /// Resolves when a place was freed, or a suspect cleared, after this call.
    pub(crate) fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.freed.notified()
    }

    /// Resolves when nobody is left.
    pub(crate) async fn emptied(&self) {
        loop {
            let freed = self.freed.notified();
            if self.is_empty() {
                return;
            }
            freed.await;
        }
    }
}

/// A place in a crew, given back when it is dropped.
pub(crate) struct Place {
    crew: Arc<Crew>,
    lease: Option<Lease>,
}

impl Place {
    /// Enters the driver that takes this place.
    pub(crate) fn enter(&mut self, lease: Lease, control: Arc<Control>) {
        self.lease = Some(lease);
        let mut inner = self.crew.lock();
        let stop = inner.stop;
        inner.drivers.insert(lease.run, (lease, Arc::clone(&control)));
        drop(inner);
        if let Some(stop) = stop {
            control.stop(stop);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.crew.lock();
        inner.taken -= 1;
        // The same run may have been claimed again, in a later attempt, before this one is gone.
        if let Some(lease) = self.lease
            && inner.drivers.get(&lease.run).is_some_and(|(held, _)| *held == lease)
        {
            inner.drivers.remove(&lease.run);
        }
        if let Some(lease) = self.lease {
            inner.suspects.retain(|suspect| *suspect != lease);
        }
        drop(inner);
        self.crew.freed.notify_waiters();
    }
}
