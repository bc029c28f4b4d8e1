//! The raw limits of a Postgres server: prepared statements on connections of our own.
//!
//! Owns: a table in the schema of the measure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::{COMMITS, ROWS_PER_COMMIT};
use crate::bench::{Fallible, payload};
use crate::place::connect;

/// One connection, and a table of step results.
pub(crate) struct Raw {
    client: Client,
    one: Statement,
    many: Statement,
    payload: String,
}

impl Raw {
    /// Makes the table if it is not there.
    pub(super) async fn open(url: &str, schema: &str) -> Fallible<Self> {
        let client = connect(url).await?;
        let table = format!("{schema}.raw_records");
        client
            .batch_execute(&format!(
                "create table if not exists {table} (
                    no bigint generated always as identity primary key,
                    run bigint, seq bigint, step text, kind text, body text, at bigint
                )"
            ))
            .await?;
        let into = format!("insert into {table} (run, seq, step, kind, body, at)");
        let one = format!("{into} values ($1, $1, 'the step', 'done', $2, 1700000000000)");
        let many = format!(
            "{into} select run, run, 'the step', 'done', body, 1700000000000
            from unnest($1::bigint[], $2::text[]) as row (run, body)"
        );
        let (one, many) = (client.prepare(&one).await?, client.prepare(&many).await?);
        Ok(Self { client, one, many, payload: payload() })
    }

    /// Rows a second at a hundred rows in a commit, all of them in one statement.
    pub(super) async fn rows_per_second(&self) -> Fallible<f64> {
        let numbers: Vec<i64> = (0..ROWS_PER_COMMIT).collect();
        let bodies = vec![self.payload.clone(); numbers.len()];
        let begun = Instant::now();
        for _ in 0..COMMITS {
            self.client.execute(&self.many, &[&numbers, &bodies]).await?;
        }
        Ok((COMMITS * ROWS_PER_COMMIT) as f64 / begun.elapsed().as_secs_f64())
    }

    pub(super) async fn commits(&self, count: usize, pause: Duration) -> Fallible<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let begun = Instant::now();
            self.commit().await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    async fn commit(&self) -> Fallible<()> {
        self.client.execute(&self.one, &[&1_i64, &self.payload]).await?;
        Ok(())
    }
}

/// Commits of one row a second, from so many connections for so long.
pub(crate) async fn commits_per_second(
    url: &str,
    schema: &str,
    clients: usize,
    lasting: Duration,
) -> Fallible<f64> {
    let ready = Arc::new(Barrier::new(clients + 1));
    let mut committing = JoinSet::new();
    for _ in 0..clients {
        let raw = Raw::open(url, schema).await?;
        let ready = Arc::clone(&ready);
        committing.spawn(async move {
            ready.wait().await;
            let (begun, mut commits) = (Instant::now(), 0_usize);
            while begun.elapsed() < lasting {
                raw.commit().await?;
                commits += 1;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(commits)
        });
    }
    ready.wait().await;
    let begun = Instant::now();
    let mut commits = 0;
    while let Some(committed) = committing.join_next().await {
        commits += committed??;
    }
    Ok(commits as f64 / begun.elapsed().as_secs_f64())
}
