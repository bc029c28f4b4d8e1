//! Effects: what step bodies did, one line each, in a file that outlives its writers.
//!
//! Owns: the line and its file. A line is one `write` to a file opened for appending, so that
//! processes never mix theirs and a kill leaves whole lines only.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// One start of one step body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// The start of the victim that did it; counted by the test.
    pub generation: u32,
    /// Its process.
    pub pid: u32,
    /// When, by this machine's clock, in microseconds since 1970.
    pub at_us: u64,
    /// Its place among the effects of that process.
    pub order: u64,
    /// The key of the run, which also names its workflow.
    pub key: String,
    /// The step's id as the body was told it.
    pub step_id: String,
    /// The run as the body was told it.
    pub run: String,
    /// The number of the try.
    pub try_number: u32,
    /// How often the body may begin for one try.
    pub times: Times,
}

/// How often a body may begin for one try of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// Again after every crash, until it is recorded.
    AtLeastOnce,
    /// Never again.
    AtMostOnce,
}

/// Writes effects.
#[derive(Clone, Debug)]
pub struct Pen {
    file: Arc<File>,
    order: Arc<AtomicU64>,
    generation: u32,
}

impl Pen {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path, generation: u32) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { file: Arc::new(file), order: Arc::default(), generation })
    }

    /// Writes that a body begins.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, key: &str, step: &onward::Step, times: Times) -> io::Result<()> {
        let effect = Effect {
            generation: self.generation,
            pid: std::process::id(),
            at_us: now_us(),
            order: self.order.fetch_add(1, Ordering::SeqCst),
            key: key.to_owned(),
            step_id: step.id().to_owned(),
            run: step.run_id().to_string(),
            try_number: step.try_number(),
            times,
        };
        let line = format!("{}\n", serde_json::to_string(&effect)?);
        (&*self.file).write_all(line.as_bytes())
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Reads every effect; none when there is no file yet.
///
/// # Errors
/// When the file cannot be read, or a line is not an effect.
pub fn read(path: &Path) -> io::Result<Vec<Effect>> {
    match std::fs::read_to_string(path) {
        Ok(text) => text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
