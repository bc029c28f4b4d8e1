//! A transactional step: its body's writes and its record are committed together.
//!
//! Owns: [`TransactionFuture`] and the making of bodies for each kind of store. Never executes
//! one: the store does, inside its transaction.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::step::StepFuture;
use crate::{Failure, Retry};

/// A transactional step that is being set up or awaited; made by
/// [`Ctx::sqlite_transaction`](crate::Ctx::sqlite_transaction) and `Ctx::postgres_transaction`.
///
/// It is a [`StepFuture`] without `timeout` and `at_most_once`: how long a body may hold the
/// store's writer, or its locks in the database, is bounded by
/// [`TRANSACTION_TIME_MAX`](crate::limits::TRANSACTION_TIME_MAX), and it takes effect exactly
/// once.
///
/// ```compile_fail,E0599
/// # use onward::{Ctx, Failure};
/// # async fn workflow(ctx: Ctx) -> Result<(), Failure> {
/// ctx.sqlite_transaction("pay", |_, _| Ok::<_, Failure>(())).at_most_once().await
/// # }
/// ```
#[must_use = "a step does nothing until it is awaited"]
pub struct TransactionFuture<'a, T>(pub(super) StepFuture<'a, T>);

impl<T> TransactionFuture<'_, T> {
    /// How the step is tried again when it fails; [`Retry::default`] unless set. A try that failed
    /// has left nothing behind.
    ///
    /// ```
    /// # use {onward::{Ctx, Failure, Retry}, std::time::Duration};
    /// # async fn workflow(ctx: Ctx) -> Result<(), Failure> {
    /// let count = ctx.sqlite_transaction("count", |db, _| {
    ///     db.execute("update visits set n = n + 1", ()).map(|_| ())
    /// });
    /// count.retry(Retry::fixed(Duration::from_secs(1)).tries(3)).await
    /// # }
    /// ```
    pub fn retry(self, retry: Retry) -> Self {
        Self(self.0.retry(retry))
    }

    /// Gives the step an id of its own among the steps of its name, as
    /// [`StepFuture::id`] does.
    ///
    /// ```
    /// # use onward::{Ctx, Failure};
    /// # async fn workflow(ctx: Ctx, items: Vec<u64>) -> Result<(), Failure> {
    /// for item in items {
    ///     let save = ctx.sqlite_transaction("save", move |db, _| {
    ///         db.execute("insert into items values (?1)", [item.cast_signed()]).map(|_| ())
    ///     });
    ///     save.id(item).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn id(self, id: impl fmt::Display) -> Self {
        Self(self.0.id(id))
    }
}

