//! `waiting_memory`: the live heap bytes that a parked run costs, counted in a process of its own.

use std::process::Stdio;

use tokio::process::Command;

use crate::bench::{Bench, Fallible, Measured, database};

const RUNS: usize = 100_000;

pub(crate) async fn measure(bench: &Bench) -> Fallible<Measured> {
    let scratch = bench.scratch()?;
    let counting = std::env::current_exe()?.with_file_name("onward-bench-memory");
    let output = Command::new(&counting)
        .arg(database(scratch.path()))
        .arg(bench.count(RUNS).to_string())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|error| format!("{}: {error}; build the whole package", counting.display()))?;
    let text = String::from_utf8(output.stdout)?;
    let bytes = text.trim().parse().map_err(|_| format!("{}: no figure", counting.display()))?;
    Ok(Measured::new("waiting_memory", bytes, "bytes/run", "<= 16"))
}
