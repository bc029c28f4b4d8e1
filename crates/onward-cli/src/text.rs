//! Values as people read them: cut, escaped, rounded.
//!
//! Owns: how a payload, a duration and an age look in a table. Never used for `-o json`.

use std::time::Duration;

use onward::{Json, Timestamp};

/// Characters of a payload in a table.
pub(crate) const PAYLOAD_CHARS: usize = 60;

/// A text fit for one line of a terminal: control characters escaped, so that a key or a payload
/// cannot move the cursor or change colours.
pub(crate) fn line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// A text cut to `chars` characters, with a mark where it was cut.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    // Escaping only lengthens, so nothing past the cut is needed.
    let start: String = text.chars().take(chars + 1).collect();
    let text = line(&start);
    if text.chars().count() <= chars {
        return text;
    }
    let mut short: String = text.chars().take(chars.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A payload for a table, or what is known of one that cannot be read.
pub(crate) fn payload(json: &Json) -> String {
    match onward::codec::describe(json) {
        Some(how) => format!("({})", cut(&how, PAYLOAD_CHARS)),
        None => cut(json.as_str(), PAYLOAD_CHARS),
    }
}

/// A duration in one or two units.
pub(crate) fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{:.1}s", duration.as_secs_f64()),
        _ => {
            let whole = humantime::format_duration(Duration::from_secs(duration.as_secs()));
            whole.to_string().split(' ').take(2).collect::<Vec<_>>().join(" ")
        }
    }
}

/// A moment, with how long ago or ahead it is.
pub(crate) fn moment(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("{at} (in {})", duration(at.since(now)))
    } else {
        format!("{at} ({} ago)", duration(now.since(at)))
    }
}

/// A number of things, with its noun.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{s}")
}

/// A number of bytes in one unit.
pub(crate) fn bytes(number: u64) -> String {
    indicatif::BinaryBytes(number).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(line("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(cut("ééééé", 3), "éé…");
        assert_eq!(cut("ééé", 3), "ééé");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let of = |secs| duration(Duration::from_secs_f64(secs));
        assert_eq!(of(0.012), "12ms");
        assert_eq!(of(1.25), "1.2s");
        assert_eq!(of(3_725.0), "1h 2m");
    }
}
