//! How fast Onward is: real workflows through the public API, from the first `start` to the last
//! result, each figure beside its own raw limit from the same run.
//!
//! Owns: which measures there are on which store, and their order.
//!
//! `onward-bench sqlite [--dir FOLDER] [--json] [--only NAME]… [--quick] [--finished COUNT]`
//! `onward-bench postgres [URL] [--json] [--only NAME]… [--quick] [--finished COUNT]`

mod arguments;
mod bench;
mod child;
mod fill;
mod place;
mod raw;
mod relay;
mod role;
mod share;
mod team;

mod churn_claims;
mod cross_process;
mod flat_claims;
mod flat_history;
mod idle_cpu;
mod idle_queries;
mod lone_step;
mod memory;
mod prune_beside;
mod raw_rows;
mod same_key;
mod sequential_step;
mod start_to_result;
mod steps;
mod takeover;

use std::process::ExitCode;

use crate::arguments::{Arguments, Format};
use crate::bench::{Bench, Fallible, Measured};
use crate::place::{Kind, Place};

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run().await else { return ExitCode::SUCCESS };
    eprint!("{error}");
    let mut source = error.source();
    while let Some(inner) = source {
        eprint!(": {inner}");
        source = inner.source();
    }
    eprintln!();
    ExitCode::FAILURE
}

async fn run() -> Fallible<()> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let Some((child::ARGUMENT, role)) = given.split_first().map(|(first, rest)| (&**first, rest))
    {
        let role = role.to_vec();
        // On a thread of the runtime, where a server's code is too: that of `main` is woken for every answer.
        return tokio::spawn(async move { role::serve(&role).await }).await?;
    }
    let arguments = Arguments::read(given.into_iter())?;
    let wanted = arguments.wanted(names(&arguments.kind))?;
    let Arguments { quick, finished, .. } = arguments;
    let bench = Bench { quick, finished, kind: arguments.kind.clone() };
    if let Some(about) = bench.kind.about().await? {
        eprintln!("{about}");
    }
    if arguments.format == Format::Table {
        println!("{}", Measured::head());
    }
    for name in wanted {
        let measured = measure(&name, &bench).await?;
        match arguments.format {
            Format::Table => println!("{}", measured.row()),
            Format::Json => println!("{}", serde_json::to_string(&measured)?),
        }
    }
    Ok(())
}

/// Every measure on a store, in the order in which they are taken.
fn names(kind: &Kind) -> Vec<String> {
    let shared = EVERYWHERE.iter().filter(|name| !OF_ONE_PROCESS.contains(name));
    let several = shared.flat_map(|name| SEVERAL.map(|count| format!("{name}_{count}")));
    let one = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    match kind {
        Kind::Sqlite { .. } => one(EVERYWHERE),
        Kind::Postgres { .. } => {
            [one(LIMITS), one(EVERYWHERE), several.collect(), one(ON_A_SERVER)].concat()
        }
    }
}

/// What is taken with one worker process.
const EVERYWHERE: &[&str] = &[
    "steps_100",
    "steps_1000",
    "keyed_1000",
    "lone_step",
    "start_to_result",
    "sequential_step",
    "flat_history",
    "flat_claims",
    "same_key",
    "waiting_memory",
    "in_flight_memory",
    "idle_cpu",
    "prune_beside",
];

/// What a run costs in the memory of the one process that has it, however many there are. All else is
/// taken on a server with several worker processes too.
const OF_ONE_PROCESS: &[&str] = &["waiting_memory", "in_flight_memory"];

/// What fills its store by itself, with as many runs as it is about.
const FILLS_ITSELF: &[&str] = &["flat_claims", "prune_beside", "churn_claims"];

/// How many worker processes several are; the measure's name ends in the number.
const SEVERAL: [usize; 2] = [2, 4];

/// What a server itself does.
const LIMITS: &[&str] = &["raw_rows_1", "raw_rows_16", "raw_rows_64", "raw_rows_batch"];

/// Between processes, and what only a server counts.
const ON_A_SERVER: &[&str] = &["cross_process", "takeover", "idle_queries", "churn_claims"];

/// Takes a measure in a store of its own.
async fn measure(name: &str, bench: &Bench) -> Fallible<Measured> {
    let (alone, processes) = processes(name);
    let place = Place::make(&bench.kind).await?;
    let measured = take(alone, bench, &place, processes).await;
    let removed = place.remove().await;
    let mut measured = measured.map_err(|error| format!("{name}: {error}"))?;
    removed?;
    measured.measure = name.to_owned();
    if processes > 1 {
        measured.aim = "report";
    }
    Ok(measured)
}

/// The name of the measure with one process, and how many are asked for.
fn processes(name: &str) -> (&str, usize) {
    let several = SEVERAL.iter().find_map(|count| {
        let alone = name.strip_suffix(&format!("_{count}"))?;
        EVERYWHERE.contains(&alone).then_some((alone, *count))
    });
    several.unwrap_or((name, 1))
}

async fn take(name: &str, bench: &Bench, place: &Place, processes: usize) -> Fallible<Measured> {
    if bench.finished >= fill::FEW && !FILLS_ITSELF.contains(&name) {
        fill::finished(place, bench.finished).await?;
    }
    match name {
        "raw_rows_1" => raw_rows::measure(bench, place, 1).await,
        "raw_rows_16" => raw_rows::measure(bench, place, 16).await,
        "raw_rows_64" => raw_rows::measure(bench, place, 64).await,
        "raw_rows_batch" => raw_rows::batch(place).await,
        "steps_100" => steps::measure(bench, place, processes, steps::HUNDRED).await,
        "steps_1000" => steps::measure(bench, place, processes, steps::THOUSAND).await,
        "keyed_1000" => steps::measure(bench, place, processes, steps::KEYED).await,
        "lone_step" => lone_step::measure(bench, place, processes).await,
        "start_to_result" => start_to_result::measure(bench, place, processes).await,
        "sequential_step" => sequential_step::measure(bench, place, processes).await,
        "flat_history" => flat_history::measure(bench, place, processes).await,
        "flat_claims" => flat_claims::measure(bench, place, processes).await,
        "same_key" => same_key::measure(bench, place, processes).await,
        "waiting_memory" => memory::measure(bench, place, memory::WAITING).await,
        "in_flight_memory" => memory::measure(bench, place, memory::IN_FLIGHT).await,
        "idle_cpu" => idle_cpu::measure(bench, place, processes).await,
        "prune_beside" => prune_beside::measure(bench, place, processes).await,
        "cross_process" => cross_process::measure(bench, place).await,
        "takeover" => takeover::measure(bench, place).await,
        "idle_queries" => idle_queries::measure(bench, place).await,
        "churn_claims" => churn_claims::measure(bench, place).await,
        _ => Err(format!("no measure {name:?}").into()),
    }
}
