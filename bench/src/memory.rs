//! `waiting_memory`, `in_flight_memory`: the live heap bytes that a run costs while it is parked, and
//! while its step executes, counted in a process of its own.
//!
//! Owns: how many runs there are of each.

use tokio::process::Command;

use crate::bench::{Bench, Fallible, Measured};
use crate::place::Place;

/// Which runs are counted.
pub(crate) struct Runs {
    /// What the counting process calls them.
    which: &'static str,
    count: usize,
    aim: &'static str,
}

pub(crate) const WAITING: Runs = Runs { which: "waiting", count: 100_000, aim: "<= 16" };

pub(crate) const IN_FLIGHT: Runs = Runs { which: "in-flight", count: 10_000, aim: "report" };

/// The program that counts.
const COUNTING: &str = "onward-bench-memory";

pub(crate) async fn measure(bench: &Bench, place: &Place, runs: Runs) -> Fallible<Measured> {
    build().await?;
    let counting = std::env::current_exe()?.with_file_name(COUNTING);
    let output = Command::new(&counting)
        .args([place.url(), runs.which])
        .arg(bench.count(runs.count).to_string())
        .output()
        .await
        .map_err(|error| format!("{}: {error}; build the whole package", counting.display()))?;
    let text = String::from_utf8(output.stdout)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let bytes = text.trim().parse().map_err(|_| format!("no figure: {said}"))?;
    Ok(Measured::new(bytes, "bytes/run", runs.aim))
}

/// Builds the counting program where cargo started this one, since `cargo run` builds only one. It has to
/// be beside this one, so of the same profile.
async fn build() -> Fallible<()> {
    let Ok(cargo) = std::env::var("CARGO") else { return Ok(()) };
    eprintln!("building {COUNTING}");
    let arguments = ["build", "--quiet", "-p", "onward-bench", "--bin", COUNTING];
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let built = Command::new(cargo).args(arguments).args(["--profile", profile]).status().await?;
    if built.success() { Ok(()) } else { Err(format!("{COUNTING} cannot be built").into()) }
}
