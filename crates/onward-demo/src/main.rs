//! `onward-demo`: the demo alone, for a first look that is built in a minute.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use onward_demo::{DemoArgs, Error, Form, WorkerArgs, quoted};

/// The command line, which is in another package of this repository.
const COMMAND: &str = "cargo run -p onward-cli --";

#[derive(Debug, Parser)]
#[command(name = "onward-demo", version, about = onward_demo::ABOUT)]
#[command(after_help = onward_demo::AFTER_HELP)]
#[command(max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Program {
    #[command(flatten)]
    demo: DemoArgs,
    #[command(subcommand)]
    worker: Option<Worker>,
}

#[derive(Debug, Subcommand)]
enum Worker {
    #[command(name = onward_demo::WORKER, hide = true)]
    Worker(WorkerArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Program { demo, worker } = Program::parse();
    let ended = match worker {
        Some(Worker::Worker(worker)) => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            worker.execute().await.map(|()| true)
        }
        None => demo.execute(Form::Table, &command()).await.map(|findings| findings.is_clean()),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            anstream::eprintln!("error: {error}");
            ExitCode::from(match error {
                Error::Usage(_) => 2,
                Error::Interrupted => 130,
                _ => 1,
            })
        }
    }
}

/// What starts the command line from the folder that the user is in.
fn command() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from);
    let here = std::env::current_dir().ok();
    match (root, here) {
        (Some(root), Some(here)) if !here.starts_with(&root) => COMMAND
            .replace("run", &format!("run --manifest-path {}", quoted(&root.join("Cargo.toml")))),
        _ => COMMAND.to_owned(),
    }
}
