//! Traces: a run is in the trace of whoever started it, wherever it executes, and so are its children.

use onward::{Ctx, Failure, Onward, Run, RunId, Workflow};
use opentelemetry_sdk::trace::SpanData;
use tracing::Instrument;

use crate::listener::Listener;
use crate::stores::on_each_store;

const PARENT: Workflow<(), RunId> = Workflow::named("parent");
const CHILD: Workflow<(), ()> = Workflow::named("child");

/// A key that names a person.
const SECRET: &str = "welcome-ada@example.com";

/// The trace of the test of spans alone: the spans of all tests that listen are in one place.
const OTHER: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn header() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

async fn parent(ctx: Ctx, (): ()) -> Result<RunId, Failure> {
    ctx.step("look", async |_| Ok::<_, Failure>(())).await?;
    let child = ctx.start(CHILD, &()).await?;
    let id = child.id();
    child.result().await?;
    Ok(id)
}

async fn child(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.step("work", async |_| Ok::<_, Failure>(())).await?;
    ctx.step("mail", async |_| Ok::<_, Failure>(())).key(SECRET).await
}

/// Plays a run and its child to their ends, and gives both.
async fn played(onward: &Onward, traceparent: &str) -> [Run; 2] {
    let worker = onward.worker().serve(PARENT, parent).serve(CHILD, child).start().await.unwrap();
    let run = onward.start(PARENT, &()).traceparent(traceparent).await.unwrap();
    let of_child = run.result().await.unwrap();
    worker.shutdown().await.unwrap();
    [run.status().await.unwrap(), onward.run(of_child).status().await.unwrap()]
}

#[tokio::test]
async fn a_run_keeps_its_trace_and_its_children_inherit_it() {
    let _listener = Listener::new();
    on_each_store(|onward: Onward| async move {
        for run in played(&onward, &header()).await {
            assert_eq!(run.traceparent(), Some(header().as_str()), "{}", run.workflow);
        }
        for run in played(&onward, "nonsense").await {
            assert_eq!(run.traceparent(), None, "{}", run.workflow);
        }
    })
    .await;
}

#[tokio::test]
async fn a_trace_takes_no_tag_from_the_user() {
    let _listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    let mut start = onward.start(CHILD, &()).traceparent(&header());
    for number in 0..onward::limits::TAGS_MAX {
        start = start.tag(format!("tag-{number}"), "x");
    }
    let run = start.await.unwrap().status().await.unwrap();
    assert_eq!(run.tags.len(), onward::limits::TAGS_MAX + 1);
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
}

#[tokio::test]
async fn the_spans_of_a_run_are_in_its_trace() {
    let listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    played(&onward, &format!("00-{OTHER}-{SPAN}-01")).await;
    let spans = listener.spans_of(OTHER);
    for name in ["run parent", "step look", "run child", "step work", "step mail"] {
        named(&spans, name);
    }
    assert_eq!(named(&spans, "run parent").parent_span_id.to_string(), SPAN);
    let run = named(&spans, "run child").span_context.span_id();
    assert_eq!(named(&spans, "step work").parent_span_id, run);
    assert!(!format!("{spans:?}").contains(SECRET), "no span has a key");
}

#[tokio::test]
async fn the_span_of_a_run_names_its_queue() {
    const ELSEWHERE: &str = "9c1f2bd1a0e94a0f8d3c5b6a7e8f9012";
    let listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    let worker = onward.worker().serve(CHILD, child).queues(["mail"]).start().await.unwrap();
    let header = format!("00-{ELSEWHERE}-{SPAN}-01");
    let run = onward.start(CHILD, &()).queue("mail").traceparent(&header).await.unwrap();
    run.result().await.unwrap();
    worker.shutdown().await.unwrap();
    let spans = listener.spans_of(ELSEWHERE);
    let attributes = &named(&spans, "run child").attributes;
    let queue = attributes.iter().find(|attribute| attribute.key.as_str() == "queue").unwrap();
    assert_eq!(queue.value.as_str(), "mail");
}

#[tokio::test]
async fn a_run_is_in_the_trace_of_the_span_that_starts_it() {
    let listener = Listener::new();
    let onward = Onward::open("memory:").await.unwrap();
    let run = async { onward.start(CHILD, &()).await.unwrap() };
    let run = run.instrument(tracing::info_span!("mine")).await.status().await.unwrap();
    let spans = listener.spans();
    let mine = &named(&spans, "mine").span_context;
    let parent = format!("00-{}-{}-01", mine.trace_id(), mine.span_id());
    assert_eq!(run.traceparent(), Some(parent.as_str()));
}
