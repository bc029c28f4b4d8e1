//! The audit: who changed what through a server, and how that went.
//!
//! Owns: [`Audit`] and the plain data of its verbs. Never knows what an action is; whoever writes a
//! row names it.

use serde::{Deserialize, Serialize};

use super::Answer;
use crate::{AuditId, Timestamp};

/// A store that keeps an audit.
///
/// Beside [`Store`](super::Store), because no run needs it. A row is written before what it tells
/// of is done, so that nothing is done without one, and its outcome after that. A row without an
/// outcome tells of something that may or may not have been done: its server died meanwhile.
///
/// ```
/// use onward::AuditId;
/// use onward::store::{Audit, MemoryStore, NewAudit};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::store::Error> {
/// let store = MemoryStore::new();
/// let id = AuditId::new();
/// let of = |text: &str| text.to_owned();
/// let (action, target) = (of("cancel_run"), of("/runs/7"));
/// store.add_audit(NewAudit { id, who: of("ada"), role: of("operate"), action, target }).await?;
/// store.end_audit(id, of("ok"), None).await?;
/// let page = store.audits(None, 10).await?;
/// assert_eq!(page.rows[0].outcome.as_deref(), Some("ok"));
/// # Ok(()) }
/// ```
pub trait Audit: Send + Sync {
    /// Keeps a row. Again with the same id: `Ok`, and nothing changes. Along with it goes a bounded
    /// number of rows that are older than `AUDIT_KEPT`.
    fn add_audit(&self, row: NewAudit) -> Answer<'_, ()>;

    /// Says how it went. A row that has an outcome keeps it, so a repeat changes nothing. `NotFound`
    /// when there is no such row.
    fn end_audit(&self, id: AuditId, outcome: String, detail: Option<String>) -> Answer<'_, ()>;

    /// Adds rows as they stood in another store, up to `PAGE_ROWS_MAX` of them; says how many were not
    /// there. One that is there stays as it is, so a repeat changes nothing.
    fn import_audits(&self, rows: Vec<AuditRow>) -> Answer<'_, u64>;

    /// Rows older than `before`, newest first: at most `limit`, up to `PAGE_ROWS_MAX`.
    fn audits(&self, before: Option<AuditId>, limit: usize) -> Answer<'_, AuditPage>;
}

/// A row to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAudit {
    /// Its name, made by the writer: a repeat is known by it.
    pub id: AuditId,
    /// Who did it.
    pub who: String,
    /// In which role.
    pub role: String,
    /// What, as a stable name.
    pub action: String,
    /// To what.
    pub target: String,
}

/// A row of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Its name.
    pub id: AuditId,
    /// When it was written, by the store's clock.
    pub at: Timestamp,
    /// Who did it.
    pub who: String,
    /// In which role.
    pub role: String,
    /// What, as a stable name.
    pub action: String,
    /// To what.
    pub target: String,
    /// What more there is to say, for people.
    pub detail: Option<String>,
    /// `ok`, or the code of what it was refused for. `None`: it is not known.
    pub outcome: Option<String>,
}

impl AuditRow {
    /// The row that `new` becomes.
    pub fn of(new: NewAudit, at: Timestamp) -> Self {
        let NewAudit { id, who, role, action, target } = new;
        Self { id, at, who, role, action, target, detail: None, outcome: None }
    }
}

/// A page of the audit, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditPage {
    /// The rows.
    pub rows: Vec<AuditRow>,
    /// Whether more follow.
    pub more: bool,
}
