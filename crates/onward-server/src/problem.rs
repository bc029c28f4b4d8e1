//! What went wrong, as `application/problem+json` (RFC 9457).
//!
//! Owns: the one table from codes to statuses. Never words an error of the library anew. A refusal is
//! written in two parts: its head at once, its body when it is known where the router is mounted, since
//! its `type` is an address.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use onward::{Code, Error, RunId};
use serde::Serialize;

use crate::endpoint::API;

/// How long a caller waits before it repeats what the store did not answer.
const AGAIN_MS: u64 = 1_000;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    detail: String,
    run: Option<RunId>,
    retry_after_ms: Option<u64>,
    errors: Vec<Pointed>,
    /// The methods that the path has, where it was asked for by another.
    allow: Option<String>,
}

/// What is wrong about one part of a request.
#[derive(Debug, Serialize)]
struct Pointed {
    pointer: String,
    detail: String,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [Pointed],
}

/// What the body of a refused request will say, left with the answer until it is written.
#[derive(Clone)]
struct Unwritten(Arc<Inner>);

/// The code of a refused request, left with the answer for the audit and the metrics.
#[derive(Clone, Copy)]
pub(crate) struct Refused(pub(crate) Code);

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self(Box::new(Inner {
            code,
            detail,
            run: None,
            retry_after_ms: None,
            errors: Vec::new(),
            allow: None,
        }))
    }

    /// A part of the request cannot be read.
    pub(crate) fn invalid(pointer: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let mut problem = Self::new(Code::InvalidRequest, format!("{pointer}: {detail}"));
        problem.0.errors.push(Pointed { pointer: pointer.to_owned(), detail });
        problem
    }

    /// The store has no such verbs.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(Code::NotSupported, what)
    }

    /// The path is there, for these methods only.
    pub(crate) fn allowing(mut self, methods: String) -> Self {
        self.0.allow = Some(methods);
        self
    }

    pub(crate) fn of_run(mut self, run: RunId) -> Self {
        self.0.run = Some(run);
        self
    }

    pub(crate) fn retry_after_ms(mut self, ms: u64) -> Self {
        self.0.retry_after_ms = Some(ms);
        self
    }
}

/// The status that a code is answered with.
pub(crate) fn status(code: Code) -> StatusCode {
    match code {
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Forbidden => StatusCode::FORBIDDEN,
        Code::RunNotFound
        | Code::KeyNotFound
        | Code::ScheduleNotFound
        | Code::StepNotFound
        | Code::CallbackUnknown
        | Code::NoSuchPath => StatusCode::NOT_FOUND,
        Code::KeyConflict => StatusCode::UNPROCESSABLE_ENTITY,
        Code::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::InvalidRequest
        | Code::InvalidName
        | Code::InvalidId
        | Code::InvalidOption
        | Code::InvalidSchedule
        | Code::NulCharacter
        | Code::NotSerializable => StatusCode::BAD_REQUEST,
        Code::KeyTaken
        | Code::KeyFailed
        | Code::RunFinished
        | Code::RunNotEnded
        | Code::RunNotFailed
        | Code::RunUndone
        | Code::ForkRefused
        | Code::QueuesFull
        | Code::RunInFlight
        | Code::RunFailed
        | Code::RunCancelled
        | Code::CallbackUsed
        | Code::CallbackExpired
        | Code::SignalsFull => StatusCode::CONFLICT,
        // Elsewhere, or later, somebody has the key.
        Code::StoreUnavailable
        | Code::StoreLocked
        | Code::StoreFull
        | Code::StoreReplaced
        | Code::LeaseLost
        | Code::PayloadUnreadable => StatusCode::SERVICE_UNAVAILABLE,
        Code::NotSupported
        | Code::KeysUnsupported
        | Code::QueuesUnsupported
        | Code::SchedulesUnsupported
        | Code::VerbUnsupported => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let mut problem = Self::new(error.code(), error.to_string());
        problem.0.run = error.run();
        if status(error.code()) == StatusCode::SERVICE_UNAVAILABLE {
            problem.0.retry_after_ms = Some(AGAIN_MS);
        }
        problem
    }
}

impl From<onward::store::Error> for Problem {
    fn from(error: onward::store::Error) -> Self {
        Error::from(error).into()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let inner = Arc::new(*self.0);
        let status = match &inner.allow {
            Some(_) => StatusCode::METHOD_NOT_ALLOWED,
            None => status(inner.code),
        };
        if status.is_server_error() {
            tracing::warn!(code = %inner.code, detail = %inner.detail, "a request failed");
        }
        let kind = (header::CONTENT_TYPE, "application/problem+json");
        let mut response = (status, [kind]).into_response();
        if let Some(ms) = inner.retry_after_ms {
            let seconds = HeaderValue::from(ms.div_ceil(1_000));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        let methods =
            inner.allow.as_deref().and_then(|methods| HeaderValue::try_from(methods).ok());
        if let Some(methods) = methods {
            response.headers_mut().insert(header::ALLOW, methods);
        }
        response.extensions_mut().insert(Refused(inner.code));
        response.extensions_mut().insert(Unwritten(inner));
        response
    }
}

/// Writes the body of a refusal, for a router that is mounted at this path; leaves any other answer.
pub(crate) fn written(mut response: Response, mount: &str) -> Response {
    let Some(Unwritten(inner)) = response.extensions_mut().remove::<Unwritten>() else {
        return response;
    };
    let body = Body {
        r#type: format!("{mount}{API}/codes/{}", inner.code),
        title: inner.code.advice(),
        status: response.status().as_u16(),
        detail: &inner.detail,
        code: inner.code.as_str(),
        run_id: inner.run,
        retry_after_ms: inner.retry_after_ms,
        errors: &inner.errors,
    };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    *response.body_mut() = axum::body::Body::from(body);
    // That of a body that was not there yet.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes that no request is refused with: of failures, of opening a store, of workers.
    const NEVER_ANSWERED: [&str; 38] = [
        "unknown_store_url",
        "invalid_key_ring",
        "undo_failed",
        "undo_missing",
        "invalid_store_path",
        "store_read_only",
        "store_corrupt",
        "store_not_durable",
        "schema_missing",
        "schema_too_old",
        "schema_too_new",
        "type_mismatch",
        "no_transaction",
        "other_database",
        "store_served",
        "copy_conflict",
        "store_changed",
        "copy_unsupported",
        "workflow_served_twice",
        "nothing_served",
        "worker_stopped",
        "failed",
        "panic",
        "timeout",
        "transaction_timeout",
        "transaction_ended",
        "transaction_unsupported",
        "interrupted",
        "deadline_exceeded",
        "history_full",
        "step_id_taken",
        "ambiguous_order",
        "step_outside_run",
        "step_nested",
        "run_ended",
        "crash_loop",
        "history_mismatch",
        "corrupt_record",
    ];

    #[test]
    fn every_code_that_a_request_can_meet_has_its_status() {
        let unknown: Vec<_> = Code::all()
            .iter()
            .filter(|code| status(**code) == StatusCode::INTERNAL_SERVER_ERROR)
            .map(|code| code.as_str())
            .filter(|code| !NEVER_ANSWERED.contains(code))
            .filter(|code| !["key_changed", "foreign_await"].contains(code))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?} would be answered with 500");
    }
}
