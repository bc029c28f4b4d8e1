//! The one form of a payload that fingerprints compare.
//!
//! Owns: how values are written so that equal ones are written alike. Never changes a form, since
//! fingerprints are stored, and never loses a digit: what a float does not hold is written out. The
//! store on Postgres writes the same (`sql/start_sql.sql`).

use std::fmt;
use std::ops::Range;

use serde_json::{Number, Value};

/// Below this a float holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Digits that a float is written with at the most.
const FLOAT_DIGITS_MAX: usize = 17;

/// Bytes of a number up to which it fits 64 bits, or has no more digits than any float keeps: these
/// are not looked at any closer.
const PLAIN_BYTES_MAX: usize = 16;

/// The canonical form of a JSON text; nothing where it cannot be read.
pub(super) fn canonical(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mut out = String::with_capacity(text.len());
    if numbers(text).any(|place| beyond_float(&text[place]).is_some()) {
        let (placed, numbers) = placed(text);
        write(&serde_json::from_str(&placed).ok()?, Some(&numbers), &mut out);
    } else {
        write(&value, None, &mut out);
    }
    Some(out)
}

/// The text with each number replaced by its place among them, and those: what is parsed as a number
/// has lost what a float does not hold.
fn placed(text: &str) -> (String, Vec<&str>) {
    let (mut placed, mut all, mut from) = (String::with_capacity(text.len()), Vec::new(), 0);
    for Range { start, end } in numbers(text) {
        placed.push_str(&text[from..start]);
        placed.push_str(&all.len().to_string());
        all.push(&text[start..end]);
        from = end;
    }
    placed.push_str(&text[from..]);
    (placed, all)
}

/// Where the numbers of a JSON text are, in order. Digits in a string are none.
fn numbers(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    let (bytes, mut at) = (text.as_bytes(), 0);
    let in_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    std::iter::from_fn(move || {
        while let Some(byte) = bytes.get(at) {
            let start = at;
            match byte {
                b'"' => at = after_string(bytes, start),
                b'-' | b'0'..=b'9' => {
                    at += bytes[start..].iter().take_while(in_number).count();
                    return Some(start..at);
                }
                _ => at += 1,
            }
        }
        None
    })
}

/// Where the string that begins at `start` is over.
fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(b'"') | None => return at + 1,
            Some(_) => at += 1,
        }
    }
}

/// `numbers`: what the numbers of `value` are the places of.
fn write(value: &Value, numbers: Option<&[&str]>, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(_, v)| !v.is_null()).collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in fields {
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write(value, numbers, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write(item, numbers, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => match numbers {
            Some(numbers) => write_placed(number, numbers, out),
            None => write_number(number, out),
        },
        other => out.push_str(&other.to_string()),
    }
}

fn write_placed(place: &Number, numbers: &[&str], out: &mut String) {
    let place = place.as_u64().and_then(|place| usize::try_from(place).ok());
    let Some(text) = place.and_then(|place| numbers.get(place)) else { return };
    match (beyond_float(text), serde_json::from_str(text)) {
        (Some(exact), _) => out.push_str(&exact),
        (None, Ok(number)) => write_number(&number, out),
        (None, Err(_)) => out.push_str(text),
    }
}

/// Whole numbers are written without a fraction, so that `1.0` and `1` are one number. Beyond
/// 2^53 a float no longer holds every whole number, and both forms are kept apart.
fn write_number(number: &Number, out: &mut String) {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            out.push_str(&format!("{float:.0}").replace("-0", "0"));
        }
        _ => out.push_str(&number.to_string()),
    }
}

/// Every digit of a number that neither 64 bits nor a float hold. One that has no more digits than floats
/// are written with is taken for the float, as it always was.
fn beyond_float(text: &str) -> Option<String> {
    if text.len() <= PLAIN_BYTES_MAX {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    // What is too small for a float is nothing.
    if !number.is_f64() || number.as_f64() == Some(0.0) {
        return None;
    }
    let (own, float) = (Decimal::of(text), Decimal::of(&number.to_string()));
    (own != float && own.digits.len() > FLOAT_DIGITS_MAX).then(|| own.to_string())
}

/// A number other than 0, digit by digit.
#[derive(PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    /// Without zeros at either end.
    digits: String,
    /// The power of ten that they are multiplied by.
    exponent: i64,
}

impl Decimal {
    fn of(text: &str) -> Self {
        let unsigned = text.trim_start_matches('-');
        let (digits, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        // Both are less than a payload has bytes.
        let moved = (all.len() - digits.len()) as i64 - fraction.len() as i64;
        Self {
            is_negative: unsigned.len() < text.len(),
            digits: digits.trim_start_matches('0').to_owned(),
            exponent: exponent.parse::<i64>().unwrap_or(0).saturating_add(moved),
        }
    }
}

/// A whole number as it is; a fraction as its digits and where its point is.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, digits) = (if self.is_negative { "-" } else { "" }, &self.digits);
        match usize::try_from(self.exponent) {
            Ok(zeros) => write!(f, "{sign}{digits}{}", "0".repeat(zeros)),
            Err(_) => write!(f, "{sign}{digits}e{}", self.exponent),
        }
    }
}
