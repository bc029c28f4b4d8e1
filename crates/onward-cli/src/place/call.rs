//! A call of the API: its method, path, query and body; and what an answer means.
//!
//! Owns: the escapes of a path, and how a refusal becomes a problem. Never sends anything.

use std::fmt::{Display, Write};

use onward::Code;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// Where the API begins.
const API: &str = "/api/v1";

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(super) method: &'static str,
    path: String,
    query: String,
    pub(super) body: Option<String>,
    pub(super) key: Option<String>,
}

impl Call {
    /// A look.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// A change.
    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path)
    }

    /// Something is stored under a name.
    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new("PUT", path)
    }

    /// Something is taken away.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: String::new(), body: None, key: None }
    }

    /// With a parameter.
    pub(crate) fn query(mut self, name: &str, value: impl Display) -> Self {
        let joint = if self.query.is_empty() { '?' } else { '&' };
        self.query.push_str(&format!("{joint}{name}={}", segment(&value.to_string())));
        self
    }

    /// With a parameter, where there is one.
    pub(crate) fn query_if(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// With this as its body.
    pub(crate) fn body<T: Serialize + ?Sized>(mut self, value: &T) -> Result<Self, Problem> {
        self.body = Some(serde_json::to_string(value)?);
        Ok(self)
    }

    /// With an `Idempotency-Key`: quoted, so that any text fits.
    pub(crate) fn key(mut self, key: Option<&str>) -> Self {
        let quoted = |key: &str| format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
        self.key = key.map(quoted);
        self
    }

    /// The path with its query.
    pub(super) fn path(&self) -> String {
        format!("{API}{}{}", self.path, self.query)
    }
}

/// A text as one part of a path, or as a parameter.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            // A String takes whatever is written to it.
            _ => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

/// The body of a refusal.
#[derive(Deserialize)]
struct Refusal {
    code: String,
    detail: String,
}

/// What an answer says, or why it was refused.
pub(super) fn answered<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, Problem> {
    if (200..300).contains(&status) {
        let body = if body.is_empty() { b"null" } else { body };
        return serde_json::from_slice(body).map_err(|error| {
            Problem::Server(format!("the server answered with what this program does not read: {error}. Are they of the same version?"))
        });
    }
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        let why = "that is no answer of Onward's: does the URL lead to 'onward serve', with the \
                   path that it is mounted at?";
        return Err(Problem::Server(format!("the server answered with status {status}; {why}")));
    };
    let code = Code::all().iter().find(|code| code.as_str() == refusal.code).copied();
    Err(Problem::Refused { code, detail: refusal.detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Exit;

    #[test]
    fn what_stands_in_a_path_is_escaped() {
        let call = Call::get(format!("/step-keys/{}", segment("a/b c?é")));
        assert_eq!(call.path(), "/api/v1/step-keys/a%2Fb%20c%3F%C3%A9");
        let call = Call::get("/runs").query("tag", "a:b&c").query_if("key", None::<&str>);
        assert_eq!(call.query("limit", 3).path(), "/api/v1/runs?tag=a%3Ab%26c&limit=3");
    }

    #[test]
    fn a_refusal_keeps_its_code_and_its_sentence() {
        let body = br#"{"code":"run_not_found","detail":"there is no run 7","status":404}"#;
        let problem = answered::<()>(404, body).unwrap_err();
        assert_eq!(problem.exit(), Exit::NotFound);
        assert!(problem.to_string().contains("there is no run 7"), "{problem}");
        let problem = answered::<()>(502, b"<html>").unwrap_err();
        assert_eq!(problem.exit(), Exit::Unavailable);
        assert!(problem.to_string().contains("onward serve"), "{problem}");
    }
}
