//! Beginning a change of many runs, and following it to its end.
//!
//! Owns: what is sent, and what comes back. Never chooses a run; the operation does.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use clap::Args;
use onward::{Filter, RunId, RunState, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::args::Global;
use crate::output::{self, Format};
use crate::place::{Call, Place, Verb};
use crate::problem::{Exit, Problem, print_note};
use crate::progress::Progress;
use crate::runs::filter::{FilterArgs, Wanted};
use crate::runs::many;
use crate::text;
use crate::workers;

/// How often an operation that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The workflow of operations, which servers serve.
pub(crate) const OPERATION: &str = "onward-operation";

/// Begins a change of many runs, which a server carries out and which outlives this command
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  onward ops start retry --state failed --workflow bill --reason 'the bank is back' --yes
  onward ops start cancel --tag import=7 --dry-run
  onward runs list --state failed -o ids | onward ops start retry - --yes --wait

Runs that are started after it are not meant. 'onward runs retry --all-matching' does the same from
this process, where there is no server.")]
pub(crate) struct StartArgs {
    /// What is done to each run
    #[arg(value_enum)]
    action: Verb,
    #[command(flatten)]
    ids: crate::runs::Ids,
    #[command(flatten)]
    filter: FilterArgs,
    /// Why, for those who look at it later
    #[arg(long)]
    reason: Option<String>,
    /// Begins it once, however often this command is repeated with the same text
    #[arg(long, value_name = "TEXT")]
    idempotency_key: Option<String>,
    /// At most so many runs a second
    #[arg(long, value_name = "RUNS")]
    pace: Option<u32>,
    /// Counts only
    #[arg(long)]
    dry_run: bool,
    /// Does not ask; needed where there is no terminal to ask on
    #[arg(long, short)]
    yes: bool,
    /// Waits for its end; exits with 1 if a run could not be changed
    #[arg(long)]
    wait: bool,
}

/// An operation, as it is asked for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewOperation {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<Chosen>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ids: Vec<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pace: Option<u32>,
    dry_run: bool,
    #[serde(skip)]
    key: Option<String>,
}

/// Which runs are meant.
#[derive(Clone, Debug, Serialize)]
struct Chosen {
    state: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    tags: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before: Option<Timestamp>,
}

/// How many runs an operation would look at.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Matched {
    pub(crate) matched: u64,
    more: bool,
}

#[derive(Deserialize)]
struct Begun {
    operation: Operation,
}

/// An operation, and how far it is.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Operation {
    pub(super) id: RunId,
    pub(super) action: String,
    filter: Box<RawValue>,
    ids: Vec<RunId>,
    pub(super) state: String,
    pub(super) matched: u64,
    pub(super) done: u64,
    pub(super) skipped: u64,
    pub(super) failed: u64,
    cut: bool,
    /// How many runs fitted when it was begun; a server of an older version does not say.
    #[serde(default)]
    expected: Option<u64>,
    #[serde(default)]
    expected_more: bool,
    pub(super) created_at: Timestamp,
    finished_at: Option<Timestamp>,
    pub(super) by: String,
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pace: Option<u32>,
}

impl StartArgs {
    pub(super) async fn execute(self, global: &Global) -> Result<Exit, Problem> {
        let verb = self.action;
        if self.ids.are_left_out() == self.filter.is_empty() {
            let why = "say which runs: by flags as --state failed, or by their ids; not by both";
            return Err(Problem::Usage(why.to_owned()));
        }
        let ids = self.ids.read()?;
        if ids.is_empty() && self.filter.is_empty() {
            print_note(&"no id came from stdin: there is nothing to do");
            return Ok(Exit::Ok);
        }
        let place = Place::open(global).await?;
        let (filter, wanted) = self.filter.read(place.now());
        let mut new = NewOperation::of_filter(verb, filter, &wanted).pace(self.pace);
        if !ids.is_empty() {
            (new.filter, new.ids) = (None, ids);
        }
        (new.reason, new.key) = (self.reason, self.idempotency_key);
        let would = new.matched(&place).await?;
        if self.dry_run {
            return would.print(verb, global.output);
        }
        if !self.yes && !many::asked(verb, would.matched, &would.said(verb))? {
            return Ok(Exit::No);
        }
        let begun = new.begin(&place).await?;
        if self.wait {
            return begun.follow(&place, global.output).await;
        }
        super::print(global.output, &[begun], place.now())?;
        Ok(Exit::Ok)
    }
}

impl NewOperation {
    /// This change of every run that fits.
    pub(crate) fn of_filter(verb: Verb, filter: Filter, wanted: &Wanted) -> Self {
        let filter = Chosen {
            state: wanted.names(),
            workflow: filter.workflow,
            queue: filter.queue,
            key: filter.key,
            tags: filter.tags,
            parent: filter.parent,
            created_from: filter.created_from,
            created_before: filter.created_before,
        };
        Self {
            action: verb.name(),
            filter: Some(filter),
            ids: Vec::new(),
            reason: None,
            pace: None,
            dry_run: false,
            key: None,
        }
    }

