//! What a test hears of the engine: its log and its spans.
//!
//! Owns: the one subscriber of this process. It hears only the threads that listen, so all other tests
//! execute as they do without a subscriber; but for the watchdog, of which nobody may hear who has not
//! planted what it finds.

use std::cell::Cell;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Mutex};

use onward::RunId;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

thread_local! {
    static LISTENS: Cell<bool> = const { Cell::new(false) };
}

/// Where the log and the spans of this process go.
///
/// One subscriber for every thread: with one for a thread, tracing may ask a thread without one
/// whether anybody wants a kind of event, and keep the answer for all threads.
static HEARD: LazyLock<Heard> = LazyLock::new(|| {
    let heard = Heard::default();
    let listens = dynamic_filter_fn(|heard, _| LISTENS.get() || heard.target() == WATCHDOG)
        .with_max_level_hint(LevelFilter::INFO);
    let log = heard.log.clone();
    let log = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || log.clone());
    let tracers = SdkTracerProvider::builder().with_simple_exporter(heard.spans.clone()).build();
    let spans = tracing_opentelemetry::layer().with_tracer(tracers.tracer("test"));
    tracing_subscriber::registry().with(listens).with(log).with(spans).with(Watched).init();
    // A test that does not listen may have been the first at an event just before.
    tracing::callsite::rebuild_interest_cache();
    heard
});

/// Where the log of the watchdog comes from.
const WATCHDOG: &str = "onward::driver::watchdog";

/// Ends this process, and so fails its test, when the watchdog finds something in a test that does not
/// listen: a panic here would only end the run.
struct Watched;

impl<S: Subscriber> Layer<S> for Watched {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if LISTENS.get() || event.metadata().target() != WATCHDOG {
            return;
        }
        let thread = std::thread::current();
        // Past what a test's thread writes, which nobody would be shown.
        let _ = writeln!(
            std::io::stderr(),
            "the watchdog found a run in {:?}: {event:?}",
            thread.name()
        );
        std::process::exit(101);
    }
}

/// Has the watchdog fail this process from here on.
pub(crate) fn heed_watchdog() {
    LazyLock::force(&HEARD);
}

#[derive(Default)]
struct Heard {
    log: Log,
    spans: InMemorySpanExporter,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Hears the thread of its test, on which the runs of the test execute, until it is dropped.
pub(crate) struct Listener(PhantomData<*const ()>);

impl Listener {
    /// Begins a test: what it does from here on is heard.
    pub(crate) fn new() -> Self {
        LazyLock::force(&HEARD);
        LISTENS.set(true);
        Self(PhantomData)
    }

    /// The lines of the log that name the run.
    pub(crate) fn log_of(&self, run: RunId) -> String {
        let text = String::from_utf8(HEARD.log.0.lock().unwrap().clone()).unwrap();
        let run = run.to_string();
        text.lines().filter(|line| line.contains(&run)).collect::<Vec<_>>().join("\n")
    }

    /// The finished spans of all tests that listen.
    pub(crate) fn spans(&self) -> Vec<SpanData> {
        HEARD.spans.get_finished_spans().unwrap()
    }

    /// The finished spans of one trace.
    pub(crate) fn spans_of(&self, trace: &str) -> Vec<SpanData> {
        let is_of = |span: &SpanData| span.span_context.trace_id().to_string() == trace;
        self.spans().into_iter().filter(is_of).collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENS.set(false);
    }
}
