//! A step whose body must not execute twice.
//!
//! Owns: how far such a step has come, and when it is interrupted: once its body began and did not
//! return. Never records that; the step does.

use super::StepFuture;
use crate::{Code, Failure};

/// How often a body may execute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    AtLeastOnce,
    AtMostOnce,
}

/// How far an at-most-once step has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// Its begin is not recorded.
    No,
    /// Its begin is recorded by this attempt; the body may execute.
    Here,
    /// Its begin was recorded by an attempt that is gone.
    Before,
}

impl<T> StepFuture<'_, T> {
    /// Never executes the body again if nobody knows whether it took effect. The step records that it
    /// begins before its body executes. If the body does not return, because of a crash, its
    /// [`timeout`](Self::timeout) or a panic, the step fails with the code `interrupted`, whatever
    /// [`retry`](Self::retry) says. Failures that the body itself returns are retried only if you set
    /// [`retry`](Self::retry).
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn fax(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, number: String) -> Result<bool, Failure> {
    /// let sent = ctx.step("fax", |_| fax(&number)).at_most_once().await;
    /// let nobody_knows = sent.is_err_and(|failure| failure.is("interrupted"));
    /// # Ok(nobody_knows) }
    /// ```
    pub fn at_most_once(mut self) -> Self {
        self.mode = Mode::AtMostOnce;
        self
    }

    /// Keeps the failure of a step that must not execute twice and whose body returned: it has no result
    /// that could be kept, and nobody else may execute it all the same.
    pub(super) fn keep_what_took_effect(&mut self) {
        if let (Mode::AtMostOnce, Some(keyed)) = (self.mode, &mut self.keyed) {
            keyed.keep_failure = true;
        }
    }
}

/// What the step fails with whose body did not return. Nobody knows whether that of a step which must
/// not execute twice took effect: it is interrupted, whatever the reason.
pub(super) fn unreturned(failure: Failure, mode: Mode) -> Failure {
    match mode {
        Mode::AtLeastOnce => failure,
        Mode::AtMostOnce => {
            let message = format!("{failure}. {}", Code::Interrupted.advice());
            Failure::engine(Code::Interrupted, message)
        }
    }
}
