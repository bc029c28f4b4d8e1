//! Runs of a place: looking at them, and changing one.
//!
//! Owns: each look and each change in both ways, by the library and over HTTP. Never prints.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use onward::limits::{PAGE_ROWS_MAX, SIGNALS_MAX};
use onward::store::{Signal, Topic};
use onward::{
    Code, Duplicates, Filter, Json, LogLine, Onward, Query, Record, Run, RunHandle, RunId, RunPage,
    Timestamp, Why,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{Call, PAGE_ROWS, Page, Place};
use crate::problem::Problem;

/// What is done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verb {
    Cancel,
    Retry,
    Pause,
    Resume,
    Delete,
}

/// A run, why it is not running, and what came with its key.
pub(crate) struct Seen {
    pub(crate) run: Run,
    pub(crate) why: Reason,
    pub(crate) duplicates: Duplicates,
}

/// Why a run is not running.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    /// A stable name.
    pub(crate) code: String,
    /// For people.
    pub(crate) sentence: String,
    /// Until when, where that is known.
    pub(crate) until: Option<Timestamp>,
    /// Whether no worker is up that serves it.
    pub(crate) unserved: bool,
    /// As it is printed with `-o json`.
    pub(crate) json: Box<RawValue>,
}

/// A signal that nothing in its run has taken yet.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Untaken {
    /// Its number among the run's signals.
    pub(crate) no: u64,
    pub(crate) name: String,
    pub(crate) at: Timestamp,
    pub(crate) value: Json,
}

impl From<Signal> for Untaken {
    fn from(signal: Signal) -> Self {
        Self { no: signal.no, name: signal.name, at: signal.at, value: signal.body }
    }
}

/// A fork, as it is asked for.
#[derive(Debug, Serialize)]
pub(crate) struct Fork {
    pub(crate) from_step: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct RunOnly {
    pub(super) run: Run,
}

#[derive(Deserialize)]
struct Shown {
    run: Run,
    why: Option<ShownWhy>,
    duplicates: Duplicates,
}

#[derive(Serialize, Deserialize)]
struct ShownWhy {
    #[serde(rename(serialize = "reason"))]
    code: String,
    text: String,
    until: Option<Timestamp>,
    /// An older server does not say it.
    #[serde(default)]
    unserved: bool,
}

/// A run in a list of the API's, which leaves its payloads out.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Row(BTreeMap<String, Box<RawValue>>);

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::Retry => "retry",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
            Verb::Delete => "delete",
        }
    }

    pub(crate) fn past(self) -> &'static str {
        match self {
            Verb::Cancel => "cancelled",
            Verb::Retry => "retried",
            Verb::Pause => "paused",
            Verb::Resume => "resumed",
            Verb::Delete => "deleted",
        }
    }
}

impl Place {
    /// Whether lists of this place have the payloads of their runs.
    pub(crate) fn lists_payloads(&self) -> bool {
        matches!(self, Place::Store(_))
    }

    /// A page of runs, newest first.
    pub(crate) async fn list(&self, query: Query) -> Result<RunPage, Problem> {
        if let Place::Store(onward) = self {
            return Ok(onward.list(query).await?);
        }
        let before = query.before.map(|id| id.to_string());
        let call = filtered(Call::get("/runs"), &query.filter);
        let (rows, next) = self.rows::<Row>(call, before, query.limit).await?;
        let mut page = RunPage { more: next.is_some(), ..RunPage::default() };
        for row in rows {
            page.runs.push(row.read()?);
        }
        Ok(page)
    }

    /// A run, and why it is not running.
    pub(crate) async fn see(&self, id: RunId) -> Result<Seen, Problem> {
        match self {
            Place::Store(onward) => {
                let handle = onward.run(id);
                let (run, duplicates) = (handle.own_status().await?, handle.duplicates().await?);
                let why = match run.state.is_final() {
                    true => Why::Ended { state: run.state },
                    false => handle.why().await?,
                };
                Ok(Seen { run, why: Reason::of(&why)?, duplicates })
            }
            Place::Server(_) => {
                let shown: Shown = self.ask(&Call::get(format!("/runs/{id}"))).await?;
                let Shown { run, why, duplicates } = shown;
                let why = match why {
                    Some(why) => Reason::shown(why)?,
                    None => Reason::of(&Why::Ended { state: run.state })?,
                };
                Ok(Seen { run, why, duplicates })
            }
        }
    }

