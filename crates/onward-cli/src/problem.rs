//! What a command could not do, and the exit code that says so.
//!
//! Owns: the exit codes, and which of the library's codes leads to which. Never words an
//! error of the library anew; that has its own sentence.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use anstyle::{AnsiColor, Style};
use onward::{Code, Error};

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// It did what it was asked.
    Ok = 0,
    /// No: a run failed, or something was refused.
    No = 1,
    /// It was called in a way that makes no sense.
    Usage = 2,
    /// There is no such run, key or schedule.
    NotFound = 3,
    /// The store or the server cannot be opened or does not answer.
    Unavailable = 4,
    /// The user interrupted it, as shells have it.
    Interrupted = 130,
}

/// Why a command stops.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The library said no.
    Library(Error),
    /// There is no database where one was to be looked at.
    NoDatabase {
        /// Where it was looked for.
        path: PathBuf,
        /// The flag that says where it is.
        named_by: &'static str,
    },
    /// There is no such thing.
    NotThere(String),
    /// There is no such step key.
    NoStepKey(String),
    /// Flags that clap takes but that make no sense together.
    Usage(String),
    /// A file or a process let us down.
    Io(String, io::Error),
    /// A server, or the API over a store, said no.
    Refused {
        /// The library's code, where this program knows it.
        code: Option<Code>,
        /// What it said.
        detail: String,
    },
    /// There is no server, or no way to it.
    NoServer {
        /// Where it was looked for.
        url: String,
        /// What came instead.
        why: String,
    },
    /// A server's certificate is not one that this machine trusts.
    Untrusted {
        /// The server.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A server does not take the token, or wants one.
    WrongToken {
        /// The server.
        url: String,
        /// Whether a token was sent.
        sent: bool,
    },
    /// A server answered with what makes no sense.
    Server(String),
    /// The user interrupted it.
    Interrupted(String),
    /// Whoever read the output has gone, as `head` does.
    OutputClosed,
}

impl Problem {
    /// For `map_err`: what was being done when the system refused.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Problem {
        let what = what.into();
        |error| Problem::Io(what, error)
    }

    /// The library's code, where it is about one.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Problem::Library(error) => Some(error.code()),
            Problem::Refused { code, .. } => *code,
            _ => None,
        }
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Problem::Library(error) => exit_of(error.code()),
            Problem::Refused { code, .. } => code.map_or(Exit::No, exit_of),
            Problem::NoDatabase { .. }
            | Problem::NoServer { .. }
            | Problem::Untrusted { .. }
            | Problem::WrongToken { .. }
            | Problem::Server(_) => Exit::Unavailable,
            Problem::NotThere(_) | Problem::NoStepKey(_) => Exit::NotFound,
            Problem::Usage(_) => Exit::Usage,
            Problem::Io(..) => Exit::No,
            Problem::Interrupted(_) => Exit::Interrupted,
            Problem::OutputClosed => Exit::Ok,
        }
    }

    /// Says it on stderr, with a hint where one helps.
    pub(crate) fn print(&self) {
        if matches!(self, Problem::OutputClosed) {
            return;
        }
        print_error(self);
        if self.exit() == Exit::Usage {
            anstream::eprintln!("For what can be given, try '--help'.");
        }
    }
}

/// Prints `error: …` on stderr.
pub(crate) fn print_error(error: &dyn fmt::Display) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    anstream::eprintln!("{red}error:{red:#} {error}");
}

/// Prints `note: …` on stderr.
pub(crate) fn print_note(note: &dyn fmt::Display) {
    let bold = Style::new().bold();
    anstream::eprintln!("{bold}note:{bold:#} {note}");
}

fn exit_of(code: Code) -> Exit {
    match code {
        Code::RunNotFound | Code::KeyNotFound | Code::ScheduleNotFound => Exit::NotFound,
        Code::InvalidStorePath
        | Code::StoreUnavailable
        | Code::StoreLocked
        | Code::StoreFull
        | Code::StoreReadOnly
        | Code::StoreReplaced
        | Code::StoreCorrupt
        | Code::StoreNotDurable
        | Code::SchemaMissing
        | Code::SchemaTooOld
        | Code::SchemaTooNew => Exit::Unavailable,
        Code::UnknownStoreUrl
        | Code::InvalidName
        | Code::InvalidId
        | Code::InvalidOption
        | Code::InvalidSchedule
        | Code::InvalidKeyRing
        | Code::InvalidRequest
        | Code::NulCharacter
        | Code::NotSerializable
        | Code::PayloadTooLarge => Exit::Usage,
        _ => Exit::No,
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Library(error) => write!(f, "{error}"),
            Problem::NoDatabase { path, named_by } => write!(
                f,
                "there is no database at {}, and this command does not create one. Say where it \
                 is with {named_by}; 'onward start' and a worker of yours create it.",
                path.display()
            ),
            Problem::NoStepKey(key) => write!(
                f,
                "the step key {key:?} is free: nobody has it, and no result is kept with it. A \
                 run's key is shown by 'onward keys show WORKFLOW KEY'."
            ),
            Problem::Usage(text)
            | Problem::Server(text)
            | Problem::NotThere(text)
            | Problem::Interrupted(text) => f.write_str(text),
            Problem::Refused { detail, .. } => f.write_str(detail),
            Problem::NoServer { url, why } => write!(
                f,
                "no server answers at {url} ({why}). Start one with 'onward serve', or say where \
                 it is with --server URL or ONWARD_SERVER."
            ),
            Problem::Untrusted { url, why } => write!(
                f,
                "the server at {url} is not trusted ({why}). Use a name that its certificate is \
                 made for; an authority that this machine does not know is named by its file, \
                 with SSL_CERT_FILE."
            ),
            Problem::WrongToken { url, sent: true } => write!(
                f,
                "the server at {url} does not know this token. Put one of its own into \
                 ONWARD_TOKEN, or its file into --token-file; 'onward tokens create' makes one."
            ),
            Problem::WrongToken { url, sent: false } => write!(
                f,
                "the server at {url} wants a token. Put it into ONWARD_TOKEN, or its file into \
                 --token-file; 'onward tokens create' makes one."
            ),
            Problem::Io(what, error) => write!(f, "{what}: {error}"),
            Problem::OutputClosed => f.write_str("the reader of the output has gone"),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Problem::Library(error)
    }
}

impl From<onward_demo::Error> for Problem {
    fn from(error: onward_demo::Error) -> Self {
        use onward_demo::Error as Demo;
        match error {
            Demo::Usage(why) => Problem::Usage(why),
            Demo::Library(error) => Problem::Library(error),
            Demo::Io(what, error) => Problem::Io(what, error),
            Demo::OutputClosed => Problem::OutputClosed,
            other => Problem::Interrupted(other.to_string()),
        }
    }
}

/// Only what is printed fails as a bare io error; everything else names what it was doing.
impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Problem::OutputClosed,
            _ => Problem::Io("cannot print".to_owned(), error),
        }
    }
}

impl From<serde_json::Error> for Problem {
    fn from(error: serde_json::Error) -> Self {
        Problem::from(io::Error::from(error))
    }
}
