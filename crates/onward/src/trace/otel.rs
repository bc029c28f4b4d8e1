//! Where a trace meets OpenTelemetry.
//!
//! Owns: a `traceparent` as the parent of a span, and a span as a `traceparent`. Never sets anything up;
//! where the program's subscriber has no layer of OpenTelemetry, nothing happens here.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Puts a span into the trace of a `traceparent` that is well formed.
pub(super) fn follow(span: &Span, traceparent: &str) {
    let Some(parent) = parsed(traceparent) else { return };
    // It fails where there is no such layer.
    let _ = span.set_parent(Context::new().with_remote_span_context(parent));
}

fn parsed(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    Some(SpanContext::new(trace, span, TraceFlags::new(flags), true, TraceState::NONE))
}

/// The span that we are in, as a `traceparent`.
pub(super) fn current() -> Option<String> {
    let context = Span::current().context();
    let span = context.span();
    let span = span.span_context();
    let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    span.is_valid().then(|| format!("00-{trace}-{id}-{flags:02x}"))
}
