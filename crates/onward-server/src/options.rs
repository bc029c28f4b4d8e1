//! What a server is told: who may do what, and what is shown.
//!
//! Owns: [`Options`]. Never checks a request; the guard does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use onward::{Json, Run, RunId};

use crate::token::Tokens;

/// What a caller may do. Each role may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look.
    Read,
    /// Start runs and steer them.
    Operate,
    /// Delete, release keys, change limits, see the audit.
    Admin,
}

impl Role {
    /// Every role, from the least on.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// Its name, as it is written in token files and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Whoever sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Their name, as the audit has it.
    pub who: String,
    /// What they may do.
    pub role: Role,
}

type Asked = Arc<dyn Fn(&Parts) -> Option<Caller> + Send + Sync>;
type Redact = Arc<dyn Fn(Payload<'_>) -> Json + Send + Sync>;

/// Who gets in.
#[derive(Clone)]
pub enum Access {
    /// Whoever reaches the server, in this role: on a machine of one's own, or behind the login of an
    /// application that the router is mounted in.
    Open(Role),
    /// Whoever has one of these tokens.
    Tokens(Tokens),
    /// Whoever the application says, from the head of the request.
    Asked(Asked),
}

impl Access {
    /// Asks a function of yours who sends a request; `None` refuses it.
    ///
    /// ```
    /// use onward_server::{Access, Caller, Role};
    ///
    /// let access = Access::asked(|head| {
    ///     let who = head.headers.get("x-user")?.to_str().ok()?.to_owned();
    ///     Some(Caller { who, role: Role::Read })
    /// });
    /// # let _ = access;
    /// ```
    pub fn asked(ask: impl Fn(&Parts) -> Option<Caller> + Send + Sync + 'static) -> Self {
        Access::Asked(Arc::new(ask))
    }
}

/// A payload that is about to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// What it is.
    pub json: &'a Json,
    /// Where it stands.
    pub place: PayloadPlace,
    /// The workflow, where it belongs to one: not for work outside any run, nor for a step key whose run
    /// was deleted.
    pub workflow: Option<&'a str>,
    /// The run, where it belongs to one.
    pub run: Option<RunId>,
}

/// Where a payload stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadPlace {
    /// What a run or the runs of a schedule are started with.
    Input,
    /// What a run ended with.
    Output,
    /// What a step gave, or a signal carried.
    Record,
    /// The details of a failure.
    Details,
    /// What is kept with a step key.
    StepKey,
    /// A line of a run's log, as a JSON text.
    Log,
}

/// How a router behaves.
#[derive(Clone)]
pub struct Options {
    pub(crate) access: Access,
    pub(crate) hosts: Vec<String>,
    pub(crate) hide_payloads: bool,
    pub(crate) read_only: bool,
    pub(crate) only_answers: bool,
    pub(crate) redact: Option<Redact>,
    pub(crate) rate_burst: u32,
    pub(crate) rate_per_second: u32,
    pub(crate) secure_cookie: bool,
    pub(crate) key_required: Vec<String>,
    pub(crate) body_max: Duration,
    pub(crate) ping_every: Duration,
    pub(crate) streams_max: usize,
}

impl Options {
    /// Lets these in, and answers to the names of the machine itself only.
    pub fn new(access: Access) -> Self {
        Self {
            access,
            hosts: Vec::new(),
            hide_payloads: false,
            read_only: false,
            only_answers: false,
            redact: None,
            rate_burst: crate::limits::RATE_BURST,
            rate_per_second: crate::limits::RATE_PER_SECOND,
            secure_cookie: false,
            key_required: Vec::new(),
            body_max: crate::limits::BODY_MAX,
            ping_every: crate::limits::PING_EVERY,
            streams_max: crate::limits::STREAMS_MAX,
        }
    }

