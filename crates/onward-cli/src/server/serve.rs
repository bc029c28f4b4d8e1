//! `onward serve`: the API and the dashboard over a store, until it is told to stop.
//!
//! Owns: the command. Never executes a run of the user's.

use clap::Args;

use super::settings::Settings;
use crate::args::Global;
use crate::open;
use crate::problem::{Exit, Problem};

/// Serves the API and the dashboard of a store
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward serve                                        this machine only, port 7171
  onward serve --store postgres://db/app --listen 0.0.0.0:7171 --host app.example.com --token-file tokens
  ONWARD_STORE=sqlite:/var/lib/app/onward.db onward serve

Each setting comes from its flag, else from ONWARD_…, else from onward.toml, else from its default;
the store also from DATABASE_URL. SIGTERM lets requests under way finish; with --stop-delay, new ones
are answered for a while before that. It executes no runs: your own workers do.")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    settings: Settings,
}

impl ServeArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let settled = self.settings.settle(global)?;
        let onward = open::created_aloud(&settled.store).await?;
        let bound = super::bound(&onward, settled.serve).await?;
        super::until_stopped(bound).await?;
        Ok(Exit::Ok)
    }
}
