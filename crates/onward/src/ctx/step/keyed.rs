//! A step with a key: it executes once over all runs.
//!
//! Owns: the options of the key, and what its answers mean for the step. Never takes or settles a
//! key itself: the driver does, on the step's word.
//!
//! The key is taken before the body, for each try anew, and is free again while a failed step waits
//! for its next try. A result is settled with the key before it is reported to be recorded.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StepFuture;
use super::at_most_once::{Begun, Mode};
use crate::clock::millis;
use crate::driver::board::{Draft, Hold, KeyAsk, KeyTold, Then};
use crate::driver::past::PastStep;
use crate::json::Fingerprint;
use crate::keyed::look_in;
use crate::limits::{DURATION_MAX, KEY_LEASE};
use crate::model::step_id;
use crate::store::{KeyAnswer, KeyEnd, SettleKey, TakeKey};
use crate::{Code, Entry, Failure, Json, Key};

/// The key of a step, and how far it has come with it.
#[derive(Default)]
pub(super) struct Keyed {
    pub(super) key: Option<Key>,
    ttl: Option<Duration>,
    pub(super) keep_failure: bool,
    fingerprint: Option<Fingerprint>,
    hold: Option<Hold>,
    /// The token of the hold under which this step was counted as one that came second.
    counted: Option<u64>,
    /// What is reported once the key is settled.
    unsettled: Option<(Draft, Then)>,
}

impl Keyed {
    /// The fencing token of the hold.
    pub(super) fn token(&self) -> Option<u64> {
        self.hold.as_ref().and_then(Hold::token)
    }

    /// Notes that the body of a step which must not execute twice begins: dropped from now on, nobody
    /// knows whether it took effect, so that no other may execute it.
    pub(super) fn begin_once(&mut self) {
        let ttl_ms = self.ttl.map(millis);
        if let Some(hold) = &mut self.hold {
            hold.if_dropped(SettleKey::interrupted(ttl_ms));
        }
    }

    /// The id that the body hands on.
    pub(super) fn outside_id(&self) -> Arc<str> {
        step_id::of_key(self.text()).into()
    }

    /// The key as text.
    pub(super) fn text(&self) -> &str {
        self.key.as_ref().map_or("", Key::as_str)
    }
}

impl<T> StepFuture<'_, T> {
    /// Gives the step a key: it executes once over *all* runs that take a step with that key.
    ///
    /// A later step with the key is given the recorded result, and one that meets it in flight
    /// waits for it, durably. [`Step::id`](crate::Step::id) derives from the key, so whoever
    /// executes it presents the same idempotency key outside. A failed, cancelled or dropped step
    /// frees its key for the next one.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # use std::time::Duration;
    /// # async fn send(_: &str, _: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn onboard(ctx: Ctx, user: u64) -> Result<(), Failure> {
    ///     let day = Duration::from_secs(24 * 60 * 60);
    ///     let mail = ctx.step("welcome mail", async |step| send(step.id(), user).await);
    ///     mail.key(format!("welcome-user-{user}")).ttl(day).await
    /// }
    /// ```
    ///
    /// The key is part of the recorded step. One that differs when the function is replayed was
    /// made from a clock or a random number: the run stops before the body, as `key_changed`.
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        let key = key.into();
        if let Err(error) = key.check() {
            self.misuse.get_or_insert(Failure::engine(error.code(), error.to_string()));
        }
        self.keyed.get_or_insert_default().key = Some(key);
        self
    }

    /// How long the result is kept with the [`key`](Self::key), from when it is there. Unless set
    /// it is kept until somebody releases the key.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.keyed.get_or_insert_default().ttl = Some(ttl.min(DURATION_MAX));
        self
    }

    /// Whether it is a step with a key.
    pub(in crate::ctx) fn has_key(&self) -> bool {
        self.keyed.is_some()
    }

    /// Keeps the failure of the step with its [`key`](Self::key), as a result is kept: a later step
    /// with the key fails alike, without executing.
    pub fn keep_failure(mut self) -> Self {
        self.keyed.get_or_insert_default().keep_failure = true;
        self
    }

    /// What the step is given, to be compared with what others with the same [`key`](Self::key)
    /// are given: a step with another input fails with the code `key_conflict`.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn charge(_: &str, _: u64) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, (order, cents): (String, u64)) -> Result<(), Failure> {
    /// let charge = ctx.step("charge", async |step| charge(step.id(), cents).await);
    /// charge.key(format!("charge-{order}")).fingerprint(&cents).await
    /// # }
    /// ```
    pub fn fingerprint<I: Serialize + ?Sized>(mut self, of: &I) -> Self {
        match Json::of(of) {
            Ok(json) => {
                self.keyed.get_or_insert_default().fingerprint = Some(json.fingerprint());
            }
            Err(error) => {
                self.misuse.get_or_insert(Failure::engine(error.code(), error.to_string()));
            }
        }
        self
    }
}

