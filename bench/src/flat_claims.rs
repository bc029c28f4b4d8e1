//! `flat_claims`: the time of a claim beside a million finished runs, against a thousand.
//!
//! A thousand runs are finished by a worker; the others are copies of their rows, made with plain
//! SQL in whatever tables the store keeps of them.

use std::path::Path;
use std::time::Instant;

use onward::store::{Claim, ClaimMode, NewWorker};
use onward::{Ctx, Failure, Onward, WorkerId, Workflow};
use rusqlite::Connection;

use crate::bench::{Bench, Fallible, Measured, database, median_us, open, payload};

const ONE_STEP: Workflow<u64, String> = Workflow::named("one-step");

/// Runs that a worker finishes.
const FEW: u64 = 1_000;

/// Copies of each of them.
const COPIES: usize = 999;

const CLAIMS: u64 = 300;

/// The tables with a row of each run, and their column that says of which.
const TABLES: [(&str, &str); 4] = [
    ("onward_runs", "no"),
    ("onward_inputs", "no"),
    ("onward_outputs", "no"),
    ("onward_records", "run"),
];

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let scratch = bench.scratch()?;
    let onward = open(scratch.path()).await?;
    finish_few(&onward).await?;
    let few = claim_us(&onward).await?;
    drop(onward);
    copy(scratch.path(), bench.count(COPIES))?;
    let many = claim_us(&open(scratch.path()).await?).await?;
    Ok(Measured::new("flat_claims", many, "µs", "ratio <= 1.5").against(few))
}

async fn finish_few(onward: &Onward) -> Fallible<()> {
    let worker = onward.worker().serve(ONE_STEP, one_step).start().await?;
    onward.start_many(ONE_STEP, 0..FEW).key(|number| format!("few-{number}")).await?;
    for number in 0..FEW {
        onward.by_key(ONE_STEP, format!("few-{number}")).await?.result().await?;
    }
    Ok(worker.shutdown().await?)
}

async fn one_step(ctx: Ctx, _: u64) -> Result<String, Failure> {
    ctx.step("step", async |_| Ok::<_, Failure>(payload())).await
}

/// The median time of a claim of one run.
async fn claim_us(onward: &Onward) -> Fallible<f64> {
    let worker = WorkerId::new();
    let (queues, workflows) = (vec!["default".to_owned()], vec![ONE_STEP.name().to_owned()]);
    let joining = NewWorker {
        id: worker,
        build: "bench".to_owned(),
        place: "bench".to_owned(),
        queues: queues.clone(),
        workflows: workflows.clone(),
        lease_ms: 600_000,
    };
    onward.store().join(joining).await?;
    onward.start_many(ONE_STEP, 0..CLAIMS).await?;
    let mut times = Vec::new();
    for ticket in 1..=i64::try_from(CLAIMS)? {
        let claim = Claim {
            worker,
            ticket,
            build: "bench".to_owned(),
            queues: queues.clone(),
            workflows: workflows.clone(),
            limit: 1,
            mode: ClaimMode::Ordinary,
        };
        let begun = Instant::now();
        let claims = onward.store().claim(claim).await?;
        times.push(begun.elapsed());
        if claims.runs.len() != 1 {
            return Err("a claim found no run".into());
        }
    }
    onward.store().leave(worker).await?;
    // What was claimed is out of the way of the claims that are compared with these.
    let page = onward::Query { limit: CLAIMS as usize, ..onward::Query::default() };
    for run in onward.list(page).await?.runs {
        onward.run(run.id).cancel().await?;
    }
    Ok(median_us(times))
}

/// Copies every finished run so many times.
fn copy(folder: &Path, copies: usize) -> Fallible<()> {
    let conn = Connection::open(database(folder))?;
    conn.pragma_update(None, "synchronous", "off")?;
    conn.pragma_update(None, "cache_size", -400_000)?;
    conn.execute_batch("begin")?;
    let of_finished = "where state = 'completed'";
    let last: i64 = conn.query_row("select max(no) from onward_runs", [], |row| row.get(0))?;
    let shift = format!("({last} + (copy.n - 1) * {last})");
    for (table, run) in TABLES {
        let columns = columns(&conn, table)?;
        let values: Vec<String> = columns
            .iter()
            .map(|column| match column.as_str() {
                column if column == run => format!("old.{column} + {shift}"),
                "id" => format!("unhex(printf('%032x', old.no + {shift}))"),
                "key" => "null".to_owned(),
                column => format!("old.{column}"),
            })
            .collect();
        let (columns, values) = (columns.join(", "), values.join(", "));
        conn.execute_batch(&format!(
            "insert into {table} ({columns})
            with recursive copy (n) as (select 1 union all select n + 1 from copy where n < {copies})
            select {values} from copy, {table} as old
            where old.{run} in (select no from onward_runs {of_finished} and no <= {last})"
        ))?;
    }
    conn.execute_batch("commit")?;
    conn.execute_batch("pragma wal_checkpoint(truncate)")?;
    Ok(())
}

/// The columns of a table, without a number of its own that SQLite gives.
fn columns(conn: &Connection, table: &str) -> Fallible<Vec<String>> {
    let mut info = conn.prepare("select name from pragma_table_info(?1)")?;
    let names = info.query_map([table], |row| row.get::<_, String>(0))?;
    let names: Vec<String> = names.collect::<Result<_, _>>()?;
    Ok(names.into_iter().filter(|name| table != "onward_records" || name != "no").collect())
}
