//! `onward start`: one run, or one for each line of a file.
//!
//! Owns: the flags of a start. One run is started here; `backfill` starts many, from the `lines`
//! that are read, and `sent` has a server start them.

mod backfill;
mod lines;
mod sent;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use onward::limits::QUEUE_DEFAULT;
use onward::{OnConflict, Onward, Run, Timestamp, Workflow};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::args::{self, Global};
use crate::place::{NewStart, Place};
use crate::problem::{Exit, Problem, print_note};
use crate::{open, output, text};

/// Starts a run, or one for each line of a file
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward start index-attachment --input '{\"id\": 7}' --key attachment-7
  onward start index-attachment --from attachments.jsonl --key-field key
  zcat old.jsonl.gz | onward start index-attachment --from - --key-field file.id --queue bulk

With --key-field a backfill can be interrupted and run again: no line is started twice. The key is
the value of that field. Runs that your program starts must use the same key, or the work is done twice.
Lines that are not JSON, or lack the field, are refused by number; the others are started.")]
pub(crate) struct StartArgs {
    /// The workflow's name
    name: String,
    /// The input, as JSON; null when left out
    #[arg(long, value_name = "JSON", conflicts_with = "from", allow_negative_numbers = true)]
    input: Option<String>,
    /// A file with one JSON input per line, or - for stdin
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The idempotency key: the same key again gives the same run
    #[arg(long, conflicts_with = "from")]
    key: Option<String>,
    /// The field of each line that is its key, as id or file.id; a string or a number
    // The conflicts too: clap waives a required flag that conflicts with one that is given.
    #[arg(long, value_name = "FIELD", requires = "from", conflicts_with_all = ["input", "key"])]
    key_field: Option<String>,
    /// Begins when no further start with its key has come for this long, with the last input
    #[arg(long, value_name = "DURATION", value_parser = args::duration, requires = "key")]
    #[arg(conflicts_with_all = ["throttle", "delay", "at", "from"])]
    debounce: Option<Duration>,
    /// Begins no later than this long after the first start, however many follow
    #[arg(long, value_name = "DURATION", value_parser = args::duration, requires = "debounce")]
    debounce_max: Option<Duration>,
    /// Gives the run that was started with its key in this time, whatever its input
    #[arg(long, value_name = "DURATION", value_parser = args::duration, requires = "key")]
    #[arg(conflicts_with = "from")]
    throttle: Option<Duration>,
    #[command(flatten)]
    options: Options,
}

