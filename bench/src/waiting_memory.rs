//! `waiting_memory`: the live heap bytes that a parked run costs, counted in a process of its own.
//!
//! Owns: how many runs park.

use std::process::Stdio;

use tokio::process::Command;

use crate::bench::{Bench, Fallible, Measured};
use crate::place::Place;

const RUNS: usize = 100_000;

pub(crate) async fn measure(bench: &Bench, place: &Place) -> Fallible<Measured> {
    let counting = std::env::current_exe()?.with_file_name("onward-bench-memory");
    let output = Command::new(&counting)
        .arg(place.url())
        .arg(bench.count(RUNS).to_string())
        .stderr(Stdio::inherit())
        .output()
        .await
        .map_err(|error| format!("{}: {error}; build the whole package", counting.display()))?;
    let text = String::from_utf8(output.stdout)?;
    let bytes = text.trim().parse().map_err(|_| format!("{}: no figure", counting.display()))?;
    Ok(Measured::new("waiting_memory", bytes, "bytes/run", "<= 16"))
}
