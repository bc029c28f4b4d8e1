//! What user code failed with: data that is recorded, shown and replayed.
//!
//! Owns: [`Failure`]. Never an `Error`: that is what lets every error become a failure with `?`.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{FAILURE_MESSAGE_BYTES_MAX, NAME_BYTES_MAX};
use crate::{Code, Json, RunId};

/// What a step or a workflow failed with.
///
/// Any error turns into a failure with `?`, and is retried. The constructors say more:
///
/// ```
/// use onward::Failure;
/// use std::time::Duration;
///
/// let io: Failure = std::io::Error::other("connection reset").into();
/// assert!(io.retryable);
///
/// let declined = Failure::fatal("the bank said no").code("card_declined");
/// assert!(!declined.retryable);
/// assert!(declined.is("card_declined"));
///
/// let busy = Failure::retry_after(Duration::from_secs(60), "rate limited");
/// assert_eq!(busy.retry_after, Some(Duration::from_secs(60)));
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failure(Box<FailureData>);

/// The fields of a [`Failure`], which read as its own.
#[derive(Clone, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureData {
    /// A stable name to branch on; `failed` unless it was set.
    pub code: String,
    /// What happened, for people. The causes of an error follow it, each after a colon.
    pub message: String,
    /// Whatever else the caller wants to know, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// Whether another try may succeed.
    pub retryable: bool,
    /// When the next try should come, where the other side said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// The child whose failure this is, in the run that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunId>,
    /// The step whose recorded failure this is, so that a retry of the run knows what to void.
    #[serde(skip)]
    pub(crate) step: Option<Box<str>>,
}

/// Failures are equal when what is stored of them is: one that a store gave back, and one that has
/// just been made.
impl PartialEq for FailureData {
    fn eq(&self, other: &Self) -> bool {
        let Self { code, message, details, retryable, retry_after, child, step: _ } = self;
        *code == other.code
            && *message == other.message
            && *details == other.details
            && *retryable == other.retryable
            && *retry_after == other.retry_after
            && *child == other.child
    }
}

impl Failure {
    /// A failure that is worth another try.
    pub fn new(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of(Code::Failed, message_of(error.into().as_ref()), true)
    }

    /// A failure that no further try can mend.
    pub fn fatal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of(Code::Failed, message_of(error.into().as_ref()), false)
    }

    /// A failure whose next try should come after `delay`.
    pub fn retry_after(delay: Duration, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let mut failure = Self::new(error);
        failure.0.retry_after = Some(delay);
        failure
    }

    /// A failure that the engine makes.
    pub(crate) fn engine(code: Code, message: impl Into<String>) -> Self {
        Self::of(code, message.into(), code.is_retryable())
    }

    /// What a panic in user code becomes.
    pub(crate) fn of_panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::engine(Code::Panic, text.unwrap_or_else(|| "a value that is no text".to_owned()))
    }

    fn of(code: Code, mut message: String, retryable: bool) -> Self {
        cut(&mut message);
        Self(Box::new(FailureData {
            code: code.as_str().to_owned(),
            message,
            details: None,
            retryable,
            retry_after: None,
            child: None,
            step: None,
        }))
    }

    /// Sets the code that callers branch on, on replay too. It is cut at `NAME_BYTES_MAX` bytes.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.0.code = code.into();
        let end = self.0.code.floor_char_boundary(NAME_BYTES_MAX);
        self.0.code.truncate(end);
        self
    }

    /// Attaches details. A value without a JSON form is left out, and the message says so.
    ///
    /// ```
    /// # use onward::Failure;
    /// let failure = Failure::fatal("the bank said no").code("card_declined").details(&("visa", 42));
    /// let details = failure.details.as_ref().unwrap();
    /// assert_eq!(details.read::<(String, u32)>().unwrap(), ("visa".to_owned(), 42));
    /// ```
    #[must_use]
    pub fn details<T: Serialize + ?Sized>(mut self, details: &T) -> Self {
        match Json::of(details) {
            Ok(json) => self.0.details = Some(json),
            Err(error) => self.0.message.push_str(&format!(" (details left out: {error})")),
        }
        self
    }

    pub(crate) fn without_details(mut self) -> Self {
        self.0.details = None;
        self
    }

    /// Bytes of payload, as the history limit counts them.
    pub(crate) fn bytes(&self) -> usize {
        self.message.len() + self.details.as_ref().map_or(0, |json| json.as_str().len())
    }

    /// Whether the failure has this code.
    pub fn is(&self, code: &str) -> bool {
        self.0.code == code
    }

    /// Puts another message and other details in the place of its own, of whatever length.
    pub(crate) fn replace(&mut self, message: String, details: Option<Json>) {
        (self.0.message, self.0.details) = (message, details);
    }

    pub(crate) fn of_child(mut self, run: RunId) -> Self {
        self.0.child = Some(run);
        self
    }

    pub(crate) fn at_step(mut self, step: &str) -> Self {
        self.0.step = Some(step.into());
        self
    }
}

impl Deref for Failure {
    type Target = FailureData;

    fn deref(&self) -> &FailureData {
        &self.0
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is(Code::Failed.as_str()) {
            f.write_str(&self.0.message)
        } else {
            write!(f, "{}: {}", self.0.code, self.0.message)
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error and its causes in one line. A cause that its parent already quotes is left out.
fn message_of(error: &(dyn StdError + 'static)) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = next.source();
    }
    message
}

fn cut(message: &mut String) {
    if message.len() > FAILURE_MESSAGE_BYTES_MAX {
        let end = message.floor_char_boundary(FAILURE_MESSAGE_BYTES_MAX);
        message.truncate(end);
        message.push_str(" … (cut)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_failure() {
        fn io() -> Result<(), Failure> {
            Err(std::io::Error::other("down"))?
        }
        fn anyhow() -> Result<(), Failure> {
            Err(anyhow::anyhow!("root").context("outer"))?
        }
        fn text() -> Result<(), Failure> {
            Err("plain")?
        }
        assert_eq!(io().unwrap_err().message, "down");
        assert_eq!(anyhow().unwrap_err().message, "outer: root");
        assert_eq!(text().unwrap_err().message, "plain");
    }

    #[test]
    fn a_failure_survives_storage() {
        let failure = Failure::fatal("no").code("declined").details(&("visa", 42));
        let stored = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&stored).unwrap(), failure);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let failure = Failure::new("é".repeat(FAILURE_MESSAGE_BYTES_MAX));
        assert!(failure.message.len() < FAILURE_MESSAGE_BYTES_MAX + 20);
    }
}