impl<'a, T> StepFuture<'a, T>
where
    T: Serialize + DeserializeOwned + Send + 'a,
{
    /// The part of the step's id that is recorded, with its key.
    pub(super) fn recorded_name(&self) -> Result<Arc<str>, Failure> {
        let base = match (&self.explicit, &self.number) {
            (Some(id), _) => step_id::explicit(&self.name, id),
            (None, None) => self.name.to_string(),
            (None, Some(number)) => step_id::numbered(&self.name, number.number),
        };
        match self.keyed.as_ref().map(|keyed| &keyed.key) {
            None => Ok(base.into()),
            Some(Some(key)) => Ok(step_id::keyed(&base, key.as_str()).into()),
            Some(None) => {
                let message = "ttl, keep_failure and fingerprint are about a key; set one with key";
                Err(Failure::engine(Code::InvalidOption, message))
            }
        }
    }

    /// Stops the run where the step was recorded with another key, unless the code was changed
    /// since or a retry lets it go another way: then what is recorded counts.
    pub(super) fn check_key(&self, step: &str, known: &PastStep) {
        let Some(before) = known.recorded_as(step).filter(|before| *before != step) else {
            return;
        };
        let detail = format!("recorded as {before:?}, asked for as {step:?}");
        match known.same_way {
            true => self.board.trouble(Code::KeyChanged, detail),
            false => tracing::info!(run = %self.board.run, detail, "the key of a step changed"),
        }
    }

    /// Whether the step has to take its key before it may execute, which the driver is asked to do.
    pub(super) fn takes_key(&mut self) -> bool {
        let wants = self.keyed.as_ref().is_some_and(|keyed| keyed.hold.is_none());
        if wants && let Some((leaf, wish)) = self.key_wish() {
            let dropped = self.end_if_dropped();
            self.board.ask_key(KeyAsk { leaf, wish, end: None, dropped });
        }
        wants
    }

    /// What the key is to be if this step is dropped before its body begins: free, unless an earlier
    /// attempt began a body that must not execute twice.
    fn end_if_dropped(&self) -> SettleKey {
        let before = self.asked.as_ref().is_some_and(|asked| asked.begun == Begun::Before);
        match (self.mode == Mode::AtMostOnce && before, &self.keyed) {
            (true, Some(keyed)) => SettleKey::interrupted(keyed.ttl.map(millis)),
            _ => SettleKey::free(),
        }
    }

    fn key_wish(&self) -> Option<(u64, TakeKey)> {
        let (asked, keyed) = (self.asked.as_ref()?, self.keyed.as_ref()?);
        // Nobody else may execute what may have been executed: only its own run goes on with it.
        let lease = if self.mode == Mode::AtMostOnce { DURATION_MAX } else { KEY_LEASE };
        let wish = TakeKey {
            key: keyed.text().to_owned(),
            holder: self.board.key_holder(step_id::base(&asked.step)),
            fingerprint: keyed.fingerprint,
            lease_ms: millis(lease),
            counted: keyed.counted,
            seen_expired: None,
        };
        Some((asked.leaf, wish))
    }

    /// Goes on with what became of the key.
    pub(super) fn heed_key(&mut self, told: KeyTold) {
        let now = self.board.store.clock().now();
        let (Some(keyed), Some(asked)) = (&mut self.keyed, &self.asked) else { return };
        match told {
            // It came while the run is asked to stop: the key is for others.
            KeyTold::Held(hold) if self.board.is_stopping() => {
                drop(hold);
                self.board.stand_back(asked.leaf);
            }
            KeyTold::Held(hold) => {
                keyed.hold = Some(hold);
                self.begin();
            }
            KeyTold::Kept => {
                if let Some((draft, then)) = keyed.unsettled.take() {
                    self.board.report(draft, then);
                }
            }
            KeyTold::Unsupported => {
                let advice = Code::KeysUnsupported.advice();
                self.fail(Failure::engine(Code::KeysUnsupported, advice), now);
            }
            KeyTold::Answer(answer) => {
                keyed.unsettled = None;
                self.heed_answer(answer);
            }
        }
    }

    fn heed_answer(&mut self, answer: KeyAnswer) {
        let now = self.board.store.clock().now();
        let (Some(keyed), Some(asked)) = (&mut self.keyed, &self.asked) else { return };
        match answer {
            KeyAnswer::Done(json) => match json.read::<T>() {
                Ok(value) => {
                    self.kept = Some(Ok(value));
                    self.board.report(asked.draft(Entry::Done(json), now), Then::Record);
                }
                Err(error) => {
                    let (key, error) = (keyed.text(), error.detail());
                    let detail = format!("the result that is kept with the key {key:?}, {error}");
                    self.board.trouble(Code::TypeMismatch, detail);
                }
            },
            KeyAnswer::Failed(failure) => {
                let failure = failure.at_step(&asked.step);
                self.kept = Some(Err(failure.clone()));
                self.board.report(asked.draft(Entry::Failed(failure), now), Then::Record);
            }
            KeyAnswer::Busy(busy) => {
                keyed.counted = Some(busy.token);
                self.board.pause_for_key(asked.leaf, keyed.text(), look_in(&busy));
            }
            KeyAnswer::OtherInput { holder } => {
                let key = keyed.text();
                let advice = Code::KeyConflict.advice();
                let message = format!("the key {key:?} is of {holder}. {advice}");
                self.fail(Failure::engine(Code::KeyConflict, message), now);
            }
            // The driver makes a hold of it.
            KeyAnswer::Held(_) => {}
        }
    }

    /// Reports what came of the body, once the key is settled accordingly.
    pub(super) fn report(&mut self, draft: Draft, then: Then) {
        let held = self.keyed.as_mut().and_then(|keyed| keyed.hold.take());
        let lease = held.and_then(Hold::end);
        let (Some(lease), Some((leaf, wish))) = (lease, self.key_wish()) else {
            return self.board.report(draft, then);
        };
        let Some(keyed) = &mut self.keyed else { return };
        let end = match &draft.entry {
            Entry::Done(json) => KeyEnd::Done(json.clone()),
            Entry::Failed(failure) if keeps(keyed, failure) => KeyEnd::Failed(failure.clone()),
            _ => KeyEnd::Free,
        };
        let ttl_ms = keyed.ttl.map(millis);
        keyed.unsettled = Some((draft, then));
        let end = Some((lease, SettleKey { end, ttl_ms }));
        self.board.ask_key(KeyAsk { leaf, wish, end, dropped: SettleKey::free() });
    }
}

/// Whether a failure is kept with its key. Of an interrupted step nobody knows whether it took
/// effect, so that no other may execute it.
fn keeps(keyed: &Keyed, failure: &Failure) -> bool {
    keyed.keep_failure || failure.is(Code::Interrupted.as_str())
}
