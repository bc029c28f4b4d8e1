//! Starting a run inside a Postgres transaction of the user's own.
//!
//! Owns: [`Start::in_postgres`] and [`Start::in_sqlx`], which make the same call over two drivers.
//! Never commits, and claims nothing: the run is the user's until they commit.

use std::sync::Arc;

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::start::with_key;
use super::{Inner, RunHandle, Start};
use crate::store::{Conflict, NewRun, StartAt};
use crate::{Code, Error, OnConflict, RunId};

const START: &str = "select run::text, how from onward.start_one($1, $2::text::uuid, $3, $4, $5, \
                     $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

impl<O> Start<O> {
    /// Starts the run inside a transaction of your own on the store's database: it is there if,
    /// and as soon as, you commit, together with whatever else you write.
    ///
    /// A key means what it means for any start, with [`OnConflict::Existing`] or
    /// [`OnConflict::Reject`]. Look at the run after the commit; before, there is none. Keep the
    /// transaction short: it holds the key, and the run that has it, until it ends.
    ///
    /// ```no_run
    /// use onward::{Onward, Workflow, tokio_postgres};
    ///
    /// const SHIP: Workflow<i64, String> = Workflow::named("ship");
    ///
    /// # async fn order(onward: Onward, mut db: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// // The order and its workflow: both or neither.
    /// let tx = db.transaction().await?;
    /// let row = tx.query_one("insert into orders (item) values ('lamp') returning id", &[]).await?;
    /// let order: i64 = row.get(0);
    /// let run = onward.start(SHIP, &order).key(format!("order-{order}")).in_postgres(&tx).await?;
    /// tx.commit().await?;
    /// println!("{}", run.result().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// Inside the body of a [`postgres_transaction`](crate::Ctx::postgres_transaction) its
    /// transaction may be given as well: `in_postgres(&*db)`.
    ///
    /// # Errors
    /// `transaction_unsupported` on another store than Postgres, `key_conflict` and `key_taken`,
    /// after which your transaction goes on, and what any start may be refused for. After
    /// `store_unavailable` the transaction is to be made again as a whole; a key that was taken since
    /// it began is among the reasons where it is `repeatable read` or `serializable`.
    pub async fn in_postgres(
        self,
        transaction: &impl GenericClient,
    ) -> Result<RunHandle<O>, Error> {
        let (client, call) = Call::of(self)?;
        let rows = transaction.query_typed(&call.sql, &call.params()).await;
        let rows = rows.map_err(|error| Error::new(Code::StoreUnavailable).because(error))?;
        let row = rows.first().ok_or_else(|| Error::new(Code::StoreUnavailable))?;
        let read = |column| row.try_get::<_, String>(column);
        let (run, how) = read(0)
            .and_then(|run| Ok((run, read(1)?)))
            .map_err(|error| Error::new(Code::StoreCorrupt).because(error))?;
        Ok(RunHandle::new(client, call.judge(&run, &how)?))
    }

    /// As [`in_postgres`](Start::in_postgres), inside a transaction of `sqlx`.
    ///
    /// ```no_run
    /// use onward::{Onward, Workflow};
    ///
    /// const SHIP: Workflow<i64, String> = Workflow::named("ship");
    ///
    /// # async fn order(onward: Onward, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("insert into orders (id, item) values (7, 'lamp')").execute(&mut *tx).await?;
    /// onward.start(SHIP, &7).key("order-7").in_sqlx(&mut tx).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`in_postgres`](Start::in_postgres).
    #[cfg(feature = "sqlx")]
    pub async fn in_sqlx(
        self,
        transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    ) -> Result<RunHandle<O>, Error> {
        use sqlx::Row;

        let (client, call) = Call::of(self)?;
        let started = sqlx::query(sqlx::AssertSqlSafe(call.sql.as_str()))
            .bind(call.now)
            .bind(&call.id)
            .bind(&call.new.workflow)
            .bind(&call.input)
            .bind(&call.fingerprint)
            .bind(&call.key)
            .bind(call.ttl)
            .bind(call.reject)
            .bind(&call.new.queue)
            .bind(call.new.priority)
            .bind(call.after)
            .bind(call.at)
            .bind(call.new.timeout_ms)
            .bind(&call.tags)
            .bind(&call.new.caller)
            .bind(&call.new.lane)
            .fetch_one(&mut **transaction)
            .await
            .map_err(|error| Error::new(Code::StoreUnavailable).because(error))?;
        let read = |column| started.try_get::<String, _>(column);
        let (run, how) = read(0)
            .and_then(|run| Ok((run, read(1)?)))
            .map_err(|error| Error::new(Code::StoreCorrupt).because(error))?;
        Ok(RunHandle::new(client, call.judge(&run, &how)?))
    }
}

