//! What a run notes on itself, until the driver takes it to the store.
//!
//! Owns: which notes of the workflow function are new, and which a replay makes again. Never writes,
//! and never holds up the function: a note is kept here and goes with a later write.
//!
//! A note of the function is known by its place: the number of the latest delivered record, and how
//! many notes there were since. That is the same on replay, whatever the function does after a
//! failure that a retry voided. A body's notes are always new: it is executed again only when it is
//! another try.

use std::collections::{BTreeMap, VecDeque};

use super::Board;
use crate::driver::wake::Here;
use crate::limits::{LOG_LINE_BYTES_MAX, LOG_LINES_MAX, TAGS_MAX};
use crate::store::Note;
use crate::trace;
use crate::{LogLine, Noted, Notes, Run, RunProgress};

/// What a run has noted and the store does not have yet.
pub(crate) struct Notepad {
    lines: VecDeque<LogLine>,
    line_last: u64,
    progress: Option<RunProgress>,
    tags: BTreeMap<String, String>,
    /// The run's tags with those that it has set.
    all_tags: BTreeMap<String, String>,
    /// Where the function is, and up to where its notes are stored.
    here: Noted,
    stored: Noted,
    changed: bool,
}

/// The step and the try in whose body a line is written.
type Where<'a> = Option<(&'a str, u32)>;

impl Notepad {
    pub(crate) fn of(run: &Run) -> Self {
        let Notes { log_lines, noted, .. } = run.notes;
        Self {
            lines: VecDeque::new(),
            line_last: log_lines,
            progress: None,
            tags: BTreeMap::new(),
            all_tags: run.tags.clone(),
            here: Noted::default(),
            stored: noted,
            changed: false,
        }
    }

    /// Notes that the function was given the record of this number.
    pub(super) fn delivered(&mut self, seq: u64) {
        if seq > self.here.seq {
            self.here = Noted { seq, calls: 0 };
        }
    }

    /// The number of the latest record that the function was given.
    pub(super) fn given(&self) -> u64 {
        self.here.seq
    }

    /// Counts a note of the function; says whether it is new.
    fn is_new(&mut self) -> bool {
        self.here.calls += 1;
        self.changed |= self.here > self.stored;
        self.here > self.stored
    }
}

impl Board {
    /// Adds a line to the run's log.
    pub(crate) fn log(&self, place: Where<'_>, text: String) {
        let at = self.store.clock().now();
        let mut inner = self.lock();
        if inner.ended || !self.is_note_new(&mut inner.notepad) {
            return;
        }
        let pad = &mut inner.notepad;
        pad.line_last += 1;
        pad.lines.push_back(LogLine {
            no: pad.line_last,
            at,
            step: place.map(|(step, _)| step.to_owned()),
            try_number: place.map(|(_, try_number)| try_number),
            text: cut(text),
        });
        // What the store would forget at once need not be brought to it.
        if pad.lines.len() > LOG_LINES_MAX {
            pad.lines.pop_front();
        }
        drop(inner);
        self.wakes.nudge();
    }

    /// Notes how far the run is.
    pub(crate) fn set_progress(&self, done: u64, total: u64) {
        let at = self.store.clock().now();
        let mut inner = self.lock();
        if inner.ended || !self.is_note_new(&mut inner.notepad) {
            return;
        }
        inner.notepad.progress = Some(RunProgress { done, total, at });
        drop(inner);
        self.wakes.nudge();
    }

    /// The tags that a child of the run begins with.
    pub(crate) fn inherited_tags(&self) -> BTreeMap<String, String> {
        trace::inherited(&self.lock().notepad.all_tags)
    }

    /// Sets a tag of the run; says whether it has room for it.
    pub(crate) fn set_tag(&self, name: &str, value: &str) -> bool {
        let mut inner = self.lock();
        let pad = &mut inner.notepad;
        let has_room = pad.all_tags.contains_key(name) || trace::own_tags(&pad.all_tags) < TAGS_MAX;
        if has_room && self.is_note_new(pad) {
            pad.all_tags.insert(name.to_owned(), value.to_owned());
            pad.tags.insert(name.to_owned(), value.to_owned());
            drop(inner);
            self.wakes.nudge();
        }
        has_room
    }

    /// Whether a note is new: that of a body always is.
    fn is_note_new(&self, pad: &mut Notepad) -> bool {
        match Here::now() {
            Here::Function(token) if token == self.wakes.token => pad.is_new(),
            _ => {
                pad.changed = true;
                true
            }
        }
    }

    /// Whether there is anything to bring to the store.
    pub(crate) fn has_notes(&self) -> bool {
        self.lock().notepad.changed
    }

    /// What there is to bring to the store.
    pub(crate) fn take_notes(&self) -> Option<Note> {
        let mut inner = self.lock();
        let pad = &mut inner.notepad;
        if !std::mem::take(&mut pad.changed) {
            return None;
        }
        pad.stored = pad.stored.max(pad.here);
        Some(Note {
            lines: std::mem::take(&mut pad.lines).into(),
            progress: pad.progress.take(),
            tags: std::mem::take(&mut pad.tags),
            noted: pad.stored,
        })
    }
}

/// A line within its limit, cut at a character where it is longer. A NUL, which databases cannot
/// keep, is shown instead.
fn cut(text: String) -> String {
    let mut text = if text.contains('\0') { text.replace('\0', "\u{2400}") } else { text };
    if text.len() > LOG_LINE_BYTES_MAX {
        let mut end = LOG_LINE_BYTES_MAX - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, RunId, Timestamp};

    fn pad(noted: Noted) -> Notepad {
        let (input, now) = (Json::stored("1"), Timestamp::from_millis(0));
        let mut run = Run::fresh(RunId::new(), "index".to_owned(), input, now);
        run.notes.noted = noted;
        Notepad::of(&run)
    }

    #[test]
    fn a_replayed_note_is_not_new() {
        let mut pad = pad(Noted { seq: 2, calls: 1 });
        assert!(!pad.is_new(), "before any record");
        pad.delivered(1);
        assert!(!pad.is_new() && !pad.is_new());
        pad.delivered(2);
        assert!(!pad.is_new());
        assert!(pad.is_new(), "the second after record 2 was not stored");
        pad.delivered(4);
        assert!(pad.is_new());
    }

    #[test]
    fn a_result_that_comes_late_does_not_turn_the_place_back() {
        let mut pad = pad(Noted::default());
        pad.delivered(5);
        assert!(pad.is_new());
        pad.delivered(3);
        assert_eq!(pad.here, Noted { seq: 5, calls: 1 });
    }

    #[test]
    fn a_long_line_is_cut_at_a_character() {
        let cut = cut("ü".repeat(LOG_LINE_BYTES_MAX));
        assert!(cut.len() <= LOG_LINE_BYTES_MAX && cut.ends_with("ü…"));
        assert_eq!(super::cut("a\0b".to_owned()), "a\u{2400}b");
    }
}
