//! The dashboard's files, which are a part of the program.
//!
//! Owns: which file a path has, and how it is sent. Never a file of the disk.

use axum::http::Uri;
use axum::response::Response;
use onward::Code;

use crate::endpoint::Endpoint;
use crate::problem::Problem;

/// Any path that nothing else has.
pub(crate) static ENDPOINT: Endpoint = Endpoint {
    name: "dashboard",
    method: "get",
    path: "/",
    summary: "The dashboard",
    role: None,
    params: &["*"],
    takes: None,
    gives: &[(200, "Text")],
    kind: "text/html",
};

/// `GET` of any path that nothing else has.
pub(crate) async fn file(uri: Uri) -> Result<Response, Problem> {
    let text = format!("there is nothing at {}, and no dashboard is in this build", uri.path());
    Err(Problem::new(Code::NoSuchPath, text))
}
