//! `/meta`: what this server is, and what the caller may do.
//!
//! Owns: the facts that a page is built by. Never a secret.

use axum::Extension;
use axum::extract::State;
use onward::Timestamp;
use serde::Serialize;

use crate::answer::{self, Answer};
use crate::app::App;
use crate::options::{Access, Caller};

/// What this build can do beyond the looks and changes that every build can.
const FEATURES: &[&str] = &["audit", "keys", "operations", "schedules", "stream"];

#[derive(Serialize)]
struct Meta<'a> {
    version: &'a str,
    who: &'a str,
    role: &'a str,
    store: &'a str,
    now: Timestamp,
    hide_payloads: bool,
    /// Whether payloads are shown as a function of the application makes them.
    redacts_payloads: bool,
    read_only: bool,
    /// Whether one logs in with a token.
    login: bool,
    features: &'a [&'a str],
}

pub(crate) async fn show(State(app): State<App>, Extension(caller): Extension<Caller>) -> Answer {
    answer::ok(&Meta {
        version: env!("CARGO_PKG_VERSION"),
        who: &caller.who,
        role: caller.role.as_str(),
        store: app.store_kind(),
        now: app.now(),
        hide_payloads: app.options.hide_payloads,
        redacts_payloads: app.options.redact.is_some(),
        read_only: app.options.read_only,
        login: matches!(app.options.access, Access::Tokens(_)),
        features: FEATURES,
    })
}