    /// At most so many runs a second; 0 is no limit.
    pub(crate) fn pace(mut self, per_second: Option<u32>) -> Self {
        self.pace = per_second.filter(|per_second| *per_second > 0);
        self
    }

    /// How many runs it would look at.
    pub(crate) async fn matched(&self, place: &Place) -> Result<Matched, Problem> {
        let dry = Self { dry_run: true, ..self.clone() };
        place.ask(&Call::post("/operations").body(&dry)?).await
    }

    /// Begins it, and says where nobody would carry it out.
    pub(crate) async fn begin(&self, place: &Place) -> Result<Operation, Problem> {
        let call = Call::post("/operations").key(self.key.as_deref()).body(self)?;
        let begun: Begun = place.ask(&call).await?;
        if matches!(place, Place::Store(_)) {
            say_if_unserved(place).await?;
        }
        Ok(begun.operation)
    }
}

/// Says where nobody is up to carry out what was begun. A server carries it out itself, and does not
/// count among the workers that it shows.
async fn say_if_unserved(place: &Place) -> Result<(), Problem> {
    let workers = workers::with_servers(place).await?;
    if !workers.iter().any(|worker| worker.workflows.iter().any(|name| name == OPERATION)) {
        print_note(&"no server of this store is up to carry it out: start 'onward serve'");
    }
    Ok(())
}

impl Matched {
    /// What would be done, in a sentence.
    pub(crate) fn said(&self, verb: Verb) -> String {
        let most = if self.more { "more than" } else { "up to" };
        format!("would {} {most} {}", verb.name(), text::count(self.matched, "matching run"))
    }

    /// Prints what would be done.
    pub(crate) fn print(&self, verb: Verb, format: Format) -> Result<Exit, Problem> {
        match format {
            Format::Json => output::print_json(self)?,
            _ => writeln!(output::stdout(), "{}", self.said(verb))?,
        }
        Ok(Exit::Ok)
    }
}

impl Operation {
    /// The operation of this id.
    pub(super) async fn of(place: &Place, id: RunId) -> Result<Self, Problem> {
        place.ask(&Call::get(format!("/operations/{id}"))).await
    }

    /// The state of a run in whose colour it is shown.
    pub(super) fn like(&self) -> RunState {
        match self.state.as_str() {
            "done" => RunState::Completed,
            "failed" => RunState::Failed,
            "aborted" => RunState::Cancelled,
            _ => RunState::Running,
        }
    }

    /// How much of it is done. While it goes on, runs that it has not come to are known by the count
    /// at its beginning.
    pub(super) fn share(&self) -> String {
        match self.expected.filter(|_| self.state == "running") {
            Some(all) if self.expected_more => format!("{} of over {all}", self.done),
            Some(all) => format!("{} of about {}", self.done, all.max(self.matched)),
            None => format!("{} of {}", self.done, self.matched),
        }
    }

    /// Waits for its end, and prints it. This command may be interrupted; the operation goes on.
    pub(crate) async fn follow(mut self, place: &Place, format: Format) -> Result<Exit, Problem> {
        let mut progress = Progress::share(self.expected);
        progress.name(format!("operation {}", self.id));
        while self.state == "running" {
            tokio::time::sleep(LOOK_EVERY).await;
            self = Self::of(place, self.id).await?;
            progress.set(self.matched, self.share());
        }
        progress.end();
        let good = self.failed == 0 && self.state == "done" && !self.cut;
        if self.cut {
            let done = text::count(self.matched, "run");
            print_note(&format!(
                "it was cut after {done}, as many as one may change: begin it again"
            ));
        }
        super::print(format, &[self], place.now())?;
        Ok(if good { Exit::Ok } else { Exit::No })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_measured_by_the_count_at_its_beginning() {
        let of = |state: &str, expected: &str| {
            let text = format!(
                r#"{{"id": "01890a5d-ac96-774b-bcce-b302099a8057", "action": "cancel", "filter": {{}},
                "ids": [], "state": "{state}", "matched": 200, "done": 190, "skipped": 10,
                "failed": 0, "cut": false, "created_at": 1, "finished_at": null, "by": "ada",
                "reason": null{expected}}}"#
            );
            serde_json::from_str::<Operation>(&text).unwrap().share()
        };
        let counted = r#", "expected": 600, "expected_more": false"#;
        assert_eq!(of("running", counted), "190 of about 600");
        assert_eq!(of("done", counted), "190 of 200");
        assert_eq!(of("running", r#", "expected": 600, "expected_more": true"#), "190 of over 600");
        assert_eq!(of("running", ""), "190 of 200", "an older server does not say");
    }
}
