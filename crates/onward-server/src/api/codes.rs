//! `/codes`: what each code means and what to do about it, where the `type` of a problem leads.
//!
//! Owns: the library's table of codes as JSON. Never a word of its own about them.

use axum::http::StatusCode;
use onward::Code;
use serde::Serialize;

use crate::answer::{self, Answer, Page};
use crate::problem::{self, Problem};
use crate::request::At;

#[derive(Serialize)]
struct Shown {
    code: &'static str,
    /// What a request is refused with; `None` where none is, as for failures of a run.
    status: Option<u16>,
    retryable: bool,
    advice: &'static str,
}

pub(crate) async fn list() -> Answer {
    let items = Code::all().iter().copied().map(shown).collect();
    answer::ok(&Page { items, next: None })
}

pub(crate) async fn show(At(name): At<String>) -> Answer {
    match Code::all().iter().find(|code| code.as_str() == name) {
        Some(code) => answer::ok(&shown(*code)),
        None => Err(Problem::new(Code::NoSuchPath, format!("there is no code {name:?}"))),
    }
}

fn shown(code: Code) -> Shown {
    let status = Some(problem::status(code));
    let status = status.filter(|status| *status != StatusCode::INTERNAL_SERVER_ERROR);
    Shown {
        code: code.as_str(),
        status: status.map(|status| status.as_u16()),
        retryable: code.is_retryable(),
        advice: code.advice(),
    }
}
