//! The `onward` command: flags → one call of the library or of a server → print.
//!
//! Owns: what is typed and what is shown. Never a rule about runs; those are the library's, and
//! so is every sentence that explains one.

mod args;
mod audit;
mod config;
mod copy;
mod demo;
mod doctor;
mod errors;
#[cfg(test)]
mod example;
mod keys;
mod new;
mod ops;
mod prune;
mod queues;
mod runs;
mod schedules;
#[cfg(feature = "server")]
mod server;
mod shell;
mod signals;
mod start;
mod stats;
mod workers;
mod workflows;

mod open;
mod output;
mod payloads;
mod place;
mod problem;
mod progress;
mod redraw;
mod table;
#[cfg(feature = "opentelemetry")]
mod telemetry;
mod text;

use std::process::ExitCode;

use crate::args::Args;

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::typed();
    let log = begin_log(args.global.verbose);
    let ended = match args.execute().await {
        Ok(exit) => exit,
        Err(problem) => {
            problem.print();
            problem.exit()
        }
    };
    log.end();
    ExitCode::from(ended as u8)
}

/// What is to be ended with the process.
struct Log {
    #[cfg(feature = "opentelemetry")]
    telemetry: Option<telemetry::Telemetry>,
}

impl Log {
    /// Sends what is left of the traces.
    fn end(self) {
        #[cfg(feature = "opentelemetry")]
        if let Some(telemetry) = self.telemetry {
            telemetry.end();
        }
    }
}

/// Sends the library's log to stderr: warnings, and more with each `-v`.
fn begin_log(verbose: u8) -> Log {
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::{Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;

    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let colour = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour);
    let registry = tracing_subscriber::registry().with(lines.with_filter(level));
    #[cfg(feature = "opentelemetry")]
    {
        let telemetry = telemetry::Telemetry::begin();
        registry.with(telemetry.as_ref().map(|telemetry| telemetry.layer())).init();
        Log { telemetry }
    }
    #[cfg(not(feature = "opentelemetry"))]
    {
        registry.init();
        Log {}
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::problem::Exit;

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn exit_codes_are_those_of_the_manual() {
        let codes = [Exit::Ok, Exit::No, Exit::Usage, Exit::NotFound, Exit::Unavailable];
        assert_eq!(codes.map(|exit| exit as u8), [0, 1, 2, 3, 4]);
    }
}
