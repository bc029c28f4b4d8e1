//! The trace of one play: what happened, in which order, and where its process died.
//!
//! Owns: the events of all lives of a play, the points at which its first life could have ended,
//! and the one at which it does. Never judges.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::effects::{Effect, Place};
use super::observer::{self, BodyId};
use super::report::{Point, Side, What};
use crate::driver::wake::Here;
use crate::store::End;
use crate::store::lossy::{Death, LossyStore, Write};
use crate::{Record, RunId};

/// What happened in a play.
#[derive(Default)]
pub(super) struct Trace {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    /// The points that the first life came to.
    points: Vec<Point>,
    /// The point at which the first life ends.
    target: Option<usize>,
    /// How many lives have begun.
    lives: u64,
    /// Whether the life under way has ended: a dead process does nothing more.
    dead: bool,
    store: Option<Arc<LossyStore>>,
    /// The runs that execute, by the token of the execution.
    runs: HashMap<u64, RunId>,
    /// The bodies that execute: the number of the execution, and the step's id.
    bodies: HashMap<BodyId, (u64, String)>,
    bodies_begun: u64,
    /// What the other side answered under a key, as it keeps it.
    answers: HashMap<(String, String), Box<dyn Any + Send>>,
    /// What fakes keep of the outside world, by name and type.
    outside: HashMap<(String, TypeId), Outside>,
}

/// Something of the outside world.
type Outside = Arc<dyn Any + Send + Sync>;

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A body began.
    Began(String),
    /// A step was recorded.
    Recorded(String),
    /// An effect happened.
    Effect(Effect),
}

impl Trace {
    /// A trace of a play whose process dies at the point of this number, if any.
    pub(super) fn dying_at(target: Option<usize>) -> Arc<Self> {
        let inner = Inner { target, ..Inner::default() };
        Arc::new(Self { inner: Mutex::new(inner) })
    }

    /// Begins a life.
    pub(super) fn begin_life(&self) {
        self.lock().dead = false;
    }

    /// Has the points of the life counted from here on, and lets it die on this store.
    pub(super) fn serves(&self, store: &Arc<LossyStore>) {
        let mut inner = self.lock();
        inner.lives += 1;
        inner.store = Some(Arc::clone(store));
    }

    /// A piece of the outside world.
    pub(super) fn outside<T: Send + Sync + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let known = (name.to_owned(), TypeId::of::<T>());
        let kept = self.lock().outside.get(&known).cloned();
        if let Some(Ok(kept)) = kept.map(Arc::downcast) {
            return kept;
        }
        // The fake's own code may come back to the trace, or be there first.
        let made = Arc::new(make());
        let mut inner = self.lock();
        let kept = inner.outside.entry(known).or_insert_with(|| Arc::clone(&made) as Outside);
        Arc::clone(kept).downcast().unwrap_or(made)
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    pub(super) fn points(&self) -> Vec<Point> {
        self.lock().points.clone()
    }

    pub(super) fn executes(&self, token: u64, run: RunId) {
        self.lock().runs.insert(token, run);
    }

    pub(super) fn begins(&self, body: BodyId, step: &str) {
        let mut inner = self.lock();
        inner.bodies_begun += 1;
        let number = inner.bodies_begun;
        inner.bodies.insert(body, (number, step.to_owned()));
        inner.events.push(Event::Began(step.to_owned()));
    }

    /// Says whether the process dies at this write, and notes what is recorded.
    pub(super) fn judge(&self, write: Write<'_>) -> Option<Death> {
        let (run, records, what) = match write {
            Write::Record(run, records) => (run, records, What::Record(steps(records))),
            Write::Settle(run, settle) => (run, &settle.records[..], of_end(&settle.end)),
            Write::Start(run, step) => (run, &[][..], What::Start(step.to_owned())),
            Write::Transact(run, step) => (run, &[][..], What::Transaction(step.to_owned())),
        };
        let mut inner = self.lock();
        if inner.dead {
            return None;
        }
        if inner.reaches(Side::Before, &what) {
            inner.dead = true;
            return Some(Death::Before);
        }
        for record in records.iter().filter(|record| record.entry.kind().is_final()) {
            inner.events.push(Event::Recorded(format!("{run}/{}", record.step)));
        }
        let dies = inner.reaches(Side::After, &what);
        inner.dead |= dies;
        dies.then_some(Death::After)
    }

    /// Lets an effect happen; `None` if the process has died, or dies on either side of it. An
    /// effect under a key that is known is answered as it was the first time.
    pub(super) fn happen<T: Clone + Send + 'static>(
        &self,
        mut effect: Effect,
        act: impl FnOnce() -> T,
    ) -> Option<T> {
        let mut inner = self.lock();
        if inner.dead {
            return None;
        }
        (effect.place, effect.execution) = inner.place();
        let what = What::Effect { name: effect.name.clone(), place: effect.place.clone() };
        if inner.reaches(Side::Before, &what) {
            inner.die();
            return None;
        }
        let known = effect.key.clone().map(|key| (effect.name.clone(), key));
        let kept = known.as_ref().and_then(|known| inner.answers.get(known));
        let kept = kept.and_then(|kept| kept.downcast_ref::<T>()).cloned();
        inner.events.push(Event::Effect(effect));
        let dies = inner.reaches(Side::After, &what);
        // The fake's own code may come back to the trace.
        drop(inner);
        let answer = kept.unwrap_or_else(act);
        let mut inner = self.lock();
        if let Some(known) = known {
            inner.answers.insert(known, Box::new(answer.clone()));
        }
        if dies {
            inner.die();
            return None;
        }
        Some(answer)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Notes a point of the first life; says whether it is the one at which that life ends.
    fn reaches(&mut self, side: Side, what: &What) -> bool {
        if self.lives != 1 {
            return false;
        }
        let number = self.points.len();
        self.points.push(Point { side, what: what.clone() });
        self.target == Some(number)
    }

    fn die(&mut self) {
        self.dead = true;
        if let Some(store) = &self.store {
            store.die();
        }
    }

    /// Where this thread is, and in which execution of that.
    fn place(&self) -> (Place, u64) {
        if let Some((number, id)) = observer::body().and_then(|body| self.bodies.get(&body)) {
            return (Place::Step { id: id.clone() }, *number);
        }
        if let Here::Function(token) = Here::now()
            && let Some(run) = self.runs.get(&token)
        {
            return (Place::Function { run: *run }, token);
        }
        (Place::Elsewhere, self.lives)
    }
}

fn steps(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.step.clone()).collect()
}

fn of_end(end: &End) -> What {
    match end {
        End::Parked { .. } => What::Park,
        End::Released => What::Release,
        _ => What::End,
    }
}
