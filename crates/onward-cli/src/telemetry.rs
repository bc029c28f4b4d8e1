//! Traces over OTLP, where the variables of OpenTelemetry ask for them.
//!
//! Owns: the exporter and its end. Never decides what is a span; the library and the server do.

use opentelemetry::global;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::registry::LookupSpan;

use crate::problem::print_note;

/// The variables that say where spans are sent; without any of them none are.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable that names the program in traces.
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// The exporter of this process.
pub(crate) struct Telemetry(SdkTracerProvider);

impl Telemetry {
    /// Begins to export, if somebody asked for it. What is wrong with the exporter is said, and ends
    /// nothing: traces are not what the command is about.
    pub(crate) fn begin() -> Option<Self> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if !ENDPOINTS.into_iter().any(is_set) {
            return None;
        }
        let exporter = SpanExporter::builder().with_http().build();
        let exporter =
            exporter.inspect_err(|error| print_note(&format!("no traces are sent: {error}")));
        let resource = match is_set(SERVICE) {
            true => Resource::builder(),
            false => Resource::builder().with_service_name("onward"),
        };
        let tracers = SdkTracerProvider::builder().with_batch_exporter(exporter.ok()?);
        global::set_text_map_propagator(TraceContextPropagator::new());
        Some(Self(tracers.with_resource(resource.build()).build()))
    }

    /// What hands spans to the exporter: those of information and above, however much is logged.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let tracer = self.0.tracer("onward");
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(LevelFilter::INFO)
    }

    /// Sends what is left.
    pub(crate) fn end(self) {
        if let Err(error) = self.0.shutdown() {
            print_note(&format!("the last traces were not sent: {error}"));
        }
    }
}
