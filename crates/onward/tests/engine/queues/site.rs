//! The stores under test, with a log of their own: triggers write down who is given what.
//!
//! Owns: the triggers and reading what they wrote. The store's own rows say only how things stand.

use onward::rusqlite::Connection;

use super::audit::{Change, Logged};
use super::crew::QUEUE;
use crate::database::{self, Schema};

/// A store that many processes can open, and its log.
pub(crate) trait Site {
    fn url(&self) -> String;

    /// Begins the log. The store is there.
    fn watch(&self);

    /// Every change of a run's holder and of the queue's limits, in the order of the log.
    fn log(&self) -> Vec<Logged>;

    /// The time of every grant.
    fn grants(&self) -> Vec<i64>;
}

pub(crate) struct OnSqlite {
    folder: tempfile::TempDir,
}

impl OnSqlite {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn open(&self) -> Connection {
        Connection::open(self.folder.path().join("onward.db")).unwrap()
    }
}

impl Site for OnSqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("onward.db").display())
    }

    fn watch(&self) {
        let sql = "
            create table log_changes (
                no integer primary key, run text, lane text, holder text, concurrency integer,
                paused_at integer
            );
            create table log_grants (no integer primary key, queue text, at integer, count integer);
            create trigger log_changes after update on onward_runs
            when old.worker is not new.worker or old.attempt is not new.attempt
            begin
                insert into log_changes (run, lane, holder)
                values (lower(hex(new.id)), new.lane, hex(new.worker));
            end;
            create trigger log_set_up after update on onward_queues
            when old.concurrency is not new.concurrency or old.paused_at is not new.paused_at
            begin
                insert into log_changes (concurrency, paused_at)
                values (new.concurrency, new.paused_at);
            end;
            create trigger log_grants after insert on onward_grants
            begin
                insert into log_grants (queue, at, count) values (new.queue, new.at, new.count);
            end;
            create trigger log_grants_more after update on onward_grants
            begin
                insert into log_grants (queue, at, count)
                values (new.queue, new.at, new.count - old.count);
            end;";
        self.open().execute_batch(sql).unwrap();
    }

    fn log(&self) -> Vec<Logged> {
        let conn = self.open();
        let sql = "select run, lane, holder, concurrency, paused_at from log_changes order by no";
        let mut statement = conn.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            if let Some(concurrency) = row.get::<_, Option<i64>>(3)? {
                let concurrency = usize::try_from(concurrency).unwrap();
                let paused = row.get::<_, Option<i64>>(4)?.is_some();
                return Ok(Logged::SetUp { concurrency, paused });
            }
            let holder: Option<String> = row.get(2)?;
            let holder = holder.filter(|holder| !holder.is_empty());
            Ok(Logged::Change(Change { run: row.get(0)?, lane: row.get(1)?, holder }))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    fn grants(&self) -> Vec<i64> {
        let conn = self.open();
        let mut statement = conn.prepare("select queue, at, count from log_grants").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap()
            .map(Result::unwrap)
            .flat_map(|(queue, at, count)| each(queue, at, count))
            .collect()
    }
}

/// A grant for each run that was given.
fn each(queue: String, at: i64, count: i64) -> impl Iterator<Item = i64> {
    assert_eq!(queue, QUEUE);
    (0..count).map(move |_| at)
}

pub(crate) struct OnPostgres {
    schema: Schema,
    runtime: tokio::runtime::Runtime,
}

impl OnPostgres {
    pub(crate) fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        Self { schema: Schema::new(), runtime }
    }

    fn rows(&self, sql: &str) -> Vec<tokio_postgres::Row> {
        let sql = sql.replace("onward.", &format!("{}.", self.schema.0));
        self.runtime.block_on(async { database::connect().await.query(&sql, &[]).await.unwrap() })
    }
}

impl Site for OnPostgres {
    fn url(&self) -> String {
        self.schema.url()
    }

    fn watch(&self) {
        let sql = "
            create table onward.log_changes (
                no bigint generated always as identity, run uuid, lane text, holder uuid,
                concurrency integer, paused_at bigint
            );
            create table onward.log_grants (queue text, at bigint, count bigint);
            create function onward.log_change() returns trigger language plpgsql as $$
            begin
                insert into onward.log_changes (run, lane, holder)
                values (new.id, new.lane, new.worker);
                return null;
            end $$;
            create trigger log_changes after update on onward.runs for each row
            when (old.worker is distinct from new.worker or old.attempt <> new.attempt)
            execute function onward.log_change();
            create function onward.log_set_up() returns trigger language plpgsql as $$
            begin
                insert into onward.log_changes (concurrency, paused_at)
                values (new.concurrency, new.paused_at);
                return null;
            end $$;
            create trigger log_set_up after update on onward.queues for each row
            when (old.concurrency is distinct from new.concurrency
                or old.paused_at is distinct from new.paused_at)
            execute function onward.log_set_up();
            create function onward.log_grant() returns trigger language plpgsql as $$
            begin
                insert into onward.log_grants (queue, at, count)
                values (
                    new.queue, new.at,
                    new.count - case when tg_op = 'UPDATE' then old.count else 0 end
                );
                return null;
            end $$;
            create trigger log_grants after insert or update on onward.grants for each row
            execute function onward.log_grant();";
        let sql = sql.replace("onward.", &format!("{}.", self.schema.0));
        let watched = async { database::connect().await.batch_execute(&sql).await };
        self.runtime.block_on(watched).unwrap();
    }

    fn log(&self) -> Vec<Logged> {
        let rows = self.rows(
            "select run::text, lane, holder::text, concurrency, paused_at
             from onward.log_changes order by no",
        );
        let logged = |row: &tokio_postgres::Row| match row.get::<_, Option<i32>>(3) {
            Some(concurrency) => Logged::SetUp {
                concurrency: usize::try_from(concurrency).unwrap(),
                paused: row.get::<_, Option<i64>>(4).is_some(),
            },
            None => {
                Logged::Change(Change { run: row.get(0), lane: row.get(1), holder: row.get(2) })
            }
        };
        rows.iter().map(logged).collect()
    }

    fn grants(&self) -> Vec<i64> {
        let rows = self.rows("select queue, at, count from onward.log_grants");
        rows.iter().flat_map(|row| each(row.get(0), row.get(1), row.get(2))).collect()
    }
}
