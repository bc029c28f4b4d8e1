//! The span of a request, in the trace that its caller is in.
//!
//! Owns: what a request is called and what is noted of it. Never an id, a key or a parameter: the path is
//! the one of the table.

use axum::http::{HeaderMap, StatusCode};
use tracing::Span;
use tracing::field::Empty;

use crate::endpoint::Endpoint;

/// The header that says in which trace the caller is.
const TRACEPARENT: &str = "traceparent";

/// The `traceparent` of a request, for a run that it starts.
pub(crate) fn parent(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT)?.to_str().ok()
}

/// The span of a request to this endpoint.
pub(crate) fn of_request(endpoint: &Endpoint, headers: &HeaderMap) -> Span {
    let method = endpoint.method.to_uppercase();
    let span = tracing::info_span!(
        "request",
        otel.name = format_args!("{method} {}", endpoint.path),
        otel.kind = "server",
        endpoint = endpoint.name,
        http.request.method = method,
        http.route = endpoint.path,
        http.response.status_code = Empty,
    );
    #[cfg(feature = "opentelemetry")]
    otel::follow(&span, headers);
    #[cfg(not(feature = "opentelemetry"))]
    let _ = headers;
    span
}

/// Notes how it was answered.
pub(crate) fn answered(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
}

#[cfg(feature = "opentelemetry")]
mod otel {
    use axum::http::HeaderMap;
    use opentelemetry::global;
    use opentelemetry::propagation::Extractor;
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    struct Headers<'a>(&'a HeaderMap);

    impl Extractor for Headers<'_> {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name)?.to_str().ok()
        }

        fn keys(&self) -> Vec<&str> {
            self.0.keys().map(|name| name.as_str()).collect()
        }
    }

    /// Puts the span into the caller's trace, as far as the program has set up how that is read.
    pub(super) fn follow(span: &Span, headers: &HeaderMap) {
        let parent = global::get_text_map_propagator(|read| read.extract(&Headers(headers)));
        // It fails where the program's subscriber has no layer of OpenTelemetry.
        let _ = span.set_parent(parent);
    }
}
