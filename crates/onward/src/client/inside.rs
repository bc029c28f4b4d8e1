//! Starting a run, and sending a signal, inside a transaction of the user's own.
//!
//! Owns: [`Start::in_sqlite`] and [`SendSignal::in_sqlite`]. Never commits, and claims nothing: what
//! is written is the user's until they commit.

use std::sync::Arc;

use super::start::with_key;
use super::{RunHandle, SendSignal, Start};
use crate::store::{signal_inside, start_inside};
use crate::{Code, Error};

impl<O> Start<O> {
    /// Starts the run inside a transaction that is open on a connection of your own to the
    /// store's file: it is there if, and as soon as, you commit, together with whatever else you
    /// write.
    ///
    /// A key means what it means for any start. Look at the run after the commit; before, there
    /// is none. That it is on disk then is your connection's care: leave `synchronous` at `full`.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Onward, Workflow, rusqlite};
    ///
    /// const SHIP: Workflow<i64, String> = Workflow::named("ship");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("shop.db");
    /// let onward = Onward::open(&format!("sqlite:{}", path.display())).await?;
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// db.execute_batch("create table orders (id integer primary key, item text not null)")?;
    ///
    /// // The order and its workflow: both or neither.
    /// let tx = db.transaction()?;
    /// tx.execute("insert into orders (item) values ('lamp')", ())?;
    /// let order = tx.last_insert_rowid();
    /// let run = onward.start(SHIP, &order).key(format!("order-{order}")).in_sqlite(&tx)?;
    /// tx.commit()?;
    ///
    /// # let worker = onward.worker().serve(SHIP, async |_: Ctx, order: i64| {
    /// #     Ok::<_, Failure>(format!("order {order} is on its way"))
    /// # }).start().await?;
    /// assert_eq!(run.result().await?, "order 1 is on its way");
    /// # worker.shutdown().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Inside the body of a [`sqlite_transaction`](crate::Ctx::sqlite_transaction) its connection
    /// may be given as well.
    ///
    /// # Errors
    /// `transaction_unsupported` on another store than SQLite, `other_database` for a connection
    /// to another file, `no_transaction` when none is open, `store_locked` when another program is
    /// writing, and what any start may be refused for. Your transaction goes on as if nothing had
    /// been tried, but for the count of duplicates of a key.
    pub fn in_sqlite(self, transaction: &rusqlite::Connection) -> Result<RunHandle<O>, Error> {
        let client = Arc::clone(self.client());
        let new = client.stored_run(self.new_run()?)?;
        let Some(file) = client.store.sqlite_file() else {
            return Err(Error::new(Code::TransactionUnsupported));
        };
        let started = start_inside(transaction, file, client.store.clock().now(), &new);
        let key = new.key.as_ref().map(|key| key.key.as_str());
        let started = started.map_err(|error| with_key(error, key))?;
        Ok(RunHandle::new(client, started.run))
    }
}

impl SendSignal {
    /// Sends the signal inside a transaction that is open on a connection of your own to the
    /// store's file: it is sent if, and as soon as, you commit, together with whatever else you
    /// write.
    ///
    /// ```
    /// use onward::{Ctx, Failure, Onward, Workflow, rusqlite};
    ///
    /// const SHIP: Workflow<i64, String> = Workflow::named("ship");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("shop.db");
    /// let onward = Onward::open(&format!("sqlite:{}", path.display())).await?;
    /// let run = onward.start(SHIP, &7).await?;
    ///
    /// let mut db = rusqlite::Connection::open(&path)?;
    /// let tx = db.transaction()?;
    /// tx.execute_batch("create table payments (id integer primary key)")?;
    /// run.signal("paid", "invoice-12").key("payment-12").in_sqlite(&tx)?;
    /// tx.commit()?;
    /// # let worker = onward.worker().serve(SHIP, async |ctx: Ctx, _: i64| {
    /// #     ctx.signal::<String>("paid").await
    /// # }).start().await?;
    /// assert_eq!(run.result().await?, "invoice-12");
    /// # worker.shutdown().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Start::in_sqlite`] for the transaction, and `run_finished`, `key_conflict`,
    /// `signals_full` and `run_not_found`, after which your transaction goes on. A run that went on
    /// as another is not followed: send to that one.
    pub fn in_sqlite(self, transaction: &rusqlite::Connection) -> Result<(), Error> {
        let client = Arc::clone(self.client());
        let new = client.stored_signal(self.new_signal()?)?;
        let Some(file) = client.store.sqlite_file() else {
            return Err(Error::new(Code::TransactionUnsupported));
        };
        let sent = signal_inside(transaction, file, client.store.clock().now(), &new);
        sent.map(drop).map_err(|error| error.of_run(new.run))
    }
}