    /// A run alone.
    pub(crate) async fn run(&self, id: RunId) -> Result<Run, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.run(id).own_status().await?),
            Place::Server(_) => Ok(self.see(id).await?.run),
        }
    }

    /// The records of a run after this one, up to a page; and whether more follow.
    pub(crate) async fn history(
        &self,
        id: RunId,
        after: Option<u64>,
    ) -> Result<(Vec<Record>, bool), Problem> {
        match self {
            Place::Store(onward) => {
                let page = onward.store().history(id, after, PAGE_ROWS_MAX).await;
                let page = page.map_err(onward::Error::from)?;
                Ok((page.records, page.more))
            }
            Place::Server(_) => {
                let call = Call::get(format!("/runs/{id}/history"));
                let after = after.map(|seq| seq.to_string());
                let page: Page<Record> = self.page(call, after.as_deref(), PAGE_ROWS).await?;
                Ok((page.items, page.next.is_some()))
            }
        }
    }

    /// The signals of a run that nothing in it has taken yet; none where their values cannot be read here,
    /// and why.
    pub(crate) async fn untaken(
        &self,
        id: RunId,
    ) -> Result<(Vec<Untaken>, Option<Problem>), Problem> {
        let found = match self {
            Place::Store(onward) => match onward.run(id).signals_untaken().await {
                Ok(signals) => Ok(signals.into_iter().map(Untaken::from).collect()),
                Err(error) => Err(Problem::from(error)),
            },
            Place::Server(_) => {
                let call = Call::get(format!("/runs/{id}/signals"));
                self.rows(call, None, SIGNALS_MAX as usize).await.map(|(signals, _)| signals)
            }
        };
        match found {
            Ok(signals) => Ok((signals, None)),
            Err(problem) if problem.code() == Some(Code::PayloadUnreadable) => {
                Ok((Vec::new(), Some(problem)))
            }
            Err(problem) => Err(problem),
        }
    }

    /// All records of a run. A history is bounded, and so is this.
    pub(crate) async fn whole_history(&self, id: RunId) -> Result<Vec<Record>, Problem> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|record: &Record| record.seq);
            let (records, more) = self.history(id, after).await?;
            all.extend(records);
            if !more {
                return Ok(all);
            }
        }
    }

    /// The lines of a run's log after this one.
    pub(crate) async fn log_after(&self, id: RunId, line: u64) -> Result<Vec<LogLine>, Problem> {
        match self {
            Place::Store(onward) => Ok(onward.run(id).log_after(line).await?),
            Place::Server(_) => {
                let call = Call::get(format!("/runs/{id}/log"));
                // A log is bounded, and so is this.
                Ok(self.rows(call, Some(line.to_string()), usize::MAX).await?.0)
            }
        }
    }

    /// Resolves when a run may have changed, and at the latest after `most`.
    pub(crate) fn changed(
        &self,
        id: RunId,
        most: Duration,
    ) -> impl Future<Output = ()> + Send + 'static {
        let hint = match self {
            Place::Store(onward) => Some(onward.store().wait(Topic::Run(id))),
            Place::Server(_) => None,
        };
        async move {
            match hint {
                // A hint that does not come in time is made up for by looking.
                Some(hint) => drop(tokio::time::timeout(most, hint).await),
                None => tokio::time::sleep(most).await,
            }
        }
    }

    /// Changes a run, and gives it as it stands then; nothing of one that was deleted.
    pub(crate) async fn steer(&self, verb: Verb, id: RunId) -> Result<Option<Run>, Problem> {
        match (self, verb) {
            (Place::Store(onward), _) => steer(onward, verb, id).await,
            (Place::Server(_), Verb::Delete) => {
                self.ask::<()>(&Call::delete(format!("/runs/{id}"))).await?;
                Ok(None)
            }
            (Place::Server(_), verb) => {
                let call = Call::post(format!("/runs/{id}/{}", verb.name()));
                Ok(Some(self.ask::<RunOnly>(&call).await?.run))
            }
        }
    }

    /// Starts a run with the first records of another.
    pub(crate) async fn fork(&self, id: RunId, new: Fork) -> Result<Run, Problem> {
        match self {
            Place::Store(onward) => {
                let mut fork = onward.run(id).fork(new.from_step);
                if let Some(input) = &new.input {
                    fork = fork.input(input);
                }
                if let Some(key) = new.key {
                    fork = fork.key(key);
                }
                Ok(fork.await?.status().await?)
            }
            Place::Server(_) => {
                let call = Call::post(format!("/runs/{id}/fork")).body(&new)?;
                Ok(self.ask::<RunOnly>(&call).await?.run)
            }
        }
    }
}

