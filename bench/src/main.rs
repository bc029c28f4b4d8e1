//! How fast Onward is: real workflows through the public API, from the first `start` to the last
//! result, each figure beside its own raw limit from the same run.
//!
//! `onward-bench sqlite [--json] [--only NAME]… [--quick] [--dir FOLDER]`

mod arguments;
mod bench;
mod raw;

mod flat_claims;
mod flat_history;
mod idle_cpu;
mod lone_step;
mod same_key;
mod sequential_step;
mod start_to_result;
mod steps;
mod waiting_memory;

use crate::arguments::{Arguments, Format};
use crate::bench::{Bench, Fallible, Measured};

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments = Arguments::read(std::env::args().skip(1), NAMES)?;
    let bench = Bench { quick: arguments.quick, folder: arguments.folder.clone() };
    if arguments.format == Format::Table {
        println!("{}", Measured::head());
    }
    for name in NAMES.iter().filter(|name| arguments.wants(name)) {
        let measured = measure(name, &bench).await?;
        match arguments.format {
            Format::Table => println!("{}", measured.row()),
            Format::Json => println!("{}", serde_json::to_string(&measured)?),
        }
    }
    Ok(())
}

/// Every measure, in the order in which they are taken.
const NAMES: &[&str] = &[
    "steps_100",
    "steps_1000",
    "lone_step",
    "start_to_result",
    "sequential_step",
    "flat_history",
    "flat_claims",
    "same_key",
    "waiting_memory",
    "idle_cpu",
];

async fn measure(name: &str, bench: &Bench) -> Fallible<Measured> {
    match name {
        "steps_100" => steps::measure(bench, steps::HUNDRED).await,
        "steps_1000" => steps::measure(bench, steps::THOUSAND).await,
        "lone_step" => lone_step::measure(bench).await,
        "start_to_result" => start_to_result::measure(bench).await,
        "sequential_step" => sequential_step::measure(bench).await,
        "flat_history" => flat_history::measure(bench).await,
        "flat_claims" => flat_claims::measure(bench).await,
        "same_key" => same_key::measure(bench).await,
        "waiting_memory" => waiting_memory::measure(bench).await,
        "idle_cpu" => idle_cpu::measure(bench).await,
        _ => Err(format!("no measure {name:?}").into()),
    }
}
