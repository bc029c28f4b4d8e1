//! How fast Onward is: real workflows through the public API, from the first `start` to the last
//! result, each figure beside its own raw limit from the same run.
//!
//! Owns: which measures there are on which store, and their order.
//!
//! `onward-bench sqlite [--dir FOLDER] [--json] [--only NAME]… [--quick]`
//! `onward-bench postgres [URL] [--json] [--only NAME]… [--quick]`

mod arguments;
mod bench;
mod fill;
mod place;
mod raw;

mod flat_claims;
mod flat_history;
mod idle_cpu;
mod lone_step;
mod raw_rows;
mod same_key;
mod sequential_step;
mod start_to_result;
mod steps;
mod waiting_memory;

use crate::arguments::{Arguments, Format};
use crate::bench::{Bench, Fallible, Measured};
use crate::place::{Kind, Place};

#[tokio::main]
async fn main() -> Fallible<()> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let wanted = arguments.wanted(&names(&arguments.kind))?;
    let bench = Bench { quick: arguments.quick, kind: arguments.kind.clone() };
    if let Some(about) = bench.kind.about().await? {
        eprintln!("{about}");
    }
    if arguments.format == Format::Table {
        println!("{}", Measured::head());
    }
    for name in wanted {
        let measured = measure(name, &bench).await?;
        match arguments.format {
            Format::Table => println!("{}", measured.row()),
            Format::Json => println!("{}", serde_json::to_string(&measured)?),
        }
    }
    Ok(())
}

/// Every measure on a store, in the order in which they are taken.
fn names(kind: &Kind) -> Vec<&'static str> {
    match kind {
        Kind::Sqlite { .. } => EVERYWHERE.to_vec(),
        Kind::Postgres { .. } => [ON_A_SERVER, EVERYWHERE].concat(),
    }
}

const EVERYWHERE: &[&str] = &[
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

const ON_A_SERVER: &[&str] = &["raw_rows_1", "raw_rows_16", "raw_rows_64", "raw_rows_batch"];

/// Takes a measure in a store of its own.
async fn measure(name: &'static str, bench: &Bench) -> Fallible<Measured> {
    let place = Place::make(&bench.kind).await?;
    let measured = take(name, bench, &place).await;
    let removed = place.remove().await;
    let measured = measured.map_err(|error| format!("{name}: {error}"))?;
    removed?;
    Ok(measured)
}

async fn take(name: &'static str, bench: &Bench, place: &Place) -> Fallible<Measured> {
    match name {
        "raw_rows_1" => raw_rows::measure(bench, place, name, 1).await,
        "raw_rows_16" => raw_rows::measure(bench, place, name, 16).await,
        "raw_rows_64" => raw_rows::measure(bench, place, name, 64).await,
        "raw_rows_batch" => raw_rows::batch(place).await,
        "steps_100" => steps::measure(bench, place, steps::HUNDRED).await,
        "steps_1000" => steps::measure(bench, place, steps::THOUSAND).await,
        "lone_step" => lone_step::measure(bench, place).await,
        "start_to_result" => start_to_result::measure(bench, place).await,
        "sequential_step" => sequential_step::measure(bench, place).await,
        "flat_history" => flat_history::measure(bench, place).await,
        "flat_claims" => flat_claims::measure(bench, place).await,
        "same_key" => same_key::measure(bench, place).await,
        "waiting_memory" => waiting_memory::measure(bench, place).await,
        "idle_cpu" => idle_cpu::measure(bench, place).await,
        _ => Err(format!("no measure {name:?}").into()),
    }
}
