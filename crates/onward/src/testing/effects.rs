//! The recorder of effects, which users put into their fakes.
//!
//! Owns: [`Effects`] and what is noted of each effect. Never an effect itself: the fake says that
//! it would happen there.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;

use super::trace::{Event, Trace};
use crate::{Json, RunId};

/// A recorder of what happens outside: payments, mails, rows in somebody else's database.
///
/// Give it to your fakes, and let each note what the real service would do, at the point where it
/// would do it. What is not noted cannot be judged. Reading changes nothing and need not be noted.
///
/// ```
/// use onward::Failure;
/// use onward::testing::Effects;
///
/// #[derive(Clone)]
/// struct FakeBank {
///     effects: Effects,
/// }
///
/// impl FakeBank {
///     async fn charge(&self, key: &str, cents: u64) -> Result<(), Failure> {
///         self.effects.note("charge").key(key).payload(&cents).await;
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Failure> {
/// let effects = Effects::new();
/// let bank = FakeBank { effects: effects.clone() };
/// bank.charge("order-7", 500).await?;
/// bank.charge("order-7", 500).await?;
/// assert_eq!(effects.all().len(), 2);
/// assert_eq!(effects.happened("charge"), 1); // the bank knows the key
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Effects {
    trace: Arc<Trace>,
}

/// One effect, as it was noted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect {
    /// What it is called.
    pub name: String,
    /// The service that executed it, if the fake names one.
    pub service: Option<String>,
    /// The idempotency key that the other side was given.
    pub key: Option<String>,
    /// What the other side was given besides.
    pub payload: Option<Json>,
    /// Where it happened, in a check.
    pub place: Place,
    /// Which execution of that place it was.
    pub(super) execution: u64,
}

/// Where an effect happened, as a check knows it; elsewhere it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Place {
    /// In the body of a step.
    Step {
        /// The step's id: `{run id}/{step name}`.
        id: String,
    },
    /// In a workflow function, outside its steps.
    Function {
        /// The run.
        run: RunId,
    },
    /// In a task of its own, or outside any run.
    Elsewhere,
}

impl Effects {
    /// A recorder for a test of your own; [`retry_safe`](super::retry_safe) makes its own.
    pub fn new() -> Self {
        Self::of(Trace::dying_at(None))
    }

    pub(super) fn of(trace: Arc<Trace>) -> Self {
        Self { trace }
    }

    /// Notes an effect, when it is awaited.
    pub fn note(&self, name: impl Into<String>) -> Note {
        let (name, trace) = (name.into(), Arc::clone(&self.trace));
        let (service, key, payload, place) = (None, None, None, Place::Elsewhere);
        Note { trace, effect: Effect { name, service, key, payload, place, execution: 0 } }
    }

    /// State of the outside world that a fake keeps. The first call makes it, and later calls return
    /// the same one. In a check it outlives the process, as your bank does. Everything else that
    /// `build` makes is in the memory of the process and is lost with it.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use onward::testing::Effects;
    ///
    /// /// How many are in stock.
    /// fn stock(effects: &Effects) -> std::sync::Arc<Mutex<u32>> {
    ///     effects.outside("stock", || Mutex::new(10))
    /// }
    ///
    /// let effects = Effects::new();
    /// *stock(&effects).lock().unwrap() -= 1;
    /// assert_eq!(*stock(&effects).lock().unwrap(), 9);
    /// ```
    pub fn outside<T>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T>
    where
        T: Send + Sync + 'static,
    {
        self.trace.outside(name, make)
    }

    /// Every effect that was noted, in order, repeated calls under one key included.
    pub fn all(&self) -> Vec<Effect> {
        of_events(&self.trace.events())
    }

    /// How often the effect of this name happened: calls under a key that the other side knows
    /// count once.
    pub fn happened(&self, name: &str) -> usize {
        happened(self.all().iter().filter(|effect| effect.name == name))
    }
}

