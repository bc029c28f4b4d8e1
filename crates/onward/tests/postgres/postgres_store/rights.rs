//! What docs/operations.md says to somebody who looks after the database: its statements, and the
//! rights that it names.

use onward::store::*;
use tokio_postgres::Client;

use super::stage::*;

const PAPER: &str = include_str!("../../../../../docs/operations.md");

/// Every statement of the page that stands alone.
fn statements() -> Vec<&'static str> {
    let blocks = PAPER.split("```sql\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

#[tokio::test]
async fn the_queries_to_watch_are_taken() {
    let stage = Stage::new();
    let store = stage.open().await;
    started(&store).await;
    let raw = stage.raw().await;
    let looks: Vec<_> = (statements().into_iter())
        .filter(|sql| sql.trim_start().starts_with("select") && !sql.contains("onward.signal("))
        .collect();
    assert!(looks.len() > 5, "{looks:?}");
    for sql in looks {
        let here = sql.replace("onward.", &format!("{}.", stage.name()));
        raw.batch_execute(&here).await.unwrap_or_else(|error| panic!("{error:?}: {sql}"));
    }
}

/// Fails where one payload that `jsonb` cannot hold makes the views an error for all runs.
#[tokio::test]
async fn the_views_show_the_others_where_one_payload_cannot_be_shown() {
    let stage = Stage::new();
    let store = stage.open().await;
    let plain = started(&store).await;
    let odd = start(&store, NewRun { input: json("\"a\\u0000b\""), ..new_run() }).await;
    let raw = stage.raw().await;
    let sql = "select id, input::text from runs_json";
    let rows = raw.query(sql, &[]).await.unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let id: uuid::Uuid = row.get(0);
        let input: Option<String> = row.get(1);
        assert!(id.as_u128() == plain.as_u128() || id.as_u128() == odd.as_u128());
        assert_eq!(input.is_some(), id.as_u128() == plain.as_u128());
    }
}

/// The rights of one line of the table, as grants to a role.
fn grants(who: &str, schema: &str, role: &str) -> String {
    let line = PAPER.lines().find(|line| line.starts_with(&format!("| {who} |"))).unwrap();
    let said = line.split('|').nth(2).unwrap();
    let mut grants = format!("grant usage on schema {schema} to {role};");
    for part in said.split(';').skip(1) {
        let named: Vec<_> = part.split('`').skip(1).step_by(2).collect();
        let (rights, tables) = match named.as_slice() {
            [tables] => ("select, insert, update, delete", tables),
            [rights, tables] => (*rights, tables),
            other => panic!("{other:?}"),
        };
        for table in tables.split(' ') {
            grants += &format!("grant {rights} on {schema}.{table} to {role};");
        }
    }
    grants
}

/// Somebody with the rights that the page gives them, and no more.
async fn somebody(stage: &Stage, who: &str) -> Client {
    let (raw, role) = (stage.raw().await, format!("{}_{}", stage.name(), who.len()));
    raw.batch_execute(&format!("create role {role}")).await.unwrap();
    raw.batch_execute(&grants(who, stage.name(), &role)).await.unwrap();
    raw.batch_execute(&format!("set role {role}")).await.unwrap();
    raw
}

async fn forget(raw: &Client) {
    let role = raw.query_one("select current_user::text", &[]).await.unwrap().get::<_, String>(0);
    let sql = format!("reset role; drop owned by {role}; drop role {role}");
    raw.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn who_starts_from_sql_needs_the_rights_on_paper_and_no_more() {
    let stage = Stage::new();
    let store = stage.open().await;
    let raw = somebody(&stage, "somebody who starts runs from SQL").await;
    for key in ["null", "'k'", "'k'"] {
        let sql = format!(
            "select {}.start('ship', '7', key => {key}, tags => '{{\"a\": \"b\"}}')",
            stage.name()
        );
        raw.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{key}: {error:?}"));
    }
    assert_eq!(store.list(Query { limit: 10, ..Query::default() }).await.unwrap().runs.len(), 2);
    forget(&raw).await;
}

#[tokio::test]
async fn who_sends_signals_from_sql_needs_the_rights_on_paper_and_no_more() {
    let stage = Stage::new();
    let store = stage.open().await;
    let run = started(&store).await;
    let raw = somebody(&stage, "somebody who sends signals from SQL").await;
    let sql =
        format!("select {}.signal({}, 'paid', '7', key => 'e-1')", stage.name(), literal(run));
    raw.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(store.inbox(run, 0).await.unwrap().signals.len(), 1);
    forget(&raw).await;
}
