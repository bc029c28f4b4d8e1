//! `/session`: the dashboard's login.
//!
//! Owns: the cookie. Never keeps a session.
//! The cookie carries the token itself, where no script can read it: so a login survives the server,
//! and a token that is taken away ends it. Browsers that logged in with the same token have the same
//! cookie: the streams of all of them end with one, and those that are still logged in come again.

use axum::Extension;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use onward::Code;
use serde::{Deserialize, Serialize};

use crate::answer::{self, Answer};
use crate::app::App;
use crate::guard::{COOKIE, Peer, session, session_secret};
use crate::limits::SESSION_MAX;
use crate::problem::Problem;
use crate::request::{Body, Mount};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    token: String,
}

#[derive(Serialize)]
struct Session {
    who: String,
    role: &'static str,
}

pub(crate) async fn begin(
    State(app): State<App>,
    Extension(from): Extension<Peer>,
    mount: Mount,
    Body(new): Body<NewSession>,
) -> Answer {
    let caller = session_secret(&app, &new.token, from)?;
    let mut response = answer::ok(&Session { who: caller.who, role: caller.role.as_str() })?;
    let cookie = cookie(&app, &mount, &new.token, SESSION_MAX.as_secs())?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

pub(crate) async fn end(State(app): State<App>, mount: Mount, head: Parts) -> Answer {
    if let Some(session) = session(&app, &head) {
        app.changes.end_session(session);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie(&app, &mount, "", 0)?);
    Ok(response)
}

fn cookie(app: &App, mount: &Mount, value: &str, seconds: u64) -> Result<HeaderValue, Problem> {
    let secure = if app.options.secure_cookie { "; Secure" } else { "" };
    let path = if mount.0.is_empty() { "/" } else { &mount.0 };
    let text = format!(
        "{COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    );
    let unwritten = |_| Problem::new(Code::Unauthorized, "the token cannot be sent as a cookie");
    HeaderValue::try_from(text).map_err(unwritten)
}