impl Default for Effects {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

pub(super) fn of_events(events: &[Event]) -> Vec<Effect> {
    let effects = events.iter().filter_map(|event| match event {
        Event::Effect(effect) => Some(effect.clone()),
        Event::Began(_) | Event::Recorded(_) => None,
    });
    effects.collect()
}

/// How many of these happened, where the other side does what it was asked under one key once.
pub(super) fn happened<'a>(effects: impl Iterator<Item = &'a Effect>) -> usize {
    let mut keys = std::collections::HashSet::new();
    effects.filter(|effect| effect.key.as_ref().is_none_or(|key| keys.insert(key))).count()
}

/// An effect that is about to happen; made by [`Effects::note`].
#[must_use = "an effect is noted when it is awaited"]
pub struct Note {
    trace: Arc<Trace>,
    effect: Effect,
}

impl Note {
    /// The service that executes the effect. Set it if several services have their own keys: the same
    /// key then means something else for each. Effects without a service share their keys.
    ///
    /// ```
    /// # use onward::testing::Effects;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let effects = Effects::new();
    /// effects.note("charge").to("bank").key("order-7").await;
    /// effects.note("send").to("mailer").key("order-7").await;
    /// # }
    /// ```
    pub fn to(mut self, service: impl Into<String>) -> Self {
        self.effect.service = Some(service.into());
        self
    }

    /// The idempotency key that the other side is given: the step's id, or whatever else lets it
    /// know a repeated call. A row that is set by its primary key has that as its key.
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.effect.key = Some(key.to_string());
        self
    }

    /// What the other side is given besides. A payload that has no JSON form is left out.
    pub fn payload(mut self, payload: &(impl Serialize + ?Sized)) -> Self {
        self.effect.payload = Json::of(payload).ok();
        self
    }

    /// Notes the effect and does `act` in the same moment: what the fake changes in itself. Under
    /// a key that was seen before, `act` is left out and the answer is the first one, as a service
    /// that takes idempotency keys does it.
    ///
    /// ```
    /// # use onward::testing::Effects;
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let effects = Effects::new();
    /// let receipts = AtomicU32::new(0);
    /// let charge = |key| {
    ///     effects.note("charge").key(key).act(|| receipts.fetch_add(1, Ordering::SeqCst) + 1)
    /// };
    /// assert_eq!(charge("order-7").await, 1);
    /// assert_eq!(charge("order-7").await, 1);
    /// assert_eq!(charge("order-8").await, 2);
    /// # }
    /// ```
    pub async fn act<T: Clone + Send + 'static>(self, act: impl FnOnce() -> T) -> T {
        match self.trace.happen(self.effect, act) {
            Some(answer) => answer,
            // The process is dead, and nothing that comes after this happens.
            None => std::future::pending().await,
        }
    }

    /// Notes the effect at once, for a fake that is not async. Where a check lets the process die,
    /// it unwinds the caller, as quietly as can be.
    ///
    /// ```
    /// # use onward::testing::Effects;
    /// let effects = Effects::new();
    /// effects.note("set flag").key("dark mode").now();
    /// assert_eq!(effects.happened("set flag"), 1);
    /// ```
    ///
    /// # Panics
    /// In a check, at the point where the process dies. The engine stands between that and the
    /// test.
    pub fn now(self) {
        self.act_now(|| ());
    }

    /// As [`act`](Self::act), for a fake that is not async.
    ///
    /// # Panics
    /// As [`now`](Self::now) does.
    pub fn act_now<T: Clone + Send + 'static>(self, act: impl FnOnce() -> T) -> T {
        match self.trace.happen(self.effect, act) {
            Some(answer) => answer,
            // Without the message of a panic: this one is no fault of anybody's.
            None => std::panic::resume_unwind(Box::new("the process died here, in a check")),
        }
    }
}

impl IntoFuture for Note {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.act(|| ()))
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Note").field(&self.effect).finish()
    }
}
