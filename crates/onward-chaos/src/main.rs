//! The chaos, by hand: plays it and exits with 1 if a promise did not hold. It is also the program
//! of the workers that it starts.

use std::error::Error;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use onward::{Onward, Worker};
use onward_chaos::bank;
use onward_chaos::crew::TIMES;
use onward_chaos::fence::Fence;
use onward_chaos::play::{self, Options};
use onward_chaos::storm;
use onward_crash::effect::Pen;
use onward_crash::flow::{self, Scene};
use onward_crash::random::seed_of_now;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
Usage: scripts/chaos [OPTION VALUE]…

Serves runs with many worker processes on a Postgres of its own, while workers are killed and
stopped, connections cut and the server restarted; then checks that every promise held.

  --workers N    worker processes (6)
  --runs N       runs (5000)
  --minutes N    how long the storm lasts (3); the runs have as long again to end
  --lease-ms N   the workers' lease (2000)
  --seed N       decides everything random (chosen, and told)
";

/// Runs that a worker executes at once: few enough that some are queued, as in a busy house.
const CONCURRENCY: usize = 16;

/// The pause before a worker that does not reach the store tries again.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let done = match given.first().map(String::as_str) {
        Some("worker") => serve(&given[1..]).await.map(|()| ExitCode::SUCCESS),
        Some("-h" | "--help") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => play_chaos(&given).await,
    };
    done.unwrap_or_else(|error| {
        eprintln!("chaos: {error}");
        ExitCode::from(2)
    })
}

async fn play_chaos(given: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let options = options(given)?;
    let (seed, folder) = (options.seed, options.folder.clone());
    eprintln!("seed {seed}; effects and logs in {}", folder.display());
    // Dropped half-way, the play ends its workers and its server.
    let verdict = tokio::select! {
        verdict = play::play(options) => verdict.map_err(|error| error.to_string())?,
        () = interrupted() => return Err("interrupted".into()),
    };
    println!("{verdict}");
    if verdict.violations.is_empty() {
        std::fs::remove_dir_all(folder)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("to repeat it: scripts/chaos --seed {seed}, with the same other options");
    Ok(ExitCode::from(1))
}

/// Resolves when somebody asks this process to end.
async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

fn options(given: &[String]) -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        program: std::env::current_exe()?,
        workers: 6,
        runs: 5_000,
        storm: Duration::from_secs(3 * 60),
        calm: Duration::from_secs(3 * 60),
        lease: Duration::from_secs(2),
        pause_max: Duration::from_millis(600),
        seed: seed_of_now(),
        deeds: &storm::ALL,
        fence: Fence::Kept,
        folder: tempfile::Builder::new().prefix("onward-chaos.").tempdir()?.keep(),
    };
    for pair in given.chunks(2) {
        let [name, value] = pair else { return Err(USAGE.into()) };
        let number: u64 = value.parse().map_err(|_| format!("{name} takes a number\n{USAGE}"))?;
        match name.as_str() {
            "--workers" => options.workers = usize::try_from(number)?.max(1),
            "--runs" => options.runs = u32::try_from(number)?,
            "--minutes" => {
                options.storm = Duration::from_secs(number * 60);
                options.calm = options.storm.max(Duration::from_secs(60));
            }
            "--lease-ms" => options.lease = Duration::from_millis(number),
            "--seed" => options.seed = number,
            _ => return Err(format!("there is no option {name}\n{USAGE}").into()),
        }
    }
    Ok(options)
}

/// A worker: serves until it is killed, or whoever started it is gone.
async fn serve(given: &[String]) -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let [url, effects, generation, lease_ms] = given else {
        return Err("usage: onward-chaos worker URL EFFECTS GENERATION LEASE_MS".into());
    };
    let effects = PathBuf::from(effects);
    let pen = Pen::open(&effects, generation.parse()?)?;
    let scene = Scene { pen, gate: effects.with_extension("gate") };
    let lease = Duration::from_millis(lease_ms.parse()?);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    // The storm may have begun before us.
    let _worker = loop {
        match join(url, &scene, lease).await {
            Ok(worker) => break worker,
            Err(error) if error.is_retryable() => {
                eprintln!("the store does not answer yet: {error}");
                tokio::time::sleep(REPEAT_PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    std::future::pending().await
}

async fn join(url: &str, scene: &Scene, lease: Duration) -> Result<Worker, onward::Error> {
    let onward = Onward::open(&format!("{url}{TIMES}")).await?;
    let worker = bank::serve(flow::serve(onward.worker(), scene), &scene.pen);
    let worker = worker.concurrency(CONCURRENCY).lease(lease);
    worker.linger(flow::LINGER).start().await
}
