//! What of JSON a payload may hold: what `serde_json::Value` can, so that whoever reads it can.
//!
//! Owns: [`check`] of a text, and [`Watch`], which sees while a value is written what has to be looked at once
//! more. Never keeps what it reads.
//!
//! JSON itself has no limits. A number beyond a float, as `1e400`, half of a surrogate pair, or a thousand arrays in
//! one another are JSON to the one who writes them, and an error to most who read them.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::ser::Formatter;

use crate::limits::PAYLOAD_DEPTH_MAX;

/// Whether a text is JSON that can be held.
pub(super) fn check(text: &str) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    Discard { left: PAYLOAD_DEPTH_MAX }.deserialize(&mut reader)?;
    reader.end()
}

/// Reads a value whole, and drops it. Unlike `IgnoredAny`, which looks at no number and no string.
#[derive(Clone, Copy)]
struct Discard {
    /// How many more arrays and objects there may be in one another.
    left: u32,
}

impl Discard {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        let left = self.left.checked_sub(1).ok_or_else(|| E::custom(TooDeep))?;
        Ok(Self { left })
    }
}

impl<'de> DeserializeSeed<'de> for Discard {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Discard {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let inner = self.inner()?;
        while fields.next_entry_seed(inner, inner)?.is_some() {}
        Ok(())
    }
}

/// What was seen while a value was written.
#[derive(Default)]
pub(super) struct Seen {
    depth: Cell<u32>,
    /// A `null` may have been a float that is no number: serde_json writes that so.
    pub(super) null: Cell<bool>,
    /// A text that was JSON before was put in as it is.
    pub(super) raw: Cell<bool>,
}

/// Writes compact JSON, as serde_json does by itself, and takes note.
pub(super) struct Watch<'a>(pub(super) &'a Seen);

impl Watch<'_> {
    fn enter(&self) -> io::Result<()> {
        let depth = self.0.depth.get() + 1;
        self.0.depth.set(depth);
        if depth <= PAYLOAD_DEPTH_MAX { Ok(()) } else { Err(io::Error::other(TooDeep)) }
    }

    fn leave(&self) {
        self.0.depth.set(self.0.depth.get().saturating_sub(1));
    }
}

impl Formatter for Watch<'_> {
    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter()?;
        writer.write_all(b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.leave();
        writer.write_all(b"]")
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter()?;
        writer.write_all(b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.leave();
        writer.write_all(b"}")
    }

    fn write_null<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.null.set(true);
        writer.write_all(b"null")
    }

    fn write_raw_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        self.0.raw.set(true);
        writer.write_all(fragment.as_bytes())
    }
}

#[derive(Debug)]
struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more than {PAYLOAD_DEPTH_MAX} arrays and objects are in one another")
    }
}

impl std::error::Error for TooDeep {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_held_where_a_value_is() {
        for (text, is_held) in [
            ("1e308", true),
            ("1e309", false),
            ("-1e400", false),
            ("[1,{\"a\":1e400}]", false),
            ("123456789012345678901234567890", true),
            (r#""\ud83d\ude00\u0000""#, true),
            (r#""\ud83d""#, false),
            (r#"{"\ud83d":1}"#, false),
            (r#"{"a":null,"a":[true,false,"",0,-1,0.5]}"#, true),
            ("NaN", false),
            ("[1,]", false),
            ("1 2", false),
            ("", false),
        ] {
            assert_eq!(check(text).is_ok(), is_held, "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(text).is_ok(), is_held, "{text}");
        }
    }

    /// Within what the API puts around it, a value can still be held.
    #[test]
    fn depth_is_bounded() {
        let around = "[".repeat(20) + "{}" + &"]".repeat(20);
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let nested = |depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
            let most = PAYLOAD_DEPTH_MAX as usize;
            check(&nested(most)).unwrap();
            assert!(check(&nested(most + 1)).is_err());
            let text = around.replace("{}", &nested(most));
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
    }
}
