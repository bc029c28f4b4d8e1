//! The worker process of the demo: `onward demo-worker`, started and killed by the demo.
//!
//! Owns: one process that serves the demo's workflow. Never ends by itself.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use onward::limits::LEASE_DEFAULT;
use tokio::io::AsyncReadExt;

use super::service::Client;
use super::workflow::{INDEX_ATTACHMENT, index_attachment};
use crate::args::{self, Global};
use crate::open;
use crate::problem::{Exit, Problem};

/// Runs in flight: few enough that the demo can be watched, enough that the kill hits several.
const CONCURRENCY: usize = 6;

/// Serves the demo's workflow until stdin closes; started by the demo itself
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoWorkerArgs {
    /// Which worker process of the demo this is, from 1
    #[arg(long)]
    process: u32,
    /// Where the services listen
    #[arg(long, value_delimiter = ',')]
    services: Vec<SocketAddr>,
    /// How long after its death its runs are taken over
    #[arg(long, value_parser = args::duration)]
    lease: Option<Duration>,
}

impl DemoWorkerArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let onward = open::existing(&global.store()?).await?;
        let client = Client { process: self.process, addresses: self.services };
        let worker = onward
            .worker()
            .concurrency(CONCURRENCY)
            .lease(self.lease.unwrap_or(LEASE_DEFAULT))
            .serve(INDEX_ATTACHMENT, move |ctx, file| index_attachment(client.clone(), ctx, file))
            .start()
            .await?;
        // The demo holds the other end, so this worker ends with it, whatever ends it.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        worker.shutdown().await?;
        Ok(Exit::Ok)
    }
}
