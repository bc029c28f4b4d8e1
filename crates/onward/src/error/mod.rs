//! The error that callers hold.
//!
//! Owns: [`Error`], one word wide, with a stable [`Code`], the run it is about and its source.
//! Never a foreign type in a public signature. What user code failed with is a
//! [`Failure`](crate::Failure), which an error may carry.

mod code;

use std::error::Error as StdError;
use std::fmt;

pub use code::Code;
use serde_json::error::Category;

use crate::limits::{NAME_BYTES_MAX, PAYLOAD_BYTES_MAX};
use crate::model::step_id;
use crate::store::{self, Conflict, Outage};
use crate::{Failure, Key, RunId};

/// What a call of the library could not do.
///
/// Branch on [`code`](Error::code); print the error for a sentence that says what to do.
///
/// ```
/// use onward::{Code, Onward};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let error = Onward::open("mysql://localhost").await.unwrap_err();
/// assert_eq!(error.code(), Code::UnknownStoreUrl);
/// assert!(!error.is_retryable());
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    code: Code,
    /// What is particular to this error; the code's advice follows it.
    about: Option<String>,
    run: Option<RunId>,
    failure: Option<Failure>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(code: Code) -> Self {
        Self(Box::new(Inner { code, about: None, run: None, failure: None, source: None }))
    }

    pub(crate) fn about(mut self, about: impl Into<String>) -> Self {
        self.0.about = Some(about.into());
        self
    }

    pub(crate) fn of_run(mut self, run: RunId) -> Self {
        self.0.run = Some(run);
        self
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn run_failed(run: RunId, failure: Failure) -> Self {
        let mut error = Self::new(Code::RunFailed).of_run(run).about(failure.to_string());
        error.0.failure = Some(failure);
        error
    }

    pub(crate) fn key_failed(key: &Key, failure: Failure) -> Self {
        let mut error = Self::new(Code::KeyFailed).about(format!("{key:?}: {failure}"));
        error.0.failure = Some(failure);
        error
    }

    pub(crate) fn invalid_id(text: &str) -> Self {
        Self::new(Code::InvalidId).about(format!("{text:?}"))
    }

    pub(crate) fn payload_too_large(bytes: usize) -> Self {
        Self::new(Code::PayloadTooLarge)
            .about(format!("{bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}"))
    }

    /// A text that does not fit its type. What serde says of it quotes the value, which may be a secret,
    /// and this is stored and shown: so it is told only where the value is and what was wanted.
    pub(crate) fn type_mismatch(wanted: &str, source: &serde_json::Error) -> Self {
        let what = match source.classify() {
            Category::Io | Category::Syntax => "it is no JSON",
            Category::Eof => "it ends too early",
            Category::Data => "it does not fit",
        };
        let place = match (source.line(), source.column()) {
            (0, _) => String::new(),
            (line, column) => format!(" at line {line} column {column}"),
        };
        let missing = missing_field(&source.to_string()).unwrap_or_default();
        Self::new(Code::TypeMismatch).about(format!("read as {wanted}: {what}{place}{missing}"))
    }

    /// What is particular to this error, without its code and the code's advice.
    pub(crate) fn detail(&self) -> String {
        let source = self.0.source.as_ref().map(ToString::to_string);
        let parts: Vec<String> = self.0.about.clone().into_iter().chain(source).collect();
        let parts: Vec<&str> = parts.iter().map(|part| open_ended(part)).collect();
        parts.join(": ")
    }

    /// What went wrong, as a stable name.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Whether the same call may succeed later without a change.
    pub fn is_retryable(&self) -> bool {
        self.0.code.is_retryable()
    }

    /// The run this is about: for `key_conflict`, the one that holds the key.
    pub fn run(&self) -> Option<RunId> {
        self.0.run
    }

    /// What the run failed with, when the code is `run_failed`, or the work of a key, when it is
    /// `key_failed`.
    pub fn failure(&self) -> Option<&Failure> {
        self.0.failure.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.code)?;
        if let Some(run) = self.0.run {
            write!(f, " (run {run})")?;
        }
        if let Some(about) = &self.0.about {
            write!(f, ": {}", open_ended(about))?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {}", open_ended(&source.to_string()))?;
        }
        write!(f, ". {}", self.0.code.advice())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::LeaseLost => Self::new(Code::LeaseLost),
            error @ store::Error::HistoryLost => Self::new(Code::StoreUnavailable).because(error),
            store::Error::NotFound => Self::new(Code::RunNotFound),
            store::Error::Conflict(conflict) => Self::from(conflict),
            store::Error::Unavailable(outage, source) => {
                Self::new(outage_code(outage)).because(source)
            }
            store::Error::Corrupt(source) => Self::new(Code::StoreCorrupt).because(source),
            store::Error::Unreadable(unreadable) => {
                let mut error = Self::new(Code::PayloadUnreadable).about(unreadable.to_string());
                error.0.run = unreadable.run;
                error
            }
        }
    }
}

