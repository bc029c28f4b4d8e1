//! The API without a port: one request, answered in this process.
//!
//! Owns: how a program that has the store itself asks what the API answers, as `onward --store` does.
//! Never listens, and never executes a run.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use tower_service::Service;

/// A request to [`ask`].
#[derive(Clone, Debug, Default)]
pub struct Ask<'a> {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: &'a str,
    /// The path with its query, as `/api/v1/runs?state=failed`.
    pub path: &'a str,
    /// A body in JSON.
    pub body: Option<String>,
    /// The `Idempotency-Key`.
    pub key: Option<&'a str>,
}

/// Answers one request over no port: with the status, and the body as it would be sent.
///
/// ```
/// use onward::Onward;
/// use onward_server::{Access, Ask, Options, Role};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = Onward::open("memory:").await?;
/// let router = onward_server::router(onward, Options::new(Access::Open(Role::Read)));
/// let ask = Ask { method: "GET", path: "/api/v1/workers", ..Ask::default() };
/// let (status, body) = onward_server::ask(router, ask).await;
/// assert_eq!((status, body.as_slice()), (200, &br#"{"items":[],"next":null}"#[..]));
/// # Ok(()) }
/// ```
pub async fn ask(mut router: Router, ask: Ask<'_>) -> (u16, Vec<u8>) {
    let mut request = Request::builder()
        .method(ask.method)
        .uri(ask.path)
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = ask.key {
        request = request.header("idempotency-key", key);
    }
    let Ok(request) = request.body(Body::from(ask.body.unwrap_or_default())) else {
        return (StatusCode::BAD_REQUEST.as_u16(), Vec::new());
    };
    let Ok(response) = Service::call(&mut router, request).await;
    let (head, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => (head.status.as_u16(), body.to_bytes().into()),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR.as_u16(), Vec::new()),
    }
}
