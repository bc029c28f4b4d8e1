//! Evidence: what the store and the services' logs say, gathered after the fact.
//!
//! Owns: reading. Never judges; `check` does.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};

use onward::limits::PAGE_ROWS_MAX;
use onward::{Filter, Onward, Query, Record, Run};

use crate::Error;
use crate::folder::Folder;
use crate::progress::Bar;
use crate::service::{Call, Kind};
use crate::workflow::{Attachment, INDEX_ATTACHMENT};

/// The final records at one moment: step id → record.
pub(crate) type Recorded = HashMap<String, Record>;

/// All that is known of the demo.
pub(crate) struct Evidence {
    /// What was to be indexed.
    pub(crate) attachments: Vec<Attachment>,
    /// What was recorded between the death of the first worker and the birth of the second.
    pub(crate) recorded_at_kill: Recorded,
    /// Every run of the workflow in the store, with its history, voided records left out.
    pub(crate) runs: Vec<(Run, Vec<Record>)>,
    /// Every line of the services' logs, in order per service.
    pub(crate) calls: Vec<Call>,
}

impl Evidence {
    pub(crate) async fn gather(
        onward: &Onward,
        attachments: Vec<Attachment>,
        recorded_at_kill: Recorded,
        folder: &Folder,
    ) -> Result<Self, Error> {
        let mut bar = Bar::begin("count", attachments.len() as u64);
        let runs = runs(onward, |read| bar.set(read)).await?;
        bar.end("runs checked against the services");
        let mut calls = Vec::new();
        for kind in Kind::ALL {
            calls.append(&mut read_log(kind, folder)?);
        }
        Ok(Self { attachments, recorded_at_kill, runs, calls })
    }
}

/// The id of a record's step, as its body saw it.
pub(crate) fn step_id(run: &Run, record: &Record) -> String {
    format!("{}/{}", run.id, record.step)
}

/// The final records in the store.
pub(crate) async fn recorded(onward: &Onward) -> Result<Recorded, Error> {
    let runs = runs(onward, |_| {}).await?;
    let records = runs.into_iter().flat_map(|(run, history)| {
        let finals = history.into_iter().filter(|record| record.entry.kind().is_final());
        finals.map(move |record| (step_id(&run, &record), record))
    });
    Ok(records.collect())
}

/// Every run with its history; `read` is told how many there are so far.
async fn runs(
    onward: &Onward,
    mut read: impl FnMut(u64),
) -> Result<Vec<(Run, Vec<Record>)>, Error> {
    let filter = Filter { workflow: Some(INDEX_ATTACHMENT.name().to_owned()), ..Filter::default() };
    let mut query = Query { filter, before: None, limit: PAGE_ROWS_MAX };
    let mut runs = Vec::new();
    loop {
        let page = onward.list(query.clone()).await?;
        query.before = page.runs.last().map(|run| run.id);
        for run in page.runs {
            let mut history = onward.run(run.id).history().await?;
            history.retain(|record| record.voided_at.is_none());
            runs.push((run, history));
            read(runs.len() as u64);
        }
        if !page.more {
            return Ok(runs);
        }
    }
}

fn read_log(kind: Kind, folder: &Folder) -> Result<Vec<Call>, Error> {
    let path = kind.log(folder.path());
    let what = format!("cannot read {}", path.display());
    let file = std::fs::File::open(&path).map_err(Error::io(what.as_str()))?;
    let lines = BufReader::new(file).lines();
    let calls = lines.map(|line| serde_json::from_str(&line?).map_err(std::io::Error::from));
    calls.collect::<Result<_, _>>().map_err(Error::io(what))
}
