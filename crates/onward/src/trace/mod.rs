//! Traces: the spans of runs and steps, and the trace that a run belongs to.
//!
//! Owns: the W3C `traceparent` of a run. It is kept as a tag, so that it needs no column, goes wherever
//! the run goes and can be looked for. Never exports anything; the program's own subscriber does.

#[cfg(feature = "opentelemetry")]
mod otel;

use std::collections::BTreeMap;

use tracing::field::Empty;
use tracing::instrument::Instrumented;
use tracing::{Instrument, Span};

use crate::model::step_id;
use crate::store::Claimed;
use crate::{Run, Start, Step};

/// The tag that holds a run's `traceparent`. It does not count towards `TAGS_MAX`.
pub(crate) const TAG: &str = "traceparent";

/// Characters of a `traceparent` of version 00, which is all that is kept of later ones.
const LENGTH: usize = 55;

impl<O> Start<O> {
    /// Makes the run a part of a trace: `header` is the value of a W3C `traceparent`, as it came with
    /// the request that starts it. The run keeps it as its tag `traceparent`, children that it starts
    /// inherit it, and with the feature `opentelemetry` the spans of all of them are in that trace,
    /// whichever process executes them. A malformed one is passed over, as the standard has it.
    ///
    /// Without this call, and with that feature, it is the trace of the span that the start is in.
    ///
    /// ```
    /// # use onward::{Onward, Workflow};
    /// # const BILL: Workflow<u64, ()> = Workflow::named("bill");
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
    /// # let onward = Onward::open("memory:").await?;
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let run = onward.start(BILL, &100).traceparent(header).await?;
    /// assert_eq!(run.status().await?.traceparent(), Some(header));
    /// # Ok(()) }
    /// ```
    pub fn traceparent(self, header: &str) -> Self {
        match read(header) {
            Some(parent) => self.tag(TAG, parent),
            None => self,
        }
    }
}

impl Run {
    /// The trace that the run belongs to, as a W3C `traceparent`.
    pub fn traceparent(&self) -> Option<&str> {
        self.tags.get(TAG).map(String::as_str)
    }
}

/// A `traceparent` in the form of version 00, unless it is malformed.
fn read(header: &str) -> Option<String> {
    let header = header.trim();
    let rest = header.get(LENGTH..)?;
    let mut parts = header.get(..LENGTH)?.split('-');
    let [version, trace, span, flags] =
        [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |text: &str| text.bytes().any(|byte| byte != b'0');
    let whole = match version {
        "00" => rest.is_empty(),
        // A later version may say more, after another dash.
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let fits = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(span, 16);
    let fits = fits && hex(flags, 2) && some(trace) && some(span) && whole;
    fits.then(|| format!("00-{trace}-{span}-{flags}"))
}

/// How many of these tags are the user's own.
pub(crate) fn own_tags(tags: &BTreeMap<String, String>) -> usize {
    tags.len() - usize::from(tags.contains_key(TAG))
}

/// The tags of a run that is started here: with the trace that the caller is in, unless they have one.
pub(crate) fn tagged(tags: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    #[cfg_attr(
        not(feature = "opentelemetry"),
        allow(unused_mut, reason = "there is no caller's trace")
    )]
    let mut tags = tags.clone();
    #[cfg(feature = "opentelemetry")]
    if !tags.contains_key(TAG)
        && let Some(parent) = otel::current()
    {
        tags.insert(TAG.to_owned(), parent);
    }
    tags
}

/// The tags that a child has from the run that starts it.
pub(crate) fn inherited(tags: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    tags.get_key_value(TAG).map(|(name, value)| (name.clone(), value.clone())).into_iter().collect()
}

/// The span of one attempt at a run, in the trace that the run belongs to.
pub(crate) fn of_attempt(claimed: &Claimed) -> Span {
    let run = &claimed.run;
    let span = tracing::info_span!(
        "run",
        otel.name = Empty,
        otel.kind = Empty,
        run = %run.id,
        workflow = run.workflow,
        queue = run.queue,
        attempt = claimed.lease.attempt,
    );
    // Only a collector wants these; in the lines of a log they say nothing new.
    #[cfg(feature = "opentelemetry")]
    {
        span.record("otel.name", format_args!("run {}", run.workflow));
        span.record("otel.kind", "consumer");
        if let Some(parent) = run.traceparent() {
            otel::follow(&span, parent);
        }
    }
    span
}

/// The body of a step, in the span of its try.
pub(crate) fn in_step<F: Future>(step: Step, body: impl FnOnce(Step) -> F) -> Instrumented<F> {
    let span = tracing::info_span!(
        "step",
        otel.name = Empty,
        // Without its key, which may name a person.
        step = format_args!("{}/{}", step.run_id(), step_id::base(step.name())),
        try_number = step.try_number(),
    );
    #[cfg(feature = "opentelemetry")]
    span.record("otel.name", format_args!("step {}", step_id::base(step.name())));
    let body = span.in_scope(|| body(step));
    body.instrument(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_read_and_a_malformed_one_is_not() {
        assert_eq!(read(PARENT).as_deref(), Some(PARENT));
        assert_eq!(read(&format!(" {PARENT}\t")).as_deref(), Some(PARENT));
        let later = PARENT.replacen("00-", "cc-", 1);
        assert_eq!(read(&later).as_deref(), Some(PARENT));
        assert_eq!(read(&format!("{later}-more")).as_deref(), Some(PARENT));
        let malformed = [
            String::new(),
            format!("{PARENT}-more"),
            format!("{later}more"),
            PARENT.replacen("00-", "ff-", 1),
            PARENT.to_uppercase(),
            PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace('-', "_"),
            PARENT.replacen("0af7", "ä7", 1),
            "é".repeat(LENGTH),
        ];
        for text in malformed {
            assert_eq!(read(&text), None, "{text}");
        }
    }
}