/// A start as the database's own function takes it.
struct Call {
    sql: String,
    now: Option<i64>,
    id: String,
    new: NewRun,
    fingerprint: Option<Vec<u8>>,
    key: Option<String>,
    ttl: Option<i64>,
    reject: bool,
    after: Option<i64>,
    at: Option<i64>,
    tags: Option<String>,
    input: String,
}

impl Call {
    fn of<O>(start: Start<O>) -> Result<(Arc<Inner>, Self), Error> {
        let client = Arc::clone(start.client());
        let new = client.stored_run(start.new_run()?)?;
        let Some(store) = client.store.postgres() else {
            return Err(Error::new(Code::TransactionUnsupported));
        };
        let (sql, now) = store.inside(START);
        let key = new.key.as_ref();
        let on_conflict = key.map(|key| key.on_conflict).unwrap_or_default();
        if key.is_some_and(|key| key.gather.is_some()) {
            let about = "inside a transaction a start is neither debounced nor throttled";
            return Err(Error::new(Code::InvalidOption).about(about));
        }
        if matches!(on_conflict, OnConflict::RetryFailed | OnConflict::Replace) {
            let about = "inside a transaction on_conflict is Existing or Reject";
            return Err(Error::new(Code::InvalidOption).about(about));
        }
        let (after, at) = match new.start_at {
            StartAt::Now => (None, None),
            StartAt::After(ms) => (Some(ms.max(0)), None),
            StartAt::At(time) => (None, Some(time.as_millis())),
        };
        let tags = (!new.tags.is_empty()).then(|| serde_json::to_string(&new.tags));
        let tags = tags.transpose().map_err(|e| Error::new(Code::NotSerializable).because(e))?;
        let call = Self {
            sql,
            now,
            id: new.id.to_string(),
            fingerprint: key.map(|key| key.fingerprint.0.to_vec()),
            key: key.map(|key| key.key.clone()),
            ttl: key.and_then(|key| key.ttl_ms),
            reject: on_conflict == OnConflict::Reject,
            after,
            at,
            tags,
            input: new.input.as_str().to_owned(),
            new,
        };
        Ok((client, call))
    }

    fn params(&self) -> [(&(dyn ToSql + Sync), Type); 16] {
        [
            (&self.now, Type::INT8),
            (&self.id, Type::TEXT),
            (&self.new.workflow, Type::TEXT),
            (&self.input, Type::TEXT),
            (&self.fingerprint, Type::BYTEA),
            (&self.key, Type::TEXT),
            (&self.ttl, Type::INT8),
            (&self.reject, Type::BOOL),
            (&self.new.queue, Type::TEXT),
            (&self.new.priority, Type::INT4),
            (&self.after, Type::INT8),
            (&self.at, Type::INT8),
            (&self.new.timeout_ms, Type::INT8),
            (&self.tags, Type::TEXT),
            (&self.new.caller, Type::TEXT),
            (&self.new.lane, Type::TEXT),
        ]
    }

    fn judge(&self, run: &str, how: &str) -> Result<RunId, Error> {
        let run: RunId = run.parse()?;
        let refused = |conflict| with_key(Error::from(conflict), self.key.as_deref());
        match how {
            "key_conflict" => Err(refused(Conflict::KeyInput { run })),
            "key_taken" => Err(refused(Conflict::KeyTaken { run })),
            _ => Ok(run),
        }
    }
}
