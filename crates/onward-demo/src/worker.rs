//! The worker process of the demo, which the demo starts and kills.
//!
//! Owns: one process that serves the demo's workflow. Never ends by itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use onward::Onward;
use onward::limits::LEASE_DEFAULT;
use tokio::io::AsyncReadExt;

use crate::Error;
use crate::folder::store_url;
use crate::service::Client;
use crate::workflow::{INDEX_ATTACHMENT, index_attachment};

/// Runs in flight: few enough that the demo can be watched, enough that the kill hits several.
const CONCURRENCY: usize = 6;

/// Serve the demo's workflow until stdin closes; the demo starts it
#[derive(Clone, Debug, Args)]
pub struct WorkerArgs {
    /// The demo's database
    #[arg(long)]
    database: PathBuf,
    /// Which worker process of the demo this is, from 1
    #[arg(long)]
    process: u32,
    /// Where the services listen
    #[arg(long, value_delimiter = ',')]
    services: Vec<SocketAddr>,
    /// How long its lease is, in milliseconds
    #[arg(long, default_value_t = LEASE_DEFAULT.as_millis() as u64)]
    lease_ms: u64,
}

impl WorkerArgs {
    /// Serves the workflow until the demo closes stdin.
    ///
    /// # Errors
    /// When the store cannot be opened, or fails at the end.
    pub async fn execute(self) -> Result<(), Error> {
        let onward = Onward::open(&store_url(&self.database)).await?;
        let client = Client { process: self.process, addresses: self.services };
        let worker = onward
            .worker()
            .concurrency(CONCURRENCY)
            .lease(Duration::from_millis(self.lease_ms))
            .serve(INDEX_ATTACHMENT, move |ctx, file| index_attachment(client.clone(), ctx, file))
            .start()
            .await?;
        // The demo holds the other end, so this worker ends with it, whatever ends it.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        worker.shutdown().await?;
        Ok(())
    }
}
