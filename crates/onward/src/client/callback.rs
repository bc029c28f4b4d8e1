//! Answering a callback.
//!
//! Owns: [`Onward::resolve`], which tells an unknown token, a used one and an expired one apart.
//! Never says more about a token that does not fit: whoever guesses learns nothing.

use serde::Serialize;

use super::{Onward, SendSignal};
use crate::ctx::{Issued, Token};
use crate::limits::PAGE_ROWS_MAX;
use crate::store::{Error as StoreError, Inbox, InboxRest};
use crate::{Code, Entry, Error};

impl Onward {
    /// Answers a callback of a run, once. The same answer again changes nothing, so an answer whose
    /// reply was lost can be repeated.
    ///
    /// ```
    /// use onward::{Code, Ctx, Failure, Onward, Workflow};
    ///
    /// const ORDER: Workflow<u64, String> = Workflow::named("order");
    ///
    /// async fn order(ctx: Ctx, _: u64) -> Result<String, Failure> {
    ///     let callback = ctx.callback::<String>().await?;
    ///     let token = callback.token();
    ///     ctx.step("ask the warehouse", async |_| ask(&token).await).await?;
    ///     Ok(callback.result().await?.unwrap_or_default())
    /// }
    ///
    /// # static TOKEN: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());
    /// # async fn ask(token: &str) -> Result<(), std::io::Error> {
    /// #     TOKEN.lock().unwrap().push_str(token);
    /// #     Ok(())
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// # let worker = onward.worker().serve(ORDER, order).start().await?;
    /// let run = onward.start(ORDER, &7).await?;
    /// # let token = loop {
    /// #     let token = TOKEN.lock().unwrap().clone();
    /// #     if !token.is_empty() { break token; }
    /// #     tokio::task::yield_now().await;
    /// # };
    /// // Later, where the warehouse's answer comes in with the token:
    /// onward.resolve(&token, "in stock").await?;
    /// assert_eq!(run.result().await?, "in stock");
    /// # assert_eq!(onward.resolve(&token, "gone").await.unwrap_err().code(), Code::CallbackUsed);
    /// # worker.shutdown().await }
    /// ```
    ///
    /// # Errors
    /// `callback_unknown` for a token that no run has issued, `callback_used` when it was answered
    /// otherwise, `callback_expired` when it is too late or the run has ended, or that the store
    /// does not answer.
    pub async fn resolve<T: Serialize + ?Sized>(
        &self,
        token: &str,
        value: &T,
    ) -> Result<(), Error> {
        let token: Token = token.parse()?;
        let issued = self.issued(&token).await?;
        let signal = SendSignal::new(self.inner.clone(), token.run, &token.signal(), value);
        let new = signal.key(token.secret.as_str()).new_engine_signal()?;
        let now = self.inner.store.clock().now();
        let late = issued.expires_at.is_some_and(|expires_at| expires_at <= now);
        // An answer that was given in time may be repeated afterwards.
        if late && !self.is_answered(&token).await? {
            return Err(Error::new(Code::CallbackExpired).of_run(token.run));
        }
        match self.inner.store.signal(new).await.map_err(Error::from) {
            Ok(_) => Ok(()),
            Err(error) => Err(match error.code() {
                Code::KeyConflict => Error::new(Code::CallbackUsed).of_run(token.run),
                Code::RunFinished => Error::new(Code::CallbackExpired).of_run(token.run),
                _ => error.of_run(token.run),
            }),
        }
    }

    /// What the run has recorded of the callback, if the token fits it.
    async fn issued(&self, token: &Token) -> Result<Issued, Error> {
        let (step, unknown) = (token.step(), || Error::new(Code::CallbackUnknown));
        let mut after = None;
        loop {
            let page = match self.inner.store.history(token.run, after, PAGE_ROWS_MAX).await {
                Ok(page) => page,
                Err(StoreError::NotFound) => return Err(unknown()),
                Err(error) => return Err(error.into()),
            };
            let found = page.records.iter().find(|record| record.step == step);
            if let Some(Entry::Done(issued)) = found.map(|record| &record.entry) {
                let issued: Issued = issued.read()?;
                return if token.fits(&issued) { Ok(issued) } else { Err(unknown()) };
            }
            after = page.records.last().map(|record| record.seq);
            if !page.more {
                return Err(unknown());
            }
        }
    }

    async fn is_answered(&self, token: &Token) -> Result<bool, Error> {
        let mut after = 0;
        loop {
            let Inbox { signals, rest, .. } = self.inner.store.inbox(token.run, after).await?;
            if signals.iter().any(|signal| signal.name == token.signal()) {
                return Ok(true);
            }
            let last = signals.last().filter(|_| rest == InboxRest::More);
            let Some(last) = last else { return Ok(false) };
            after = last.no;
        }
    }
}
