//! `/audit`: who changed what.
//!
//! Owns: the rows as they are shown. Never writes one; the guard does.

use axum::extract::State;
use onward::AuditId;

use crate::answer::{self, Answer, Page};
use crate::app::App;
use crate::problem::Problem;
use crate::request::Params;

pub(crate) async fn list(State(app): State<App>, params: Params) -> Answer {
    let before: Option<AuditId> = params.cursor_of()?;
    let audit =
        app.store().audit().ok_or_else(|| Problem::unsupported("the store keeps no audit"))?;
    let page = audit.audits(before, params.limit()?).await?;
    let last = page.rows.last().map(|row| row.id.to_string());
    answer::ok(&Page { items: page.rows, next: last.filter(|_| page.more) })
}
