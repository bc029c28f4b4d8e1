//! Many finished runs at once: copies of those that a worker finished, made with plain SQL in
//! whatever tables the store keeps of them.
//!
//! Owns: the copies. Never copies what is not finished.

mod postgres;
mod sqlite;

use crate::bench::Fallible;
use crate::place::{Made, Place};

/// Copies every finished run so many times.
pub(crate) async fn copy(place: &Place, copies: usize) -> Fallible<()> {
    match &place.made {
        Made::Folder(folder) => sqlite::copy(folder.path(), copies),
        Made::Schema { url, name } => postgres::copy(url, name, copies).await,
    }
}
