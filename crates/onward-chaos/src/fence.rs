//! A fence that is broken on purpose, to see that the checker finds it.
//!
//! Owns: the change to the store's function in one database. The library has no switch for it.

use std::io;

use tokio_postgres::Client;

use crate::play::NoVerdict;

/// Whether the store keeps its fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// As it should.
    #[default]
    Kept,
    /// Whoever writes to a run that is held by anybody succeeds.
    Broken,
}

/// What the function that commits records and ends asks about a lease.
const ASKED: [&str; 3] = ["r.worker = w.worker", "r.attempt = w.attempt", "k.lost_at is null"];

/// Lets this database's function answer every question about the lease with yes.
///
/// # Errors
/// When they are not there as they were, or the server refuses it.
pub async fn break_in(client: &Client) -> Result<(), NoVerdict> {
    let ask = "select pg_get_functiondef('onward.settle'::regproc)";
    let mut text: String = client.query_one(ask, &[]).await?.get(0);
    for asked in ASKED {
        if !text.contains(asked) {
            return Err(io::Error::other(format!("onward.settle does not have {asked:?}")).into());
        }
        text = text.replace(asked, "true");
    }
    Ok(client.batch_execute(&text).await?)
}
