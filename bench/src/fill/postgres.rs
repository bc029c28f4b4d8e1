//! Copies of finished runs in a schema of Postgres.
//!
//! Owns: which tables have rows of a run.

use crate::bench::Fallible;
use crate::place::connect;

/// The tables with a row of each run, and their column that says of which.
const TABLES: [(&str, &str); 4] =
    [("runs", "id"), ("inputs", "run"), ("outputs", "run"), ("records", "run")];

pub(super) async fn copy(url: &str, schema: &str, copies: usize) -> Fallible<()> {
    let client = connect(url).await?;
    client
        .batch_execute(&format!(
            "set synchronous_commit = off;
            create temporary table finished as
            select id from {schema}.runs where state = 'completed'"
        ))
        .await?;
    for (table, run) in TABLES {
        let names = "
            select string_agg(attname, ', ' order by attnum) from pg_attribute
            where attrelid = $1::text::regclass and attnum > 0 and not attisdropped";
        let row = client.query_one(names, &[&format!("{schema}.{table}")]).await?;
        let columns: String = row.try_get(0)?;
        // The copies' ids are older than any: the first half of an id's time is their number.
        let values: Vec<String> = columns
            .split(", ")
            .map(|column| match column {
                column if column == run => format!(
                    "overlay(old.{run}::text placing lpad(to_hex(n), 8, '0') from 1 for 8)::uuid"
                ),
                "key" => "null".to_owned(),
                column => format!("old.{column}"),
            })
            .collect();
        let values = values.join(", ");
        client
            .batch_execute(&format!(
                "insert into {schema}.{table} ({columns})
                select {values}
                from generate_series(1, {copies}) n
                cross join {schema}.{table} old join finished on finished.id = old.{run}
                order by n"
            ))
            .await?;
        client.batch_execute(&format!("vacuum (analyze) {schema}.{table}")).await?;
    }
    Ok(client.batch_execute("checkpoint").await?)
}
