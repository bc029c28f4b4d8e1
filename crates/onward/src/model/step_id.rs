//! Step ids: stable over tries, attempts, crashes and machines.
//!
//! Owns: how a step's name becomes the part of its id that follows the run's. Never counts; the
//! run's state numbers the steps of one name.
//!
//! The form: the name with everything but plain printable ASCII escaped as `%XX`, then nothing
//! for the first step of that name, `#2` for the second, or `#=id` for an explicit id. `#`, `%`
//! and a leading `$` in a name are escaped, so that no name can imitate another's number or one
//! of the engine's own steps. An id that would grow too long ends in a hash of the whole instead.
//! A step with a key is recorded with it, as `…#@key`: so a key that differs on replay is seen.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::limits::STEP_ID_BYTES_MAX;

/// Bytes of a run id and the slash after it.
const RUN_PART_BYTES: usize = 37;

/// The longest step part of an id.
const STEP_PART_BYTES_MAX: usize = STEP_ID_BYTES_MAX - RUN_PART_BYTES;

/// Bytes that a key takes in a step part at the least: the mark and a hash.
const KEY_PART_BYTES_MIN: usize = 35;

/// Bytes of a signal's number and the mark before it.
const SIGNAL_NUMBER_BYTES: usize = 21;

/// The name of the steps that callbacks are recorded as.
pub(crate) const CALLBACK: &str = "callback";

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

/// Whether this is the name of such a signal.
pub(crate) fn is_child(name: &str) -> bool {
    name.starts_with("$child/")
}

/// The step that the `number`th callback is recorded as.
pub(crate) fn callback(number: u32) -> String {
    explicit(CALLBACK, &number.to_string())
}

/// The number of the callback that is recorded as this step, if it is one.
pub(crate) fn callback_number(step: &str) -> Option<u32> {
    step.strip_prefix(CALLBACK)?.strip_prefix("#=")?.parse().ok()
}

/// The name of the signal that carries the answer to the `number`th callback.
pub(crate) fn callback_signal(number: u32) -> String {
    format!("$callback/{number}")
}

/// What follows a child's name in the step that says that it is started.
pub(crate) const STARTED: &str = " started";

/// The step that says that a run turned back, and how it ends.
pub(crate) const UNDO: &str = "$undo";

/// The step that says that there is something to execute on a cancel, in a run that has no other
/// record.
pub(crate) const ON_CANCEL: &str = "$on_cancel";

/// The step that undoes another, which is given without its key.
pub(crate) fn undo(step: &str) -> String {
    bounded(format!("{UNDO}/{step}"))
}

/// The step that is the `number`th call of `on_cancel`.
pub(crate) fn on_cancel(number: usize) -> String {
    format!("{ON_CANCEL}/{number}")
}

/// Whether a step is one of those that a run executes on its way back.
pub(crate) fn undoes(step: &str) -> bool {
    undone_by(step).is_some() || step.strip_prefix(ON_CANCEL).is_some_and(|n| n.starts_with('/'))
}

/// The step that this one undoes, if it is one that undoes.
pub(crate) fn undone_by(step: &str) -> Option<&str> {
    step.strip_prefix(UNDO)?.strip_prefix('/')
}

/// The name of the timer that limits a wait for a signal.
pub(crate) fn timeout(name: &str) -> String {
    within(format!("$timeout/{}", escaped(name)), STEP_PART_BYTES_MAX - SIGNAL_NUMBER_BYTES)
}

/// The `number`th step of one of the engine's own names.
pub(crate) fn engine_numbered(name: &str, number: u32) -> String {
    if number > 1 { format!("{name}#{number}") } else { name.to_owned() }
}

/// The step of one of the engine's own names that has an explicit id.
pub(crate) fn engine_explicit(name: &str, id: &str) -> String {
    within(format!("{name}#={}", escaped(id)), STEP_PART_BYTES_MAX - 2 * SIGNAL_NUMBER_BYTES)
}

/// The step part under which a step with a key is recorded.
pub(crate) fn keyed(base: &str, key: &str) -> String {
    let mut id = within(base.to_owned(), STEP_PART_BYTES_MAX - KEY_PART_BYTES_MIN);
    id.push_str("#@");
    let plain = escaped(key);
    if id.len() + plain.len() <= STEP_PART_BYTES_MAX {
        id.push_str(&plain);
    } else {
        id.push('~');
        push_hash(&mut id, key);
    }
    id
}

/// The step part without its key.
pub(crate) fn base(step: &str) -> &str {
    step.split_once("#@").map_or(step, |(base, _)| base)
}

/// The whole id of a step that has this key, whatever its run: no run's id begins like it.
pub(crate) fn of_key(key: &str) -> String {
    within(format!("key/{}", escaped(key)), STEP_ID_BYTES_MAX)
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
    let mut short = id.clone();
    short.truncate(bytes_max - 34);
    short.push_str("#~");
    push_hash(&mut short, &id);
    short
}

fn push_hash(id: &mut String, of: &str) {
    Sha256::digest(of.as_bytes())[..16].iter().for_each(|byte| {
        let _ = write!(id, "{byte:02x}");
    });
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
    fn an_undo_is_told_from_every_other_step() {
        assert_eq!(undo(&numbered("charge", 2)), "$undo/charge#2");
        assert_eq!(undone_by("$undo/charge#2"), Some("charge#2"));
        for name in ["$undo/charge", "$undo", "$on_cancel/1"] {
            assert!(!numbered(name, 1).starts_with('$'));
        }
        assert_eq!(undone_by(UNDO), None);
        let long = ["a", "b"].map(|end| undo(&numbered(&format!("{}{end}", "n".repeat(217)), 1)));
        assert!(long[0] != long[1] && long.iter().all(|id| id.len() <= STEP_PART_BYTES_MAX));
    }

    #[test]
    fn a_key_is_told_from_its_step() {
        let (save, long) = (numbered("save", 2), "k".repeat(500));
        assert_eq!(keyed(&save, "order-7"), "save#2#@order-7");
        for key in ["order-7", "a#@b", " edges ", "naïve", &long] {
            assert_eq!(base(&keyed(&save, key)), save);
            assert_ne!(keyed(&save, key), keyed(&save, "order-8"));
        }
        assert_ne!(keyed(&save, &long), keyed(&save, &"k".repeat(501)));
        assert_ne!(numbered("save#@order-7", 1), keyed("save", "order-7"));
        let far = keyed(&numbered(&"n".repeat(400), 1), &long);
        assert!(far.len() <= STEP_PART_BYTES_MAX && base(&far).len() < far.len());
    }

    #[test]
    fn the_id_of_a_key_is_header_safe_and_bounded() {
        assert_eq!(of_key("welcome-7"), "key/welcome-7");
        for key in ["naïve ☃", "tab\tnew", &"long ".repeat(100)] {
            let id = of_key(key);
            assert!(id.len() <= STEP_ID_BYTES_MAX, "{id}");
            assert!(id.bytes().all(|b| (b' '..=b'~').contains(&b)), "{id}");
        }
        assert_ne!(of_key(&"a".repeat(500)), of_key(&"a".repeat(501)));
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
