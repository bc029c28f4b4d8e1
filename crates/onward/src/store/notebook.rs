//! What runs note on themselves: tags, how far they are, and lines of a log.
//!
//! Owns: [`Notebook`], the plain data of its verbs, and the decisions that must be taken inside
//! their transactions. Never a part of the history: no replay depends on a note.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Answer, Lease};
use crate::limits::LOG_LINES_MAX;
use crate::{LogLine, Noted, Run, RunId, RunProgress};

/// A store that keeps what runs note on themselves.
///
/// Beside [`Store`](super::Store), because no run needs it to end.
pub trait Notebook: Send + Sync {
    /// Keeps notes on a run, under its holder's lease. What is there already is not written again, so
    /// that a repeat changes nothing. Of a log the last `LOG_LINES_MAX` lines are kept.
    fn note(&self, lease: Lease, note: Note) -> Answer<'_, ()>;

    /// A page of a run's log, in order, after its `after`th line.
    fn log(&self, run: RunId, after: u64, limit: usize) -> Answer<'_, LogPage>;
}

/// What a run notes on itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Lines of its log, in order, each with a number of its own.
    pub lines: Vec<LogLine>,
    /// How far it is; `None`: as it said before.
    pub progress: Option<RunProgress>,
    /// Tags that it sets.
    pub tags: BTreeMap<String, String>,
    /// Up to where these are its function's notes.
    pub noted: Noted,
}

/// A page of a run's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogPage {
    /// The lines.
    pub lines: Vec<LogLine>,
    /// Whether more follow.
    pub more: bool,
}

/// Writes a note to a run, but for the lines themselves; says whether its tags changed.
pub(crate) fn apply(run: &mut Run, note: &Note) -> bool {
    let notes = &mut run.notes;
    notes.log_lines = notes.log_lines.max(note.lines.last().map_or(0, |line| line.no));
    notes.noted = notes.noted.max(note.noted);
    notes.progress = note.progress.or(notes.progress);
    let before = run.tags.clone();
    run.tags.extend(note.tags.clone());
    before != run.tags
}

/// The number of the last line that a run's log keeps no more.
pub(crate) fn forgotten(run: &Run) -> u64 {
    run.notes.log_lines.saturating_sub(LOG_LINES_MAX as u64)
}

/// Whether a note is there, written before: a late repeat by whoever holds the run no more. `there`:
/// the run's lines from the first of the note's on.
pub(crate) fn is_there(run: &Run, there: &[LogLine], note: &Note) -> bool {
    let kept = note.lines.iter().filter(|line| line.no > forgotten(run));
    let notes = &run.notes;
    notes.noted >= note.noted
        && note.progress.is_none_or(|progress| notes.progress == Some(progress))
        && note.tags.iter().all(|(name, value)| run.tags.get(name) == Some(value))
        && kept.into_iter().all(|line| there.contains(line))
        && notes.log_lines >= note.lines.last().map_or(0, |line| line.no)
}
