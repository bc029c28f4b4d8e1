//! A row of the audit for every change.
//!
//! Owns: that a change is written down before it is made, and how it went afterwards. Never writes a
//! body or a token: the action, the path, who, and what a handler says of it.

use axum::http::request::Parts;
use axum::response::Response;
use onward::AuditId;
use onward::store::NewAudit;

use crate::app::App;
use crate::endpoint::{API, Endpoint};
use crate::options::Caller;
use crate::problem::{Problem, Refused};

/// What more there is to say about a change; a handler leaves it with its answer.
#[derive(Clone)]
pub(crate) struct Detail(pub(crate) String);

/// How it went, where that is more than that it went well; a handler leaves it with its answer.
#[derive(Clone, Copy)]
pub(crate) struct Outcome(pub(crate) &'static str);

/// A change that is written down, and whose outcome is not yet.
pub(super) struct Audited(Option<AuditId>);

/// How a change went.
pub(super) struct Ended {
    text: String,
    detail: Option<String>,
}

impl Ended {
    pub(super) fn of(response: &Response) -> Self {
        let text = match response.extensions().get::<Refused>() {
            Some(refused) => refused.0.as_str(),
            None if response.status().is_success() => {
                response.extensions().get::<Outcome>().map_or("ok", |outcome| outcome.0)
            }
            None => "refused",
        };
        let detail = response.extensions().get::<Detail>().map(|detail| detail.0.clone());
        Self { text: text.to_owned(), detail }
    }
}

/// Writes down what is about to be done. Where that cannot be, it is not done.
pub(super) async fn begin(
    app: &App,
    endpoint: &Endpoint,
    caller: &Caller,
    parts: &Parts,
) -> Result<Audited, Problem> {
    let path = parts.uri.path();
    let target = path.strip_prefix(API).unwrap_or(path).to_owned();
    tracing::info!(who = %caller.who, action = endpoint.name, %target, "a change is asked for");
    let Some(audit) = app.store().audit() else { return Ok(Audited(None)) };
    let id = AuditId::new();
    let (who, role) = (caller.who.clone(), caller.role.to_string());
    let action = endpoint.name.to_owned();
    audit.add_audit(NewAudit { id, who, role, action, target }).await?;
    Ok(Audited(Some(id)))
}

impl Audited {
    /// Writes down how it went. A row that stays without an outcome says that nobody knows.
    pub(super) async fn end(self, app: &App, ended: Ended) {
        let (Some(id), Some(audit)) = (self.0, app.store().audit()) else { return };
        if let Err(error) = audit.end_audit(id, ended.text, ended.detail).await {
            tracing::warn!(%id, %error, "the outcome of a change was not written down");
        }
    }
}
