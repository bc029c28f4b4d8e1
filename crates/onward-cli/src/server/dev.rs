//! `onward dev`: the server on this machine in one command.
//!
//! Owns: the free port, the browser and the demo beside it. Never decides who gets
//! in; the settings do.

use std::net::SocketAddr;

use clap::Args;
use onward_server::{Bound, ServeOptions};

use super::orders::Orders;
use super::settings::Settings;
use crate::args::{DATABASE, Global};
use crate::open;
use crate::problem::{Exit, Problem, print_note};

/// Ports after the usual one that are tried when it is taken.
const PORTS_TRIED: u16 = 20;

/// Serves the API and the dashboard on this machine, on the next free port
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward dev                 the store that every command takes here
  onward dev --demo --open   with a workflow that is at work, in a browser")]
pub(crate) struct DevArgs {
    /// Keeps a workflow of orders at work, so that there is something to see
    #[arg(long)]
    demo: bool,
    /// Opens the address in a browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    settings: Settings,
}

impl DevArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let settled = self.settings.settle(global)?;
        check_store(self.demo, global, &settled.store)?;
        let onward = open::created_aloud(&settled.store).await?;
        let bound = free(&onward, settled.serve).await?;
        let orders = if self.demo { Some(Orders::begin(&onward).await?) } else { None };
        if self.open {
            browse(bound.address());
        }
        super::until_stopped(bound).await?;
        if let Some(orders) = orders {
            orders.end().await?;
        }
        Ok(Exit::Ok)
    }
}

/// Says where the store is the one of the application, which nobody typed here, and puts no orders of the
/// demo's into it.
fn check_store(demo: bool, global: &Global, store: &str) -> Result<(), Problem> {
    let of_application = std::env::var(DATABASE).is_ok_and(|url| url == store);
    if !of_application || global.store_is_typed {
        return Ok(());
    }
    if demo {
        let why = "--demo would write orders into the database of DATABASE_URL; say which store is \
                       meant with --store, as --store sqlite:onward.db";
        return Err(Problem::Usage(why.to_owned()));
    }
    print_note(&"the store is the one of DATABASE_URL; for a file here: --store sqlite:onward.db");
    Ok(())
}

/// Listens on the first port that is free, from the usual one on.
async fn free(onward: &onward::Onward, serve: ServeOptions) -> Result<Bound, Problem> {
    let first = serve.listen.port();
    for port in first..first.saturating_add(PORTS_TRIED) {
        let mut serve = serve.clone();
        serve.listen.set_port(port);
        match super::bound(onward, serve).await {
            Err(Problem::Io(_, error)) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    super::bound(onward, serve).await
}

/// Opens a browser, where there is one.
fn browse(address: SocketAddr) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let opened = std::process::Command::new(program).arg(format!("http://{address}")).spawn();
    if let Err(error) = opened {
        print_note(&format!("no browser was opened ({program}: {error})"));
    }
}
