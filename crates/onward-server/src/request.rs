//! The parts of a request, read so that what cannot be read is named.
//!
//! Owns: path, query, body and the `Idempotency-Key` header. Never decides what they mean.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, OriginalUri, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use onward::{Code, Json, RunId, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::app::App;
use crate::limits::{IDEMPOTENCY_KEY_MAX, PAGE_DEFAULT, PAGE_MAX};
use crate::problem::Problem;

/// Reads a payload of a body, and refuses one that others could not read back. Its size is for whoever stores it.
pub(crate) fn payload<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
    readable(Json::deserialize(deserializer)?)
}

/// As [`payload`], where there may be none.
pub(crate) fn payload_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json>, D::Error> {
    Option::<Json>::deserialize(deserializer)?.map(readable).transpose()
}

fn readable<E: serde::de::Error>(payload: Json) -> Result<Json, E> {
    match Json::parse(payload.as_str()) {
        Err(error) if error.code() == Code::NotSerializable => Err(E::custom(error)),
        _ => Ok(payload),
    }
}

/// What stands in the path.
pub(crate) struct At<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(value)| At(value))
            .map_err(|error| Problem::invalid("path", error.body_text()))
    }
}

/// The id of a run in the path.
pub(crate) fn run_id(text: &str) -> Result<RunId, Problem> {
    Ok(text.parse::<RunId>()?)
}

/// The query, in the order in which it came.
pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Params::of(parts.uri.query().unwrap_or_default()))
    }
}

impl Params {
    pub(crate) fn of(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The names in it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Whether a value holds a NUL character.
    pub(crate) fn holds_nul(&self) -> bool {
        self.0.iter().any(|(_, value)| value.contains('\0'))
    }

    /// Every value of this name.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The last value of this name, unless it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).last().filter(|value| !value.is_empty())
    }

    /// A whole number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Problem> {
        let number = |text: &str| {
            text.parse().map_err(|_| Problem::invalid(name, format!("{text:?} is no whole number")))
        };
        self.text(name).map(number).transpose()
    }

    /// A moment, in milliseconds since 1970.
    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        Ok(self.number(name)?.map(Timestamp::from_millis))
    }

    /// A length of time, in milliseconds.
    pub(crate) fn millis(&self, name: &str) -> Result<Option<u64>, Problem> {
        let length = |ms: i64| {
            u64::try_from(ms).map_err(|_| Problem::invalid(name, format!("{ms} is less than 0")))
        };
        self.number(name)?.map(length).transpose()
    }

    /// Whether something is asked for.
    pub(crate) fn is_set(&self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => {
                Err(Problem::invalid(name, format!("{other:?} is neither true nor false")))
            }
        }
    }

    /// How many rows a page has.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        match self.number("limit")? {
            None => Ok(PAGE_DEFAULT),
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| (1..=PAGE_MAX).contains(limit))
                .ok_or_else(|| {
                    Problem::invalid("limit", format!("{limit} is not between 1 and {PAGE_MAX}"))
                }),
        }
    }

    /// Where a page begins, as the page before said.
    pub(crate) fn cursor(&self) -> Option<&str> {
        self.text("cursor")
    }

    /// Where a page begins, read as this.
    pub(crate) fn cursor_of<T: std::str::FromStr>(&self) -> Result<Option<T>, Problem> {
        let read = |text: &str| {
            text.parse().map_err(|_| Problem::invalid("cursor", "it is not one of this list"))
        };
        self.cursor().map(read).transpose()
    }
}

/// A body in JSON.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).cloned();
        let read = Bytes::from_request(request, app);
        let most = app.options.body_max;
        let Ok(bytes) = tokio::time::timeout(most, read).await else {
            let late = format!("it did not come within {most:?}");
            return Err(Problem::invalid("body", late));
        };
        let bytes = bytes.map_err(unread)?;
        // What a form of another site can send has another type.
        let is_json = kind.as_ref().and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        });
        if !is_json {
            return Err(Problem::invalid("Content-Type", "a body is application/json"));
        }
        let value = serde_json::from_slice(&bytes);
        value.map(Body).map_err(|error| Problem::invalid("body", error.to_string()))
    }
}

/// The payload of a request that names none.
pub(crate) fn null() -> Json {
    Json::stored("null")
}

fn unread(error: BytesRejection) -> Problem {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Problem::new(Code::PayloadTooLarge, error.body_text()),
        _ => Problem::invalid("body", error.body_text()),
    }
}

/// The `Idempotency-Key` of a request: quoted, as its draft has it, or bare, as others have it.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    const NAME: &str = "Idempotency-Key";
    let malformed = |detail: &str| Err(Problem::invalid(NAME, detail));
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return malformed("it came twice");
    }
    let Ok(text) = value.to_str() else { return malformed("it is not visible ASCII") };
    let key = match text.strip_prefix('"') {
        None if text.contains('"') => return malformed("a quote stands inside it"),
        None => text.to_owned(),
        Some(rest) => match rest.strip_suffix('"').map(unescaped) {
            Some(Some(key)) => key,
            _ => return malformed("its quotes do not match"),
        },
    };
    if key.is_empty() || key.len() > IDEMPOTENCY_KEY_MAX {
        return malformed(&format!(
            "it has {} characters, from 1 to {IDEMPOTENCY_KEY_MAX}",
            key.len()
        ));
    }
    if !key.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return malformed("it is not visible ASCII");
    }
    Ok(Some(key))
}

/// The content of a quoted string of structured fields: only quotes and backslashes are escaped.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| ['"', '\\'].contains(c))?),
            '"' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// The path that the router is mounted at, without a slash at its end.
pub(crate) struct Mount(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Mount {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let whole = parts.extensions.get::<OriginalUri>().map(|uri| uri.0.path().to_owned());
        let (inner, whole) = (parts.uri.path(), whole.unwrap_or_default());
        // At the mount path itself the inner path is a slash, which the whole may not have.
        let mount = whole.strip_suffix(inner).or_else(|| (inner == "/").then_some(&whole));
        Ok(Self(mount.unwrap_or_default().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<Option<String>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", text.parse().unwrap());
        idempotency_key(&headers)
    }

    #[test]
    fn a_key_is_taken_quoted_and_bare() {
        assert_eq!(key("order-7").unwrap().as_deref(), Some("order-7"));
        assert_eq!(key("\"order-7\"").unwrap().as_deref(), Some("order-7"));
        assert_eq!(key(r#""a \"b\" \\""#).unwrap().as_deref(), Some(r#"a "b" \"#));
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        assert_eq!(key(&"x".repeat(255)).unwrap().map(|key| key.len()), Some(255));
    }

    #[test]
    fn a_malformed_key_is_refused() {
        let long = "x".repeat(256);
        for text in ["\"", "\"\"", "\"a", "a\"", "\"a\"b\"", r#""a\b""#, "", "a\tb", &long] {
            assert!(key(text).is_err(), "{text:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append("idempotency-key", "a".parse().unwrap());
        twice.append("idempotency-key", "a".parse().unwrap());
        assert!(idempotency_key(&twice).is_err());
    }
}
