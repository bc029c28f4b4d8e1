//! Statements that are parsed once: where the server itself is at the other end, and nowhere else.
//!
//! On a runtime without threads of its own, as that of most of these tests, every write goes by a lane.

use onward::store::*;
use tokio_postgres::Client;

use super::stage::*;
use crate::database;

/// Records of one test: more than a connection executes before it prepares.
const RECORDS: u64 = 30;

/// Lets each record say what is prepared in the session that adds it, and do something there.
pub(crate) async fn watch(raw: &Client, schema: &str, then: &str) {
    let watching = format!(
        "create table {schema}.seen (no bigserial, session integer, prepared bigint);
        create function {schema}.see() returns trigger language plpgsql as $$
        begin
            insert into {schema}.seen (session, prepared)
            select pg_backend_pid(), count(*) from pg_prepared_statements;
            {then}
            return null;
        end
        $$;
        create trigger see after insert on {schema}.records
        for each row execute function {schema}.see()"
    );
    raw.batch_execute(&watching).await.unwrap();
}

/// Records one by one; how many statements were prepared in their sessions, in their order.
pub(crate) async fn record_all(store: &PostgresStore, raw: &Client, schema: &str) -> Vec<i64> {
    let worker = joined(store).await;
    started(store).await;
    let lease = claimed(store, worker, 1).await;
    for seq in 1..=RECORDS {
        store.record(lease, vec![done(store, seq, &format!("step {seq}"))].into()).await.unwrap();
    }
    store.leave(worker).await.unwrap();
    let seen = format!("select prepared from {schema}.seen order by no");
    let seen = raw.query(&seen, &[]).await.unwrap();
    assert_eq!(seen.len() as u64, RECORDS);
    seen.iter().map(|row| row.get(0)).collect()
}

/// What was seen on a direct connection, and in how many sessions.
async fn seen_directly(then: &str) -> (Vec<i64>, i64) {
    let stage = Stage::new();
    let store = stage.open().await;
    let raw = stage.raw().await;
    watch(&raw, stage.name(), then).await;
    let seen = record_all(&store, &raw, stage.name()).await;
    let sessions = raw.query_one("select count(distinct session) from seen", &[]).await.unwrap();
    (seen, sessions.get(0))
}

/// Fails where every write is parsed anew, and where a program that writes little prepares.
#[tokio::test]
async fn what_is_written_often_is_parsed_once() {
    let (seen, sessions) = seen_directly("").await;
    assert_eq!(seen.first(), Some(&0));
    assert_eq!(seen.last(), Some(&1));
    assert_eq!(sessions, 1);
}

/// Fails where a statement is prepared in a session that the next client is given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_prepared_behind_a_pooler() {
    let stage = Stage::new();
    let url = with(&database::pooler_url(), &format!("schema={}", stage.name()));
    let behind = PostgresStore::open(&url).await.unwrap();
    let raw = stage.raw().await;
    watch(&raw, stage.name(), "").await;
    assert_eq!(record_all(&behind, &raw, stage.name()).await, vec![0; RECORDS as usize]);
}

/// Fails where a session that forgot its statements is asked for them again and again, so that each
/// write falls back to a transaction of its own, in another session.
#[tokio::test]
async fn a_session_may_forget_its_statements() {
    let (seen, sessions) = seen_directly("deallocate all;").await;
    // It was prepared, forgotten once, and not prepared again.
    assert_eq!(seen.iter().sum::<i64>(), 1);
    assert_eq!(sessions, 1);
}

/// Takes what the server has prepared for a client away, and puts something else under its name.
pub(crate) const REPLACE: &str = "
    declare
        v_name text;
    begin
        for v_name in select name from pg_prepared_statements where not from_sql loop
            execute format('deallocate %I', v_name);
            execute format('prepare %I as select 1', v_name);
        end loop;
    end;";

/// Fails where a statement of somebody else's under the same name, as behind a pooler that passes for a
/// server, is taken for an outage.
#[tokio::test]
async fn a_statement_may_be_another_ones() {
    let (seen, sessions) = seen_directly(REPLACE).await;
    assert!(seen.contains(&1), "nothing was prepared");
    assert_eq!(sessions, 1);
}
