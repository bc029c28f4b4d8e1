//! The raw limits: what the same Postgres does over one connection, with the same row size and the
//! same durability, and nothing of the peer.
//!
//! Owns: the schema of a measure, and the table of rows in it.

use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::bench::{Fallible, SCHEMA, payload};

/// Rows in one commit of the throughput limit.
const ROWS_PER_COMMIT: i64 = 100;

/// Commits in one figure of the throughput limit.
const COMMITS: i64 = 100;

/// One connection, and a table of step results in a fresh schema.
pub(crate) struct Raw {
    conn: PgConnection,
    payload: String,
}

impl Raw {
    /// Makes the schema anew.
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        let options = url.parse::<PgConnectOptions>()?.options([("search_path", SCHEMA)]);
        let conn = PgConnection::connect_with(&options).await?;
        let mut raw = Self { conn, payload: payload() };
        raw.drop_schema().await?;
        let tables = format!(
            "create schema {SCHEMA};
            create table records (
                no bigint generated always as identity primary key,
                run bigint, seq bigint, step text, kind text, body text, at bigint
            )"
        );
        sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut raw.conn).await?;
        Ok(raw)
    }

    /// Removes the schema, and the peer's tables with it.
    pub(crate) async fn close(mut self) -> Fallible<()> {
        self.drop_schema().await?;
        Ok(self.conn.close().await?)
    }

    async fn drop_schema(&mut self) -> Fallible<()> {
        let statement = format!("drop schema if exists {SCHEMA} cascade");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut self.conn).await?;
        Ok(())
    }

    /// Which server it is, and whether what it commits is on disk.
    pub(crate) async fn server(&mut self) -> Fallible<String> {
        let settings = "
            select concat_ws(', ', 'Postgres ' || current_setting('server_version'),
                'fsync ' || current_setting('fsync'),
                'synchronous_commit ' || current_setting('synchronous_commit'))";
        Ok(sqlx::query(settings).fetch_one(&mut self.conn).await?.try_get(0)?)
    }

    /// Rows a second at a hundred rows in a commit, all of them in one statement.
    pub(crate) async fn rows_per_second(&mut self) -> Fallible<f64> {
        let numbers: Vec<i64> = (0..ROWS_PER_COMMIT).collect();
        let bodies = vec![self.payload.clone(); numbers.len()];
        let insert = "
            insert into records (run, seq, step, kind, body, at)
            select run, run, 'the step', 'done', body, 1700000000000
            from unnest($1::bigint[], $2::text[]) as row (run, body)";
        let begun = Instant::now();
        for _ in 0..COMMITS {
            sqlx::query(insert).bind(&numbers).bind(&bodies).execute(&mut self.conn).await?;
        }
        Ok((COMMITS * ROWS_PER_COMMIT) as f64 / begun.elapsed().as_secs_f64())
    }

    /// The times of some commits of one row, with a pause before each.
    pub(crate) async fn commits(
        &mut self,
        count: usize,
        pause: Duration,
    ) -> Fallible<Vec<Duration>> {
        let insert = "
            insert into records (run, seq, step, kind, body, at)
            values ($1, $1, 'the step', 'done', $2, 1700000000000)";
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let begun = Instant::now();
            sqlx::query(insert).bind(1_i64).bind(&self.payload).execute(&mut self.conn).await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}
