//! A fence that is broken on purpose, to see that the checker finds it.
//!
//! Owns: the change to the store's functions in one database. The library has no switch for it.

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

/// What the functions that commit records and ends ask about a lease: of many writes, and of one.
const ASKED: [(&str, [&str; 3]); 2] = [
    ("onward.settle", ["r.worker = w.worker", "r.attempt = w.attempt", "k.lost_at is null"]),
    ("onward.record", ["r.worker = p_worker", "r.attempt = p_attempt", "k.lost_at is null"]),
];

/// Lets this database's functions answer every question about the lease with yes.
///
/// # Errors
/// When they are not there as they were, or the server refuses it.
pub async fn break_in(client: &Client) -> Result<(), NoVerdict> {
    for (function, questions) in ASKED {
        let ask = "select pg_get_functiondef($1::text::regproc)";
        let mut text: String = client.query_one(ask, &[&function]).await?.get(0);
        for asked in questions {
            if !text.contains(asked) {
                return Err(io::Error::other(format!("{function} does not have {asked:?}")).into());
            }
            text = text.replace(asked, "true");
        }
        client.batch_execute(&text).await?;
    }
    Ok(())
}
