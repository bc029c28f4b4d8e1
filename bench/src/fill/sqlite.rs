//! Copies of finished runs in a file of SQLite.
//!
//! Owns: which tables have rows of a run.

use std::path::Path;

use rusqlite::Connection;

use crate::bench::Fallible;
use crate::place::database;

/// The tables with a row of each run, and their column that says of which.
const TABLES: [(&str, &str); 4] = [
    ("onward_runs", "no"),
    ("onward_inputs", "no"),
    ("onward_outputs", "no"),
    ("onward_records", "run"),
];

pub(super) fn copy(folder: &Path, copies: usize) -> Fallible<()> {
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
