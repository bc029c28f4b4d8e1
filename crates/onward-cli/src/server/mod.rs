//! `onward serve`, `onward dev` and `onward tokens`: the store over HTTP.
//!
//! Owns: the flags of a server and where each setting comes from: flag, environment, `onward.toml`,
//! default, in this order. Never answers a request; `onward-server` does.

pub(crate) mod dev;
mod orders;
pub(crate) mod serve;
mod settings;
pub(crate) mod tokens;

use std::future::Future;
use std::io::Write;

use onward::Onward;
use onward_server::{Bound, ServeError, ServeOptions};

use crate::problem::Problem;

/// Listens; where the port is taken, says so.
async fn bound(onward: &Onward, options: ServeOptions) -> Result<Bound, Problem> {
    onward_server::bind(onward.clone(), options).await.map_err(problem)
}

fn problem(error: ServeError) -> Problem {
    match error {
        ServeError::Open(_) => {
            let how =
                "with --token-file FILE (see 'onward tokens create'), ONWARD_TOKEN, or --insecure";
            Problem::Usage(format!("{error}: {how}"))
        }
        ServeError::Io(address, error) => Problem::Io(format!("cannot listen on {address}"), error),
        other => Problem::Usage(other.to_string()),
    }
}

/// Prints the address, and answers until a signal asks to stop.
async fn until_stopped(bound: Bound) -> Result<(), Problem> {
    let mut out = std::io::stdout();
    writeln!(out, "http://{}", bound.address())?;
    out.flush()?;
    bound.serve(stop()?).await;
    Ok(())
}

/// Resolves when the process is asked to stop. A second time ends it at once.
fn stop() -> Result<impl Future<Output = ()> + Send + 'static, Problem> {
    use tokio::signal::unix::{SignalKind, signal};

    let listen = |kind| signal(kind).map_err(Problem::io("cannot listen for signals"));
    let (mut terminate, mut interrupt) =
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        eprintln!("stopping: requests under way are finished; again to stop at once");
        tokio::spawn(async move {
            let code = tokio::select! {
                _ = terminate.recv() => 143,
                _ = interrupt.recv() => 130,
            };
            std::process::exit(code);
        });
    })
}
