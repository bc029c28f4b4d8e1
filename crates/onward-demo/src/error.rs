//! Why the demo could not be run.

use std::{fmt, io};

/// Why the demo could not be run to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Its options make no sense.
    Usage(String),
    /// The library returned an error.
    Library(onward::Error),
    /// A file, a socket or a process failed: what was being done, and why it failed.
    Io(String, io::Error),
    /// The user interrupted it.
    Interrupted,
    /// The reader of the output is gone, as with `head`.
    OutputClosed,
}

impl Error {
    /// For `map_err`: what was being done when the system refused.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        |error| Error::Io(what, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) => f.write_str(text),
            Error::Library(error) => write!(f, "{error}"),
            Error::Io(what, error) => write!(f, "{what}: {error}"),
            Error::Interrupted => f.write_str("the demo was interrupted"),
            Error::OutputClosed => f.write_str("the reader of the output is gone"),
        }
    }
}

impl std::error::Error for Error {}

impl From<onward::Error> for Error {
    fn from(error: onward::Error) -> Self {
        Error::Library(error)
    }
}

/// Only printing fails as a bare io error; everything else names what it was doing.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Error::OutputClosed,
            _ => Error::Io("cannot print".to_owned(), error),
        }
    }
}