    /// Answers to these names too, as a browser writes them into `Host`, without a port; `*` for any.
    /// Otherwise only `localhost` and the addresses of loopback are answered to, so that a page of
    /// somebody else cannot reach the server by a name that leads to it.
    #[must_use]
    pub fn hosts<T: Into<String>>(mut self, hosts: impl IntoIterator<Item = T>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host.into().to_lowercase()));
        self
    }

    /// Shows no payload to anybody: inputs, outputs and results are `null`, and failures have no
    /// details.
    #[must_use]
    pub fn hide_payloads(mut self) -> Self {
        self.hide_payloads = true;
        self
    }

    /// Refuses every change, whoever asks for it.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Executes no changes of many runs, and leaves those that it is asked for to others on the store: for
    /// a process that answers a few requests and ends.
    #[must_use]
    pub fn only_answers(mut self) -> Self {
        self.only_answers = true;
        self
    }

    /// Shows of a payload what this function makes of it.
    ///
    /// ```
    /// use onward::Json;
    /// use onward_server::{Access, Options, Role};
    ///
    /// let options = Options::new(Access::Open(Role::Read)).redact(|payload| {
    ///     if payload.workflow == Some("payroll") {
    ///         return Json::stored("\"left out\"");
    ///     }
    ///     payload.json.clone()
    /// });
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn redact(mut self, redact: impl Fn(Payload<'_>) -> Json + Send + Sync + 'static) -> Self {
        self.redact = Some(Arc::new(redact));
        self
    }

    /// How many requests one caller may send at once, and how many in a second over time.
    #[must_use]
    pub fn rate(mut self, burst: u32, per_second: u32) -> Self {
        (self.rate_burst, self.rate_per_second) = (burst, per_second);
        self
    }

    /// Lets browsers send the dashboard's cookie over HTTPS only. Set it where a proxy speaks HTTPS
    /// for this server.
    #[must_use]
    pub fn secure_cookie(mut self) -> Self {
        self.secure_cookie = true;
        self
    }

    /// Refuses a start of one of these workflows, `*` for any, that comes without an `Idempotency-Key`:
    /// where a run must not be started twice, a caller that forgot the key learns it at once.
    #[must_use]
    pub fn require_key<T: Into<String>>(mut self, workflows: impl IntoIterator<Item = T>) -> Self {
        self.key_required.extend(workflows.into_iter().map(Into::into));
        self
    }

    /// How long a client may take to send the body of a request:
    /// [`BODY_MAX`](crate::limits::BODY_MAX), unless set.
    #[must_use]
    pub fn body_max(mut self, body_max: Duration) -> Self {
        self.body_max = body_max;
        self
    }

    /// The pause after which a stream says that it lives:
    /// [`PING_EVERY`](crate::limits::PING_EVERY), unless set.
    #[must_use]
    pub fn ping_every(mut self, ping_every: Duration) -> Self {
        // An interval of nothing is none.
        self.ping_every = ping_every.max(Duration::from_millis(1));
        self
    }

    /// How many streams are open at once: [`STREAMS_MAX`](crate::limits::STREAMS_MAX), unless set.
    #[must_use]
    pub fn streams_max(mut self, streams_max: usize) -> Self {
        self.streams_max = streams_max;
        self
    }

    /// Whether a start of this workflow needs a key.
    pub(crate) fn requires_key(&self, workflow: &str) -> bool {
        self.key_required.iter().any(|name| name == "*" || name == workflow)
    }

    /// Whether one has to say who one is.
    pub(crate) fn asks(&self) -> bool {
        !matches!(self.access, Access::Open(_))
    }

    /// A payload as it may be shown.
    pub(crate) fn shown(&self, payload: Payload<'_>) -> Json {
        match &self.redact {
            _ if self.hide_payloads => Json::stored("null"),
            Some(redact) => redact(payload),
            None => payload.json.clone(),
        }
    }

    /// A payload of a run as it may be shown.
    pub(crate) fn shown_of(&self, run: &Run, place: PayloadPlace, json: &Json) -> Json {
        let workflow = Some(run.workflow.as_str());
        self.shown(Payload { json, place, workflow, run: Some(run.id) })
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("hosts", &self.hosts)
            .field("hide_payloads", &self.hide_payloads)
            .field("read_only", &self.read_only)
            .field("only_answers", &self.only_answers)
            .finish_non_exhaustive()
    }
}