impl<'a, T> Future for TransactionFuture<'a, T>
where
    T: Serialize + DeserializeOwned + Send + 'a,
{
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> fmt::Debug for TransactionFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::ctx::step::{Body, recordable};
    use crate::driver::wake::Here;
    use crate::store::TransactionBody;
    use crate::{Ctx, Step};

    impl Ctx {
        /// A transactional step in the store's own SQLite file: what its body writes and the
        /// step's record are committed together, so it takes effect exactly once, whatever crashes
        /// and whenever.
        ///
        /// The body is synchronous, since it executes on the thread that does all of the store's
        /// writing, and is undone past
        /// [`TRANSACTION_TIME_MAX`](crate::limits::TRANSACTION_TIME_MAX): keep it to a few
        /// statements. An error undoes what it wrote, and the step is tried again as any other is.
        /// It may also be executed and undone more than once, so whatever it does outside the
        /// database happens at least once. Begin, commit and rollback are the step's; a
        /// `savepoint` of its own is fine. Foreign keys are enforced.
        ///
        /// ```
        /// use onward::{Ctx, Failure, Onward, Workflow, rusqlite};
        ///
        /// const TRANSFER: Workflow<(u32, u32, i64), i64> = Workflow::named("transfer");
        ///
        /// async fn transfer(ctx: Ctx, (from, to, cents): (u32, u32, i64)) -> Result<i64, Failure> {
        ///     let moved = ctx.sqlite_transaction("move the money", move |db, _step| {
        ///         let add = "update accounts set cents = cents + ?1 where id = ?2 returning cents";
        ///         let left: i64 = db.query_row(add, (-cents, from), |row| row.get(0))?;
        ///         if left < 0 {
        ///             return Err(Failure::fatal("too little money").code("overdrawn"));
        ///         }
        ///         db.query_row(add, (cents, to), |_| Ok(()))?;
        ///         Ok(left)
        ///     });
        ///     moved.await
        /// }
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// # let dir = tempfile::tempdir()?;
        /// # let path = dir.path().join("bank.db");
        /// // The tables are the program's own, in the same file.
        /// let db = rusqlite::Connection::open(&path)?;
        /// db.execute_batch("create table accounts (id integer primary key, cents integer not null);
        ///     insert into accounts values (1, 500), (2, 0)")?;
        ///
        /// let onward = Onward::open(&format!("sqlite:{}", path.display())).await?;
        /// let worker = onward.worker().serve(TRANSFER, transfer).start().await?;
        /// let left = onward.start(TRANSFER, &(1, 2, 200)).key("transfer-1").await?;
        /// assert_eq!(left.result().await?, 300);
        /// let too_much = onward.start(TRANSFER, &(1, 2, 400)).key("transfer-2").await?;
        /// let error = too_much.result().await.unwrap_err();
        /// assert!(error.failure().unwrap().is("overdrawn"));
        /// let cents: i64 = db.query_row("select cents from accounts where id = 1", (), |row| row.get(0))?;
        /// assert_eq!(cents, 300);
        /// worker.shutdown().await?;
        /// # Ok(()) }
        /// ```
        ///
        /// On another store than SQLite it fails with the code `transaction_unsupported`.
        pub fn sqlite_transaction<'a, T, E, F>(
            &self,
            name: impl Into<Cow<'a, str>>,
            body: F,
        ) -> TransactionFuture<'a, T>
        where
            T: Serialize + DeserializeOwned + Send + 'a,
            E: Into<Failure>,
            F: Fn(&rusqlite::Connection, &Step) -> Result<T, E> + Send + Sync + 'static,
        {
            let body = Arc::new(body);
            let token = self.board.wakes.token;
            let body = Body::Transaction(Box::new(move |step| {
                let body = Arc::clone(&body);
                TransactionBody::sqlite(Arc::new(move |db| {
                    let _here = Here::enter(Here::Body(token));
                    let value = body(db, &step).map_err(Into::into)?;
                    Ok(recordable(&value)?.1)
                }))
            }));
            TransactionFuture(StepFuture::of_body(Arc::clone(&self.board), name.into(), body))
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::borrow::Cow;
    use std::sync::Arc;

    use super::*;
    use crate::ctx::step::{Body, recordable};
    use crate::driver::wake::Here;
    use crate::store::{PostgresTransaction, TransactionBody};
    use crate::{Ctx, Step};

    impl Ctx {
        /// A transactional step in the store's own Postgres database: what its body writes and the
        /// step's record are committed together, so it takes effect exactly once, whatever crashes
        /// and whenever.
        ///
        /// The body has [`TRANSACTION_TIME_MAX`](crate::limits::TRANSACTION_TIME_MAX), or half a
        /// lease if that is less, and is undone past it. An error undoes what it wrote, and the
        /// step is tried again as any other is. It may also be executed and undone more than once,
        /// so whatever it does outside the database happens at least once. Begin, commit and
        /// rollback are the step's; a `savepoint` of its own is fine. It owns what it uses, since
        /// the store executes it.
        ///
        /// ```no_run
        /// use onward::{Ctx, Failure, Workflow};
        ///
        /// const TRANSFER: Workflow<(i32, i32, i64), i64> = Workflow::named("transfer");
        ///
        /// async fn transfer(ctx: Ctx, (from, to, cents): (i32, i32, i64)) -> Result<i64, Failure> {
        ///     let moved = ctx.postgres_transaction("move the money", move |db, _step| async move {
        ///         let add = "update accounts set cents = cents + $1 where id = $2 returning cents";
        ///         let left: i64 = db.query_one(add, &[&-cents, &from]).await?.get(0);
        ///         if left < 0 {
        ///             return Err(Failure::fatal("too little money").code("overdrawn"));
        ///         }
        ///         db.query_one(add, &[&cents, &to]).await?;
        ///         Ok(left)
        ///     });
        ///     moved.await
        /// }
        /// ```
        ///
        /// On another store than Postgres it fails with the code `transaction_unsupported`.
        pub fn postgres_transaction<'a, T, E, F, Fut>(
            &self,
            name: impl Into<Cow<'a, str>>,
            body: F,
        ) -> TransactionFuture<'a, T>
        where
            T: Serialize + DeserializeOwned + Send + 'a,
            E: Into<Failure>,
            F: Fn(PostgresTransaction, Step) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<T, E>> + Send + 'static,
        {
            let body = Arc::new(body);
            let token = self.board.wakes.token;
            let body = Body::Transaction(Box::new(move |step| {
                let body = Arc::clone(&body);
                TransactionBody::postgres(Arc::new(move |db| {
                    let (body, step) = (Arc::clone(&body), step.clone());
                    let made = {
                        let _here = Here::enter(Here::Body(token));
                        body(db, step)
                    };
                    let mut made = Box::pin(made);
                    let mut polled = std::future::poll_fn(move |cx| {
                        let _here = Here::enter(Here::Body(token));
                        made.as_mut().poll(cx)
                    });
                    Box::pin(async move {
                        let value = (&mut polled).await.map_err(Into::into)?;
                        Ok(recordable(&value)?.1)
                    })
                }))
            }));
            TransactionFuture(StepFuture::of_body(Arc::clone(&self.board), name.into(), body))
        }
    }
}
