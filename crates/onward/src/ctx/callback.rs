//! Callbacks: a secret that the world outside answers with, once.
//!
//! Owns: [`CallbackFuture`] and [`Callback`], and the forms of a token and of its record. Never shows the
//! secret but in the token: whoever has it may answer.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::signal::SignalFuture;
use super::{Ctx, StepFuture};
use crate::driver::board::{Board, Numbered};
use crate::limits::DURATION_MAX;
use crate::model::step_id;
use crate::{Code, Entry, Error, Failure, Json, Record, RunId, Timestamp};

/// A callback that is being made; made by [`Ctx::callback`](crate::Ctx::callback).
#[must_use = "a callback is made when it is awaited"]
pub struct CallbackFuture<'a, T> {
    step: StepFuture<'a, Issued>,
    board: Arc<Board>,
    number: Numbered,
    polled: bool,
    output: PhantomData<fn() -> T>,
}

/// What is recorded of a callback.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Issued {
    /// What the answer must come with.
    pub(crate) secret: String,
    /// When it is too late to answer.
    pub(crate) expires_at: Option<Timestamp>,
}

impl<T: DeserializeOwned> CallbackFuture<'_, T> {
    pub(super) fn new(ctx: &Ctx) -> Self {
        Self::issued(ctx, ctx.board.take_number("$callback"), None)
    }

    fn issued(ctx: &Ctx, number: Numbered, expires_at: Option<Timestamp>) -> Self {
        let issue =
            move |_| async move { Ok::<_, Failure>(Issued { secret: secret(), expires_at }) };
        let step = ctx.step(step_id::CALLBACK, issue).id(number.number);
        Self { step, board: Arc::clone(&ctx.board), number, polled: false, output: PhantomData }
    }

    /// Refuses an answer after this time, with `callback_expired`, and lets
    /// [`Callback::result`] give nothing then.
    pub fn valid_for(self, time: Duration) -> Self {
        let expires_at = self.board.now() + time.min(DURATION_MAX);
        let ctx = Ctx::new(Arc::clone(&self.board), None);
        let number = self.number.clone();
        drop(self);
        Self::issued(&ctx, number, Some(expires_at))
    }
}

impl<T> Future for CallbackFuture<'_, T> {
    type Output = Result<Callback<T>, Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.polled, true) {
            this.board.check_number(&this.number);
        }
        let Poll::Ready(issued) = Pin::new(&mut this.step).poll(cx) else { return Poll::Pending };
        Poll::Ready(issued.map(|issued| Callback {
            token: Token { run: this.board.run, number: this.number.number, secret: issued.secret },
            expires_at: issued.expires_at,
            board: Arc::clone(&this.board),
            output: PhantomData,
        }))
    }
}

/// A question to the world outside: hand its token on, then wait for the answer.
pub struct Callback<T> {
    token: Token,
    expires_at: Option<Timestamp>,
    board: Arc<Board>,
    output: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Callback<T> {
    /// The secret to hand on: letters, digits and dots, so it fits into a URL. Whoever has it can
    /// answer, once, with [`Onward::resolve`](crate::Onward::resolve).
    pub fn token(&self) -> String {
        self.token.to_string()
    }

    /// Waits for the answer; gives nothing when it is too late for one.
    ///
    /// # Errors
    /// When the history is full.
    pub async fn result(self) -> Result<Option<T>, Failure> {
        let wait = SignalFuture::new(Arc::clone(&self.board), &self.token.signal());
        match self.expires_at {
            Some(expires_at) => wait.until(expires_at).await,
            None => wait.await.map(Some),
        }
    }
}

/// What a token says.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) run: RunId,
    pub(crate) number: u32,
    pub(crate) secret: String,
}

impl Token {
    /// The name of the signal that carries the answer.
    pub(crate) fn signal(&self) -> String {
        step_id::callback_signal(self.number)
    }

    /// The step that the callback is recorded as.
    pub(crate) fn step(&self) -> String {
        step_id::callback(self.number)
    }

    /// Whether this secret is the issued one. Hashes are compared, so that how long it takes says
    /// nothing about the secret.
    pub(crate) fn fits(&self, issued: &Issued) -> bool {
        Sha256::digest(self.secret.as_bytes()) == Sha256::digest(issued.secret.as_bytes())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}.{}.{}", self.run.as_u128(), self.number, self.secret)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || Error::new(Code::CallbackUnknown);
        let mut parts = text.trim().splitn(3, '.');
        let mut part = || parts.next().ok_or_else(unknown);
        let run = part()?;
        if run.len() != 32 {
            return Err(unknown());
        }
        let run = u128::from_str_radix(run, 16).map_err(|_| unknown())?;
        let number = part()?.parse().map_err(|_| unknown())?;
        let secret = part()?.to_owned();
        Ok(Self { run: RunId::from_u128(run), number, secret })
    }
}

impl Record {
    /// Takes the secret out of the record of a callback, so that it can be shown to people who are not to
    /// answer; any other is left as it is.
    ///
    /// ```
    /// use onward::{Entry, Json, Record, Timestamp};
    ///
    /// let issued = Entry::Done(Json::parse(r#"{"secret":"5f2a","expires_at":null}"#)?);
    /// let record = Record::new(1, "callback#=1", issued, Timestamp::from_millis(0));
    /// let shown = Json::parse(r#"{"secret":null,"expires_at":null}"#)?;
    /// assert_eq!(record.without_secret().entry, Entry::Done(shown));
    /// # Ok::<(), onward::Error>(())
    /// ```
    #[must_use]
    pub fn without_secret(mut self) -> Self {
        #[derive(Serialize)]
        struct Shown {
            secret: Option<String>,
            expires_at: Option<Timestamp>,
        }
        let is_callback = step_id::callback_number(&self.step).is_some();
        if let (true, Entry::Done(json)) = (is_callback, &self.entry)
            && let Ok(Issued { expires_at, .. }) = json.read()
            && let Ok(shown) = Json::of(&Shown { secret: None, expires_at })
        {
            self.entry = Entry::Done(shown);
        }
        self
    }
}

/// A hundred and twenty-eight bits that nobody can guess.
fn secret() -> String {
    let mut hash = Sha256::new();
    // Each has seventy-four random bits.
    hash.update(RunId::new().as_u128().to_be_bytes());
    hash.update(RunId::new().as_u128().to_be_bytes());
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<T> fmt::Debug for CallbackFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackFuture").field("number", &self.number.number).finish()
    }
}

/// Without the secret, which must not get into a log.
impl<T> fmt::Debug for Callback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").field("run", &self.token.run).finish_non_exhaustive()
    }
}
