//! The crew: the drivers of one worker and the places they take.
//!
//! Owns: how many runs execute at once, and reaching each of them. Never claims.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::RunId;
use crate::driver::{Control, Stop};
use crate::limits::{SUSPECT_CRASHES, SUSPECT_PATIENCE};
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

    /// Resolves when this run may execute: one that has crashed again since it became a suspect not before
    /// the suspects that were executing when it was claimed are cleared, or after a time.
    pub(crate) async fn until_alone(&self, lease: Lease, crashes: u32) {
        if crashes <= SUSPECT_CRASHES {
            return;
        }
        let others = || self.lock().suspects.iter().any(|suspect| *suspect != lease);
        let alone = async {
            loop {
                let freed = self.freed.notified();
                if !others() {
                    return;
                }
                freed.await;
            }
        };
        // What it waited for is given up by then.
        let _ = tokio::time::timeout(SUSPECT_PATIENCE, alone).await;
    }

    /// Counts the suspects that execute as any other run from here on.
    pub(crate) fn give_up_suspects(&self) {
        self.lock().suspects.clear();
    }

    /// What is odd about the runs that the store says this worker holds.
    pub(crate) fn odds(&self, held: &[Lease]) -> Odds {
        let inner = self.lock();
        let has = |lease: &&Lease| {
            inner.drivers.get(&lease.run).is_some_and(|(entered, _)| entered == *lease)
        };
        let unexecuted = held.iter().filter(|lease| !has(lease)).copied().collect();
        let given: HashSet<&Lease> = held.iter().collect();
        let driven = inner.drivers.values().filter(|(_, control)| control.is_driven());
        let ungiven = driven.map(|(lease, _)| *lease).filter(|lease| !given.contains(lease));
        Odds { unexecuted, ungiven: ungiven.collect() }
    }

    /// Has the drivers look again that did nothing while this was asked so often in a row.
    pub(crate) fn doubt_the_still(&self, times: u32) {
        let inner = self.lock();
        inner.drivers.values().for_each(|(_, control)| control.doubt_if_still(times));
    }

    /// Takes a place, if one is free.
    pub(crate) fn take_place(self: &Arc<Self>) -> Option<Place> {
        let mut inner = self.lock();
        if inner.taken >= self.places || inner.stop.is_some() {
            return None;
        }
        inner.taken += 1;
        Some(Place { crew: Arc::clone(self), entered: None })
    }

    /// A place for a run that is held already, above the limit if need be.
    pub(crate) fn take_place_for_claimed(self: &Arc<Self>) -> Place {
        self.lock().taken += 1;
        Place { crew: Arc::clone(self), entered: None }
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

/// Where a store and a crew do not agree. Either may lag the other for a moment.
#[derive(Default)]
pub(crate) struct Odds {
    /// Held by the worker, and no driver has it.
    pub(crate) unexecuted: HashSet<Lease>,
    /// A driver has it, and the worker does not hold it.
    pub(crate) ungiven: HashSet<Lease>,
}

/// A place in a crew, given back when it is dropped.
pub(crate) struct Place {
    crew: Arc<Crew>,
    /// What the driver is told by, once it is entered.
    entered: Option<(Lease, Arc<Control>)>,
}

impl Place {
    /// Enters the driver that takes this place, or will; again, it is the same.
    pub(crate) fn enter(&mut self, lease: Lease) -> Arc<Control> {
        if let Some((entered, control)) = &self.entered
            && *entered == lease
        {
            return Arc::clone(control);
        }
        let control = Arc::new(Control::default());
        self.entered = Some((lease, Arc::clone(&control)));
        let mut inner = self.crew.lock();
        let stop = inner.stop;
        let before = inner.drivers.insert(lease.run, (lease, Arc::clone(&control)));
        drop(inner);
        // The store gave the run away, and to this worker again: the driver before it holds nothing.
        if let Some((_, stale)) = before {
            stale.stop(Stop::Drop);
        }
        if let Some(stop) = stop {
            control.stop(stop);
        }
        control
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.crew.lock();
        inner.taken -= 1;
        // The same run may have been claimed again, in a later attempt, before this one is gone.
        if let Some((lease, _)) = &self.entered {
            if inner.drivers.get(&lease.run).is_some_and(|(held, _)| held == lease) {
                inner.drivers.remove(&lease.run);
            }
            inner.suspects.retain(|suspect| suspect != lease);
        }
        drop(inner);
        self.crew.freed.notify_waiters();
    }
}
