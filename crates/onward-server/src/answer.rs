//! Answers in JSON, and pages of them.
//!
//! Owns: how a value becomes a response. Never turns a payload into numbers and back: it is copied
//! as the text that it is.

use std::collections::BTreeMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use onward::Code;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::problem::Problem;

/// What a handler gives.
pub(crate) type Answer = Result<Response, Problem>;

/// A page, and where the next one begins.
#[derive(Serialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// An object whose fields are JSON texts.
pub(crate) type Fields = BTreeMap<String, Box<RawValue>>;

/// 200 with this.
pub(crate) fn ok<T: Serialize + ?Sized>(value: &T) -> Answer {
    with(StatusCode::OK, value)
}

/// This status with this.
pub(crate) fn with<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Answer {
    let body = serde_json::to_vec(value).map_err(unwritten)?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The fields of a value, each as the text that it is.
pub(crate) fn fields<T: Serialize + ?Sized>(value: &T) -> Result<Fields, Problem> {
    let text = serde_json::to_string(value).map_err(unwritten)?;
    serde_json::from_str(&text).map_err(unwritten)
}

/// A value as the text that it is.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Problem> {
    to_raw_value(value).map_err(unwritten)
}

fn unwritten(error: serde_json::Error) -> Problem {
    Problem::new(Code::NotSerializable, error.to_string())
}
