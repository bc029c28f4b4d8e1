//! How fast the crate `dbos` is with the workload of Onward's own bench: real workflows through its
//! public API, each figure beside the raw limit of the same server in the same run.
//!
//! Owns: which measures there are, and their order. Never touches Onward.
//!
//! `onward-bench-dbos URL [--json] [--only NAME]… [--quick] [--connections COUNT]`

mod arguments;
mod bench;
mod raw;

mod lone_step;
mod sequential_step;
mod start_to_result;
mod steps;

use crate::arguments::{Arguments, Format};
use crate::bench::{Bench, Fallible, Measured};
use crate::raw::Raw;

#[tokio::main]
async fn main() -> Fallible<()> {
    // On a thread of the runtime, where a server's code is too: that of `main` is woken for every answer.
    tokio::spawn(run()).await?
}

async fn run() -> Fallible<()> {
    let arguments = Arguments::read(std::env::args().skip(1), NAMES)?;
    let Arguments { quick, connections, .. } = arguments;
    let bench = Bench { quick, url: arguments.url.clone(), connections };
    let mut raw = Raw::open(&bench.url).await?;
    eprintln!("{}, dbos with a pool of {connections}", raw.server().await?);
    raw.close().await?;
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
const NAMES: &[&str] =
    &["steps_100", "steps_1000", "lone_step", "start_to_result", "sequential_step"];

async fn measure(name: &str, bench: &Bench) -> Fallible<Measured> {
    match name {
        "steps_100" => steps::measure(bench, steps::HUNDRED).await,
        "steps_1000" => steps::measure(bench, steps::THOUSAND).await,
        "lone_step" => lone_step::measure(bench).await,
        "start_to_result" => start_to_result::measure(bench).await,
        "sequential_step" => sequential_step::measure(bench).await,
        _ => Err(format!("no measure {name:?}").into()),
    }
}
