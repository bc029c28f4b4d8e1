//! The same on Postgres: starts and signals in the user's own transactions, starts from SQL, and
//! nothing of a payload in any table.

use onward::tokio_postgres::Client;

use super::*;
use crate::database::{Schema, connect};

/// Everything that the tables of a schema hold, as text.
async fn dump(db: &Client, schema: &Schema) -> String {
    let tables = "select table_name from information_schema.tables \
                  where table_schema = $1 and table_type = 'BASE TABLE'";
    let mut all = String::new();
    for row in db.query(tables, &[&schema.0]).await.unwrap() {
        let table: String = row.get(0);
        let sql =
            format!("select coalesce(string_agg(t::text, ' '), '') from {}.{table} t", schema.0);
        all.push_str(&db.query_one(&sql, &[]).await.unwrap().get::<_, String>(0));
    }
    all
}

#[tokio::test]
async fn no_payload_is_in_a_table_and_runs_from_sql_go_on() {
    const ASK: Workflow<String, String> = Workflow::named("ask");
    async fn ask(ctx: Ctx, text: String) -> Result<String, Failure> {
        let answer: String = ctx.signal("answer").await?;
        ctx.step("join", async |_| Ok::<_, Failure>(format!("{text} {answer}"))).await
    }
    let (schema, mut db) = (Schema::new(), connect().await);
    let open = Onward::open(&schema.url()).codec(Compression::new().bytes_min(40));
    let onward = open.codec(Encryption::new(ring(&[1]))).await.unwrap();
    let worker = onward.worker().serve(ASK, ask).serve(ECHO, echo).start().await.unwrap();

    let tx = db.transaction().await.unwrap();
    let run = onward.start(ASK, &"canary input".to_owned()).key("readable-key");
    let run = run.in_postgres(&tx).await.unwrap();
    tx.commit().await.unwrap();
    let tx = db.transaction().await.unwrap();
    run.signal("answer", "canary answer").key("click-1").in_postgres(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(run.result().await.unwrap(), "canary input canary answer");
    let again = onward.start(ASK, &"canary input".to_owned()).key("readable-key").await.unwrap();
    assert_eq!(again.id(), run.id());

    let all = dump(&db, &schema).await;
    assert!(!all.contains("canary"), "a payload is readable in a table");
    assert!(all.contains("readable-key") && all.contains("xchacha20poly1305"), "{all}");
    let view = format!("select input ->> '$onward' from {}.runs_json", schema.0);
    assert_eq!(db.query_one(&view, &[]).await.unwrap().get::<_, String>(0), "1");

    let start = format!("select {}.start('echo', '\"from sql\"', key => 'sql-1')::text", schema.0);
    let id: String = db.query_one(&start, &[]).await.unwrap().get(0);
    let ended = onward.run(id.parse().unwrap()).ended().await.unwrap();
    assert_eq!(ended.output.unwrap().as_str(), "\"from sql!\"");
    let again = onward.start(ECHO, &"from sql".to_owned()).key("sql-1").await.unwrap();
    assert_eq!(again.id().to_string(), id, "a key that came from SQL");
    worker.shutdown().await.unwrap();
}