/// The options that one start and many starts share.
#[derive(Clone, Debug, Args)]
struct Options {
    /// How long the key is kept, as 24h; as long as the run when left out
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    key_ttl: Option<Duration>,
    /// What to do when the key is in use
    #[arg(long, value_enum, default_value_t = Conflict::Existing)]
    on_conflict: Conflict,
    /// The queue it is routed by
    #[arg(long, default_value = QUEUE_DEFAULT)]
    queue: String,
    /// The lane of its queue that it is in, where the queue has a limit for each
    #[arg(long, value_name = "NAME")]
    lane: Option<String>,
    /// Higher is claimed first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Does not begin before this time has passed, as 10m
    #[arg(long, value_name = "DURATION", value_parser = args::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Does not begin before this time, as 2026-12-31T23:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    at: Option<SystemTime>,
    /// Fails if it has not ended this long after its start
    #[arg(long, value_name = "DURATION", value_parser = args::duration)]
    timeout: Option<Duration>,
    /// A label to find it by; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = args::tag)]
    tag: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Conflict {
    /// Take the run that has the key; refuse another input
    Existing,
    /// Refuse, whatever the input
    Reject,
    /// As existing, and a failed run goes on from the step that failed
    RetryFailed,
    /// Cancel the run that has the key and queue the new one behind it
    Replace,
}

/// One start and many have the same builder methods, but no trait in common.
macro_rules! with_options {
    ($start:expr, $options:expr) => {{
        let options: &$crate::start::Options = $options;
        let mut start = $start
            .on_conflict(options.on_conflict.into())
            .queue(options.queue.as_str())
            .priority(options.priority);
        if let Some(lane) = &options.lane {
            start = start.lane(lane);
        }
        if let Some(ttl) = options.key_ttl {
            start = start.key_ttl(ttl);
        }
        if let Some(delay) = options.delay {
            start = start.delay(delay);
        }
        if let Some(at) = options.at {
            start = start.at(at);
        }
        if let Some(timeout) = options.timeout {
            start = start.timeout(timeout);
        }
        for (name, value) in &options.tag {
            start = start.tag(name, value);
        }
        start
    }};
}
use with_options;

impl StartArgs {
    pub(crate) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let input = self.input.as_deref().unwrap_or("null");
        // Checked before the store is opened: a typing error must not leave a database behind.
        let input: Box<RawValue> = serde_json::from_str(input)
            .map_err(|error| Problem::Usage(format!("--input is not JSON: {error}")))?;
        if let Some(from) = &self.from {
            return backfill::execute(&self, from, global).await;
        }
        if global.server()?.is_none() {
            // In memory first, which refuses what the store would: a wrong option must not leave a
            // database behind either.
            self.start(&open::created("memory:").await?, input.clone()).await?;
        }
        let place = open_for_start(global).await?;
        let run = match &place {
            Place::Store(onward) => self.start(onward, input).await?,
            Place::Server(_) => {
                let new = NewStart {
                    debounce_ms: self.debounce.map(millis),
                    debounce_max_ms: self.debounce_max.map(millis),
                    throttle_ms: self.throttle.map(millis),
                    ..self.options.asked(&input)
                };
                place.start(&self.name, &new, self.key.as_deref()).await?.0
            }
        };
        let id = run.id;
        output::print_runs(global.output, &[run], place.now())?;
        let why = place.see(id).await?.why;
        if why.unserved {
            print_note(&text::line(&why.sentence));
        }
        Ok(Exit::Ok)
    }

    async fn start(&self, onward: &Onward, input: Box<RawValue>) -> Result<Run, Problem> {
        let workflow = Workflow::<Box<RawValue>, Value>::of_name(self.name.as_str());
        let mut start = onward.start(workflow, &input);
        if let Some(key) = &self.key {
            start = start.key(key.as_str());
        }
        let handle = self.gathered(with_options!(start, &self.options)).await?;
        Ok(handle.status().await?)
    }

    fn gathered<O>(&self, mut start: onward::Start<O>) -> onward::Start<O> {
        if let Some(quiet) = self.debounce {
            start = start.debounce(quiet);
        }
        if let Some(total) = self.debounce_max {
            start = start.debounce_max(total);
        }
        if let Some(period) = self.throttle {
            start = start.throttle(period);
        }
        start
    }
}

impl Options {
    /// These options, as a server is asked for a start with this input.
    fn asked<'a>(&'a self, input: &'a RawValue) -> NewStart<'a> {
        NewStart {
            input,
            queue: &self.queue,
            priority: self.priority,
            lane: self.lane.as_deref(),
            delay_ms: self.delay.map(millis),
            at: self.at.map(Timestamp::from),
            timeout_ms: self.timeout.map(millis),
            tags: self.tag.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            on_conflict: self.on_conflict.into(),
            key_ttl_ms: self.key_ttl.map(millis),
            debounce_ms: None,
            debounce_max_ms: None,
            throttle_ms: None,
        }
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

async fn open_for_start(global: &Global) -> Result<Place, Problem> {
    if global.server()?.is_none() && global.store()? == "memory:" {
        print_note(&"a memory: store is gone when this command ends");
    }
    Place::open_or_create(global).await
}

impl From<Conflict> for OnConflict {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::Existing => OnConflict::Existing,
            Conflict::Reject => OnConflict::Reject,
            Conflict::RetryFailed => OnConflict::RetryFailed,
            Conflict::Replace => OnConflict::Replace,
        }
    }
}
