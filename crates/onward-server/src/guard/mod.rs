//! What every request passes before its handler.
//!
//! Owns: the order of the checks. Host and origin come before the token, so that a page of somebody
//! else learns nothing; the row of the audit comes last before the handler, and its outcome after it.
//! Never lets a request to a handler without an endpoint of the table.

mod audit;
mod origin;
pub(crate) mod rate;
mod who;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onward::Code;
use tracing::Instrument;

pub(crate) use audit::{Detail, Outcome};
pub(crate) use who::{COOKIE, is_known, session, session_secret};

use crate::app::App;
use crate::endpoint::Endpoint;
use crate::options::{Caller, Role};
use crate::problem::Problem;
use crate::request::Params;
use crate::trace;

/// What the guard of one endpoint knows.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) app: App,
    pub(crate) endpoint: &'static Endpoint,
}

/// Where a request comes from, as far as that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(ip) => write!(f, "{ip}"),
            None => f.write_str("unknown"),
        }
    }
}

/// Checks a request, hands it to its handler, and dresses the answer.
pub(crate) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let span = trace::of_request(guard.endpoint, request.headers());
    let response = match pass(&guard, request, next).instrument(span.clone()).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    };
    trace::answered(&span, response.status());
    guard.app.counts.answered(guard.endpoint.name, response.status());
    dressed(response, if guard.endpoint.is_change() { NEVER_KEPT } else { KEPT_IF_SAME })
}

/// How long a browser keeps the answer to a look: until it asks again, and hears that it is the same.
pub(crate) const KEPT_IF_SAME: &str = "no-cache, private";

/// How long it keeps the answer to a change.
const NEVER_KEPT: &str = "no-store";

async fn pass(guard: &Guard, request: Request, next: Next) -> Result<Response, Problem> {
    let Guard { app, endpoint } = guard;
    let (mut parts, body) = request.into_parts();
    origin::check_host(&parts, &app.options)?;
    origin::check_origin(&parts)?;
    let from = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let from = Peer(from);
    parts.extensions.insert(from);
    known_params(endpoint, &parts)?;
    let Some(needed) = endpoint.role else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    let caller = who::caller(app, &parts, from)?;
    within_rate(app, &caller, from)?;
    if endpoint.is_change() {
        who::check_cookie(app, &parts)?;
    }
    let refused = refused(app, endpoint, &caller, needed);
    parts.extensions.insert(caller.clone());
    if !endpoint.is_change() {
        return match refused {
            Some(problem) => Err(problem),
            None => Ok(next.run(Request::from_parts(parts, body)).await),
        };
    }
    let audited = audit::begin(app, endpoint, &caller, &parts).await?;
    let response = match refused {
        Some(problem) => problem.into_response(),
        None => next.run(Request::from_parts(parts, body)).await,
    };
    audited.end(app, audit::Ended::of(&response)).await;
    Ok(response)
}

fn known_params(endpoint: &Endpoint, parts: &Parts) -> Result<(), Problem> {
    let params = Params::of(parts.uri.query().unwrap_or_default());
    // The dashboard keeps what it shows in its own addresses.
    let known = |name: &&str| endpoint.params.contains(name) || endpoint.params == ["*"];
    if let Some(name) = params.names().find(|name| !known(name)) {
        return Err(Problem::invalid(name, "there is no such parameter here"));
    }
    // Databases cannot keep it, so nothing of that name is there.
    if parts.uri.path().contains("%00") || params.holds_nul() {
        return Err(Problem::new(
            Code::NulCharacter,
            "the path or the query holds a NUL character",
        ));
    }
    Ok(())
}

fn within_rate(app: &App, caller: &Caller, from: Peer) -> Result<(), Problem> {
    match app.rates.take(&format!("{} {from}", caller.who)) {
        Ok(()) => Ok(()),
        Err(wait) => Err(too_often(wait)),
    }
}

fn too_often(wait: Duration) -> Problem {
    let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    Problem::new(Code::RateLimited, "more requests than this server takes from one caller")
        .retry_after_ms(ms)
}

fn refused(app: &App, endpoint: &Endpoint, caller: &Caller, needed: Role) -> Option<Problem> {
    let forbidden = |text: String| Some(Problem::new(Code::Forbidden, text));
    if app.options.read_only && endpoint.is_change() {
        return forbidden("this server only shows, and changes nothing".to_owned());
    }
    if caller.role < needed {
        return forbidden(format!(
            "it takes the role {needed}, and this caller's is {}",
            caller.role
        ));
    }
    None
}

/// The headers that every answer has: nothing is sniffed, framed, cached or sent on.
pub(crate) fn dressed(mut response: Response, kept: &'static str) -> Response {
    let headers = response.headers_mut();
    let mut set = |name, value| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, CSP);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(header::CACHE_CONTROL, kept);
    response
}

/// Everything from this server, nothing inline, nothing elsewhere.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'self'; \
                   form-action 'self'; frame-ancestors 'none'";
