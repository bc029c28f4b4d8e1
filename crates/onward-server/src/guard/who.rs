//! Who sends a request.
//!
//! Owns: the bearer token, and the dashboard's cookie, which carries the same. Never keeps a session:
//! a token that is taken away ends them all.

use axum::http::header::{AUTHORIZATION, COOKIE as COOKIES};
use axum::http::request::Parts;
use onward::{Code, Fingerprint};

use super::{Peer, too_often};
use crate::app::App;
use crate::options::{Access, Caller};
use crate::problem::Problem;

/// The name of the dashboard's cookie.
pub(crate) const COOKIE: &str = "onward_session";

/// The header that a page sends with a change: a form of another site cannot.
const CHANGE_HEADER: &str = "x-onward";

/// Who sends this request.
pub(super) fn caller(app: &App, parts: &Parts, from: Peer) -> Result<Caller, Problem> {
    match &app.options.access {
        Access::Open(role) => Ok(Caller { who: "anyone".to_owned(), role: *role }),
        Access::Asked(ask) => ask(parts).ok_or_else(|| unauthorized("the application refused it")),
        Access::Tokens(tokens) => {
            let Some(secret) = bearer(parts).or_else(|| cookie(parts)) else {
                return Err(unauthorized("send a token as Authorization: Bearer TOKEN"));
            };
            match tokens.caller(secret) {
                Some(caller) => Ok(caller),
                None => Err(wrong_token(app, from)),
            }
        }
    }
}

/// Whether whoever sent this may still look: asked again while a stream is open.
pub(crate) fn is_known(app: &App, parts: &Parts) -> bool {
    match &app.options.access {
        Access::Open(_) => true,
        Access::Asked(ask) => ask(parts).is_some(),
        Access::Tokens(tokens) => {
            let secret = bearer(parts).or_else(|| cookie(parts));
            secret.is_some_and(|secret| tokens.caller(secret).is_some())
        }
    }
}

/// The session that a request is part of, by the hash of its cookie: none for one that is sent with a
/// bearer token, or whose cookie lets nobody in.
pub(crate) fn session(app: &App, parts: &Parts) -> Option<Fingerprint> {
    let Access::Tokens(tokens) = &app.options.access else { return None };
    let secret = cookie(parts).filter(|_| bearer(parts).is_none())?;
    tokens.caller(secret).map(|_| Fingerprint::of(secret.as_bytes()))
}

/// A token that is not known. Who tries many is held up.
fn wrong_token(app: &App, from: Peer) -> Problem {
    tracing::warn!(%from, "a wrong token");
    match app.wrong_tokens.take(&from.to_string()) {
        Ok(()) => unauthorized("the token is not one of this server's"),
        Err(wait) => too_often(wait),
    }
}

/// Whose token this is, for the dashboard's login.
pub(crate) fn session_secret(app: &App, secret: &str, from: Peer) -> Result<Caller, Problem> {
    match &app.options.access {
        Access::Tokens(tokens) => tokens.caller(secret).ok_or_else(|| wrong_token(app, from)),
        _ => Err(Problem::invalid("token", "this server takes no tokens, so nobody logs in")),
    }
}

/// A change that is sent with the cookie alone must come from a page of ours.
pub(super) fn check_cookie(app: &App, parts: &Parts) -> Result<(), Problem> {
    let counts = matches!(app.options.access, Access::Tokens(_));
    let by_cookie = counts && bearer(parts).is_none() && cookie(parts).is_some();
    let says_so = parts.headers.get(CHANGE_HEADER).is_some_and(|value| value == "1");
    if by_cookie && !says_so {
        let text = "a change that is sent with the cookie needs the header X-Onward: 1";
        return Err(Problem::new(Code::Forbidden, text));
    }
    Ok(())
}

fn unauthorized(text: &str) -> Problem {
    Problem::new(Code::Unauthorized, text)
}

fn bearer(parts: &Parts) -> Option<&str> {
    let (scheme, token) = parts.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(parts: &Parts) -> Option<&str> {
    let mut all = parts.headers.get_all(COOKIES).iter().filter_map(|value| value.to_str().ok());
    all.find_map(|line| {
        let mut pairs = line.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
    })
}