async fn steer(onward: &Onward, verb: Verb, id: RunId) -> Result<Option<Run>, Problem> {
    let handle: RunHandle<Json> = onward.run(id);
    match verb {
        Verb::Cancel => handle.cancel().await?,
        Verb::Retry => handle.retry().await?,
        Verb::Pause => handle.pause().await?,
        Verb::Resume => handle.resume().await?,
        Verb::Delete => {
            // One that is not there is told as every other command tells it.
            if !handle.delete().await? {
                handle.status().await?;
            }
            return Ok(None);
        }
    }
    Ok(Some(handle.status().await?))
}

/// A call with the parameters of a filter.
pub(super) fn filtered(mut call: Call, filter: &Filter) -> Call {
    for state in &filter.states {
        call = call.query("state", state);
    }
    for (name, value) in &filter.tags {
        call = call.query("tag", format!("{name}:{value}"));
    }
    call.query_if("workflow", filter.workflow.as_deref())
        .query_if("queue", filter.queue.as_deref())
        .query_if("key", filter.key.as_deref())
        .query_if("parent", filter.parent)
        .query_if("created_from", filter.created_from.map(Timestamp::as_millis))
        .query_if("created_before", filter.created_before.map(Timestamp::as_millis))
}

impl Row {
    /// The run, with null in the place of its input.
    pub(super) fn read(mut self) -> Result<Run, Problem> {
        self.0.insert("input".to_owned(), to_raw_value(&())?);
        Ok(serde_json::from_str(&serde_json::to_string(&self.0)?)?)
    }
}

impl Reason {
    /// What the library says.
    fn of(why: &Why) -> Result<Self, Problem> {
        let until = match why {
            Why::Until { at, .. } => Some(*at),
            _ => None,
        };
        let (code, unserved) = (why.code().to_owned(), why.is_unserved());
        Ok(Self { code, sentence: why.to_string(), until, unserved, json: to_raw_value(why)? })
    }

    /// What a server says.
    fn shown(why: ShownWhy) -> Result<Self, Problem> {
        let json = to_raw_value(&why)?;
        let ShownWhy { code, text, until, unserved } = why;
        Ok(Self { code, sentence: text, until, unserved, json })
    }

    /// Whether it is the same reason at another time: the time that is left does not count.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        match (self.until, other.until) {
            (None, None) => self.sentence == other.sentence,
            (one, two) => one == two && self.code == other.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use onward::{Entry, Failure};

    use super::*;

    #[test]
    fn every_record_is_read_as_it_was_written() {
        let (at, text) = (Timestamp::from_millis(7), "9007199254740993");
        for entry in [
            Entry::Done(Json::stored(text)),
            Entry::Failed(Failure::fatal("no").code("declined").details(&vec![1])),
            Entry::TryFailed { failure: Failure::from("not yet"), next_at: at },
            Entry::Began,
            Entry::Fired,
            Entry::Arrived(Json::stored(text)),
        ] {
            let record = Record::new(1, "step", entry, at);
            let written = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<Record>(&written).unwrap(), record, "{written}");
        }
    }

    #[test]
    fn a_row_without_payloads_is_read_as_a_run() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        let input = Json::stored("null");
        let run = Run::fresh(id, "work".to_owned(), input, Timestamp::from_millis(7));
        let text = serde_json::to_string(&run).unwrap().replace("\"input\":null,", "");
        assert!(!text.contains("input"), "{text}");
        let row: Row = serde_json::from_str(&text).unwrap();
        assert_eq!(row.read().unwrap(), run);
    }
}
