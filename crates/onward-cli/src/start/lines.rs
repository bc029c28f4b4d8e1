//! Reading items: one JSON value per line, in bounded memory.
//!
//! Owns: what a line is refused for before the library sees it, and which line an item came from.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use onward::Code;
use onward::limits::PAYLOAD_BYTES_MAX;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Bytes of a line that are read: room for a payload at its limit, and blanks around it. A longer
/// line is refused without being kept.
const LINE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;

/// Bytes of a number that a float is written with, without a sign: its key is that of the float, so that
/// `1.50` and `1.5` are one.
const FLOAT_BYTES_MAX: usize = 18;

/// One good line.
#[derive(Debug)]
pub(super) struct Item {
    /// Its number, from 1.
    pub(super) line: u64,
    input: Box<RawValue>,
    /// Empty when no field was asked for; a line that lacks the field never becomes an item.
    pub(super) key: String,
}

impl Item {
    /// What the run is started with.
    pub(super) fn input(&self) -> &RawValue {
        &self.input
    }
}

/// A line that is no item.
#[derive(Debug)]
pub(super) struct BadLine {
    /// Its number, from 1.
    pub(super) line: u64,
    /// Why.
    pub(super) why: String,
}

/// An item is written as its input, text for text.
impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.input.serialize(serializer)
    }
}

/// The lines of a file.
pub(super) struct Lines<R> {
    from: R,
    key_field: Option<String>,
    line: u64,
    bytes_read: u64,
    /// The bytes of the present line, kept to be filled again.
    bytes: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R, key_field: Option<String>) -> Self {
        Self { from, key_field, line: 0, bytes_read: 0, bytes: Vec::new() }
    }

    /// The next line that is not blank.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<Item, BadLine>>> {
        loop {
            self.bytes.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            let read = self.from.by_ref().take(limit).read_until(b'\n', &mut self.bytes)?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            self.bytes_read += read as u64;
            if read > LINE_BYTES_MAX {
                self.bytes_read += self.from.skip_until(b'\n')? as u64;
                return Ok(Some(Err(self.bad(too_long()))));
            }
            if !self.bytes.trim_ascii().is_empty() {
                return Ok(Some(self.item().map_err(|why| self.bad(why))));
            }
        }
    }

    /// How far into the file the last line reached.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn item(&self) -> Result<Item, String> {
        let text = str::from_utf8(&self.bytes).map_err(|error| format!("not UTF-8: {error}"))?;
        let input: Box<RawValue> =
            serde_json::from_str(text.trim()).map_err(|error| format!("not JSON: {error}"))?;
        let key = match &self.key_field {
            Some(field) => key_of(&input, field)?,
            None => String::new(),
        };
        Ok(Item { line: self.line, input, key })
    }

    fn bad(&self, why: String) -> BadLine {
        BadLine { line: self.line, why }
    }
}

/// The key in this field, as a text. A field is a name, or names joined by dots.
fn key_of(input: &RawValue, field: &str) -> Result<String, String> {
    // A field whose own name has a dot in it comes before a path.
    let found = inside(input, field)
        .or_else(|| field.split('.').try_fold(input, |at, name| inside(at, name)));
    let Some(found) = found else { return Err(format!("it has no field {field:?}")) };
    match serde_json::from_str(found.get()) {
        Ok(Value::String(key)) if !key.is_empty() => Ok(key),
        // A float has lost the digits that a number has beyond these.
        Ok(Value::Number(key)) if key.is_f64() && found.get().len() > FLOAT_BYTES_MAX => {
            Ok(found.get().to_owned())
        }
        Ok(Value::Number(key)) => Ok(key.to_string()),
        _ => Err(format!("its field {field:?} is neither a number nor a text")),
    }
}

/// The field of this name, as it is written.
fn inside<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(value.get()).ok()?;
    fields.get(name).copied()
}

/// What is wrong with a line that cannot be an input whatever it says.
fn too_long() -> String {
    let code = Code::PayloadTooLarge;
    format!("{code}: longer than {LINE_BYTES_MAX} bytes. {}", code.advice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, field: &str) -> Vec<Result<(u64, String), u64>> {
        let mut lines = Lines::new(text.as_bytes(), Some(field.to_owned()));
        let mut read = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            read.push(line.map(|item| (item.line, item.key)).map_err(|bad| bad.line));
        }
        read
    }

    #[test]
    fn keys_are_texts_or_numbers_at_a_path() {
        let text = "{\"a\":{\"id\":7}}\n\n{\"a\":{\"id\":\"x\"}}\r\n{\"a.id\":\"dotted\"}";
        let wanted = [Ok((1, "7".into())), Ok((3, "x".into())), Ok((4, "dotted".into()))];
        assert_eq!(read(text, "a.id"), wanted);
    }

    /// A float holds sixteen digits.
    #[test]
    fn long_numbers_are_keys_with_every_digit() {
        let text = "{\"id\":123456789012345678901234567890}\n\
                    {\"id\":123456789012345678901234567891}\n{\"id\":18446744073709551615}\n\
                    {\"id\":1.50}\n{\"id\":-7}\n{\"id\":0,\"id\":1}";
        let keys: Vec<_> = read(text, "id").into_iter().map(|line| line.unwrap().1).collect();
        let wanted = [
            "123456789012345678901234567890",
            "123456789012345678901234567891",
            "18446744073709551615",
            "1.5",
            "-7",
            "1",
        ];
        assert_eq!(keys, wanted);
    }

    #[test]
    fn bad_lines_are_refused_by_number_and_the_others_stay() {
        let text = "{\"id\":1}\n{oops\n{\"no\":2}\n{\"id\":null}\n{\"id\":\"\"}\n{\"id\":2}\n";
        let wanted = [Ok((1, "1".into())), Err(2), Err(3), Err(4), Err(5), Ok((6, "2".into()))];
        assert_eq!(read(text, "id"), wanted);
    }

    #[test]
    fn a_line_past_the_limit_is_refused_and_the_next_is_read() {
        let text = format!("\"{}\"\n{{\"id\":2}}\n", "x".repeat(LINE_BYTES_MAX));
        assert_eq!(read(&text, "id"), [Err(1), Ok((2, "2".into()))]);
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let mut lines = Lines::new(&b"\xff\xfe\n{}\n"[..], None);
        assert!(lines.next().unwrap().unwrap().is_err());
        assert!(lines.next().unwrap().unwrap().is_ok());
    }
}