impl From<Conflict> for Error {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::KeyInput { run } => Self::new(Code::KeyConflict).of_run(run),
            Conflict::KeyTaken { run } => Self::new(Code::KeyTaken).of_run(run),
            Conflict::Finished { run } => Self::new(Code::RunFinished).of_run(run),
            Conflict::NotFailed { run } => Self::new(Code::RunNotFailed).of_run(run),
            Conflict::Ending { run } => {
                Self::new(Code::RunFinished).of_run(run).about("it is asked to end")
            }
            Conflict::NoSuchStep { run } => Self::new(Code::StepNotFound).of_run(run),
            Conflict::ChildOpen { run } => Self::new(Code::ForkRefused).of_run(run),
            Conflict::CallbackOpen { run, number } => {
                let step = step_id::callback(number);
                let about = format!("the callback {step:?} had no answer; fork from {step:?}");
                Self::new(Code::ForkRefused).of_run(run).about(about)
            }
            Conflict::Undone { run } => Self::new(Code::RunUndone).of_run(run),
            Conflict::NotEnded { run } => Self::new(Code::RunNotEnded).of_run(run),
            Conflict::SignalsFull { run } => Self::new(Code::SignalsFull).of_run(run),
            Conflict::RunDiffers { run } => Self::new(Code::CopyConflict).of_run(run),
            Conflict::KeyHeld { run, holder } => {
                Self::new(Code::CopyConflict).of_run(run).about(format!("run {holder} has its key"))
            }
            Conflict::QueuesFull => Self::new(Code::QueuesFull),
            Conflict::StepKeyDiffers => Self::new(Code::CopyConflict),
            Conflict::Record { run } => Self::new(Code::HistoryMismatch).of_run(run),
        }
    }
}

/// What serde says of a field that is not there. Its name is the type's, and no part of a value.
fn missing_field(said: &str) -> Option<String> {
    let name = said.strip_prefix("missing field `")?.split('`').next()?;
    Some(format!(", the field `{name}` is missing"))
}

fn outage_code(outage: Outage) -> Code {
    match outage {
        Outage::NoAnswer => Code::StoreUnavailable,
        Outage::Locked => Code::StoreLocked,
        Outage::Full => Code::StoreFull,
        Outage::ReadOnly => Code::StoreReadOnly,
        Outage::Replaced => Code::StoreReplaced,
    }
}

/// A text without the full stop at its end, for what goes on after it: causes of others' making are
/// sentences, or are not.
pub(crate) fn open_ended(text: &str) -> &str {
    text.strip_suffix('.').filter(|rest| !rest.ends_with('.')).unwrap_or(text)
}

/// Checks a name that goes into an index: a workflow, queue or tag.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    check_text(what, name, NAME_BYTES_MAX)
}

/// Checks a text that goes into an index.
pub(crate) fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::new(Code::NulCharacter).about(format!("{what} {text:?}")));
    }
    if text.is_empty() {
        return Err(Error::new(Code::InvalidName).about(format!("the {what} is empty")));
    }
    if text.len() > bytes_max {
        let start: String = text.chars().take(40).collect();
        let about = format!("the {what} {start:?}… has {} bytes, limit {bytes_max}", text.len());
        return Err(Error::new(Code::InvalidName).about(about));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_a_sentence_ends_in_one_full_stop() {
        let said = |about: &str, source: &str| {
            let error = Error::new(Code::StoreUnavailable).about(about).because(source);
            let text = error.to_string();
            let advice = format!(". {}", Code::StoreUnavailable.advice());
            text.strip_suffix(&advice).unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        assert_eq!(said("it went.", "so it is."), "store_unavailable: it went: so it is");
        assert_eq!(said("it went", "so it is"), "store_unavailable: it went: so it is");
        assert_eq!(said("it went", "and so on..."), "store_unavailable: it went: and so on...");
        let failed = Failure::fatal("The bank said no.");
        let failed = Error::run_failed(RunId::new(), failed).to_string();
        assert!(!failed.contains(".."), "{failed}");
        let error = Error::new(Code::StoreCorrupt).about("one.").because("two.");
        assert_eq!(error.detail(), "one: two");
    }
}
