//! Sending a signal inside a Postgres transaction of the user's own.
//!
//! Owns: [`SendSignal::in_postgres`] and [`SendSignal::in_sqlx`], which make the same call over two
//! drivers. Never commits: the signal is the user's until they commit.

use std::sync::Arc;

use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use super::SendSignal;
use crate::store::{NewSignal, signal_said};
use crate::{Code, Error};

const SIGNAL: &str = "select how from onward.signal_inside($1, $2::text::uuid, $3, $4, $5, $6, $7)";

impl SendSignal {
    /// Sends the signal inside a transaction of your own on the store's database: it is sent if,
    /// and as soon as, you commit, together with whatever else you write.
    ///
    /// ```no_run
    /// use onward::{RunHandle, tokio_postgres};
    ///
    /// # async fn paid(run: RunHandle<String>, mut db: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let tx = db.transaction().await?;
    /// tx.execute("update invoices set paid = true where id = 12", &[]).await?;
    /// run.signal("paid", "invoice-12").key("payment-12").in_postgres(&tx).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `transaction_unsupported` on another store than Postgres; `run_finished`, `key_conflict`,
    /// `signals_full` and `run_not_found`, after which your transaction goes on. A run that went on
    /// as another is not followed: send to that one.
    pub async fn in_postgres(self, transaction: &impl GenericClient) -> Result<(), Error> {
        let call = Call::of(self)?;
        let rows = transaction.query_typed(&call.sql, &call.params()).await;
        let rows = rows.map_err(|error| Error::new(Code::StoreUnavailable).because(error))?;
        let row = rows.first().ok_or_else(|| Error::new(Code::StoreUnavailable))?;
        let how: String =
            row.try_get(0).map_err(|error| Error::new(Code::StoreCorrupt).because(error))?;
        call.judge(&how)
    }

    /// As [`in_postgres`](SendSignal::in_postgres), inside a transaction of `sqlx`.
    ///
    /// ```no_run
    /// use onward::RunHandle;
    ///
    /// # async fn paid(run: RunHandle<String>, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// run.signal("paid", "invoice-12").key("payment-12").in_sqlx(&mut tx).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`in_postgres`](SendSignal::in_postgres).
    #[cfg(feature = "sqlx")]
    pub async fn in_sqlx(
        self,
        transaction: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    ) -> Result<(), Error> {
        use sqlx::Row;

        let call = Call::of(self)?;
        let sent = sqlx::query(sqlx::AssertSqlSafe(call.sql.as_str()))
            .bind(call.now)
            .bind(&call.run)
            .bind(&call.new.name)
            .bind(&call.new.step)
            .bind(&call.new.key)
            .bind(&call.fingerprint)
            .bind(&call.body)
            .fetch_one(&mut **transaction)
            .await
            .map_err(|error| Error::new(Code::StoreUnavailable).because(error))?;
        let how: String =
            sent.try_get(0).map_err(|error| Error::new(Code::StoreCorrupt).because(error))?;
        call.judge(&how)
    }
}

/// A signal as the database's own function takes it.
struct Call {
    sql: String,
    now: Option<i64>,
    run: String,
    fingerprint: Vec<u8>,
    body: String,
    new: NewSignal,
}

impl Call {
    fn of(signal: SendSignal) -> Result<Self, Error> {
        let client = Arc::clone(signal.client());
        let new = client.stored_signal(signal.new_signal()?)?;
        let Some(store) = client.store.postgres() else {
            return Err(Error::new(Code::TransactionUnsupported));
        };
        let (sql, now) = store.inside(SIGNAL);
        Ok(Self {
            sql,
            now,
            run: new.run.to_string(),
            fingerprint: new.fingerprint.0.to_vec(),
            body: new.body.as_str().to_owned(),
            new,
        })
    }

    fn params(&self) -> [(&(dyn ToSql + Sync), Type); 7] {
        [
            (&self.now, Type::INT8),
            (&self.run, Type::TEXT),
            (&self.new.name, Type::TEXT),
            (&self.new.step, Type::TEXT),
            (&self.new.key, Type::TEXT),
            (&self.fingerprint, Type::BYTEA),
            (&self.body, Type::TEXT),
        ]
    }

    fn judge(&self, how: &str) -> Result<(), Error> {
        signal_said(how, self.new.run).map_err(|error| Error::from(error).of_run(self.new.run))
    }
}
