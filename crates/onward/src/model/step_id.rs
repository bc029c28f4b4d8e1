//! Step ids: stable over tries, attempts, crashes and machines.
//!
//! Owns: how a step's name becomes the part of its id that follows the run's. Never counts; the
//! run's state numbers the steps of one name.
//!
//! The form: the name with everything but plain printable ASCII escaped as `%XX`, then nothing
//! for the first step of that name, `#2` for the second, or `#=id` for an explicit id. `#`, `%`
//! and a leading `$` in a name are escaped, so that no name can imitate another's number or one
//! of the engine's own steps. An id that would grow too long ends in a hash of the whole instead.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::limits::STEP_ID_BYTES_MAX;

/// Bytes of a run id and the slash after it.
const RUN_PART_BYTES: usize = 37;

/// The longest step part of an id.
const STEP_PART_BYTES_MAX: usize = STEP_ID_BYTES_MAX - RUN_PART_BYTES;

/// Bytes of a signal's number and the mark before it.
const SIGNAL_NUMBER_BYTES: usize = 21;

/// The step part for the `number`th step of this name.
pub(crate) fn numbered(name: &str, number: u32) -> String {
    let mut id = escaped(name);
    if number > 1 {
        let _ = write!(id, "#{number}");
    }
    bounded(id)
}

/// The step part for a step with an explicit id.
pub(crate) fn explicit(name: &str, id: &str) -> String {
    let mut text = escaped(name);
    text.push_str("#=");
    text.push_str(&escaped(id));
    bounded(text)
}

/// The step that signals of this name are recorded as, but for their number.
pub(crate) fn signal(name: &str) -> String {
    within(format!("$signal/{}", escaped(name)), STEP_PART_BYTES_MAX - SIGNAL_NUMBER_BYTES)
}

/// The name of the signal that tells of the end of a child of this workflow.
pub(crate) fn child(workflow: &str) -> String {
    let bytes_max = STEP_PART_BYTES_MAX - 2 * SIGNAL_NUMBER_BYTES;
    within(format!("$child/{}", escaped(workflow)), bytes_max)
}

/// What follows a child's name in the step that says that it is started.
pub(crate) const STARTED: &str = " started";

/// The name of the timer that limits a wait for a signal.
pub(crate) fn timeout(name: &str) -> String {
    within(format!("$timeout/{}", escaped(name)), STEP_PART_BYTES_MAX - SIGNAL_NUMBER_BYTES)
}

/// The `number`th step of one of the engine's own names.
pub(crate) fn engine_numbered(name: &str, number: u32) -> String {
    if number > 1 { format!("{name}#{number}") } else { name.to_owned() }
}

fn escaped(name: &str) -> String {
    let mut id = String::with_capacity(name.len() + 4);
    for (place, byte) in name.bytes().enumerate() {
        let plain = (b' '..=b'~').contains(&byte) && byte != b'#' && byte != b'%';
        // Header values are trimmed on their way, so a space at an end would be lost.
        let edge = byte == b' ' && (place == 0 || place + 1 == name.len());
        if plain && !edge && !(place == 0 && byte == b'$') {
            id.push(char::from(byte));
        } else {
            let _ = write!(id, "%{byte:02X}");
        }
    }
    id
}

fn bounded(id: String) -> String {
    within(id, STEP_PART_BYTES_MAX)
}

fn within(id: String, bytes_max: usize) -> String {
    if id.len() <= bytes_max {
        return id;
    }
    let hash = Sha256::digest(id.as_bytes());
    let mut short = id;
    short.truncate(bytes_max - 34);
    short.push_str("#~");
    hash[..16].iter().for_each(|byte| {
        let _ = write!(short, "{byte:02x}");
    });
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_as_they_are() {
        assert_eq!(numbered("find customer", 1), "find customer");
        assert_eq!(numbered("find customer", 2), "find customer#2");
        assert_eq!(explicit("save", "42"), "save#=42");
    }

    #[test]
    fn no_name_imitates_another() {
        assert_ne!(numbered("save#2", 1), numbered("save", 2));
        assert_ne!(numbered("save#=1", 1), explicit("save", "1"));
        assert_ne!(numbered("$sleep", 1), engine_numbered("$sleep", 1));
        assert_ne!(numbered("%23", 1), numbered("#", 1));
    }

    #[test]
    fn ids_are_header_safe_and_bounded() {
        for name in ["naïve ☃", "tab\tnew\nline\0", " edges ", &"long ".repeat(100)] {
            for id in [numbered(name, 7), explicit(name, name)] {
                assert!(id.len() <= STEP_PART_BYTES_MAX, "{id}");
                assert!(id.bytes().all(|b| (b' '..=b'~').contains(&b)), "{id}");
                assert_eq!(id.trim(), id);
            }
        }
        assert_ne!(numbered(&"a".repeat(500), 1), numbered(&"a".repeat(501), 1));
    }
}
