//! Payloads: JSON text, as it is stored.
//!
//! Owns: [`Json`], its size limit, and the canonical form that fingerprints compare. Never keeps
//! a parsed tree: a payload is parsed where a typed value is wanted.

mod canonical;
mod finite;
mod held;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::{Code, Error, codec};

thread_local! {
    /// Where a payload is written before its length is known.
    static WRITTEN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The longest text whose room is kept for the next: most payloads are shorter, and a thread keeps one.
const WRITTEN_BYTES_KEPT: usize = 64 * 1024;

/// A JSON text: an input, a step's result, an output, a failure's details.
///
/// ```
/// use onward::Json;
///
/// let json = Json::of(&vec![1, 2, 3])?;
/// assert_eq!(json.as_str(), "[1,2,3]");
/// assert_eq!(json.read::<Vec<u8>>()?, [1, 2, 3]);
/// # Ok::<(), onward::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// The JSON text of a value.
    ///
    /// # Errors
    /// `not_serializable` when the value has no JSON form, or one that most readers cannot hold, as of NaN or
    /// of 101 lists in one another; `payload_too_large` past [`PAYLOAD_BYTES_MAX`].
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        // Taken and not borrowed: a value may make payloads of its parts while it is written.
        // While the thread ends there is none.
        let mut text = WRITTEN.try_with(Cell::take).unwrap_or_default();
        text.clear();
        let written = Self::write(value, &mut text);
        if text.capacity() <= WRITTEN_BYTES_KEPT {
            let _ = WRITTEN.try_with(|written| written.set(text));
        }
        written
    }

    fn write<T: Serialize + ?Sized>(value: &T, text: &mut Vec<u8>) -> Result<Self, Error> {
        let no_json = || Error::new(Code::NotSerializable);
        let seen = held::Seen::default();
        let mut writer = serde_json::Serializer::with_formatter(&mut *text, held::Watch(&seen));
        value.serialize(&mut writer).map_err(|source| no_json().because(source))?;
        let text = std::str::from_utf8(text).map_err(|source| no_json().because(source))?;
        // Most values are looked at no further.
        if seen.null.get() {
            finite::check(value).map_err(|source| no_json().because(source))?;
        }
        if seen.raw.get() {
            held::check(text).map_err(|source| no_json().because(source))?;
        }
        Self::within_limit(text)
    }

    /// Takes a text that is already JSON.
    ///
    /// # Errors
    /// `not_serializable` when it is not JSON, or holds what most readers cannot, as the number `1e400` or
    /// 101 lists in one another; `payload_too_large` past [`PAYLOAD_BYTES_MAX`].
    pub fn parse(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        held::check(&text).map_err(|source| Error::new(Code::NotSerializable).because(source))?;
        Self::within_limit(&text)
    }

    fn within_limit(text: &str) -> Result<Self, Error> {
        if text.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::payload_too_large(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// Takes a text that a store kept; a reader of it finds out whether it is still JSON.
    pub fn stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value, as a type of yours.
    ///
    /// # Errors
    /// `type_mismatch` when the text does not fit the type, `payload_unreadable` when it is still
    /// encoded, because this client has no codec for it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(&self.0).map_err(|source| match codec::describe(self) {
            // A payload that was not decoded fits no type of its own.
            Some(how) => Error::new(Code::PayloadUnreadable).about(format!("it is {how}")),
            None => Error::type_mismatch(std::any::type_name::<T>(), &source),
        })
    }

    /// What two inputs are compared by: equal for texts that differ only in the order of keys, in
    /// how a number is written (`1`, `1.0`), or in a `null` where the other has nothing. Each digit of
    /// a long number counts.
    pub fn fingerprint(&self) -> Fingerprint {
        match canonical::canonical(&self.0) {
            Some(text) => Fingerprint::of(text.as_bytes()),
            None => Fingerprint::of(self.0.as_bytes()),
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&serde_json::value::RawValue>(&self.0) {
            Ok(raw) => raw.serialize(serializer),
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Ok(Self(raw.get().into()))
    }
}

/// The hash of a canonical input.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(text: &str) -> Fingerprint {
        Json::parse(text).unwrap().fingerprint()
    }

    #[test]
    fn writing_style_does_not_change_a_fingerprint() {
        let base = fingerprint(r#"{"a":1,"b":[1,2]}"#);
        assert_eq!(base, fingerprint(r#"{ "b": [1.0, 2], "a": 1.0, "c": null }"#));
        assert_eq!(fingerprint("0"), fingerprint("-0.0"));
    }

    #[test]
    fn meaning_changes_a_fingerprint() {
        let base = fingerprint(r#"{"a":1,"b":[1,2]}"#);
        assert_ne!(base, fingerprint(r#"{"a":1,"b":[2,1]}"#));
        assert_ne!(base, fingerprint(r#"{"a":1,"b":[1,2,null]}"#));
        assert_ne!(base, fingerprint(r#"{"a":"1","b":[1,2]}"#));
        assert_ne!(fingerprint("-10"), fingerprint("10"));
        assert_ne!(fingerprint("[\"a,\"]"), fingerprint("[\"a\",\"\"]"));
    }

    /// Taken from what stores have: a fingerprint that moves would refuse the repeat of a start.
    #[test]
    fn fingerprints_are_what_they_were() {
        let golden = [
            ("0", "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"),
            ("-0.0", "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"),
            ("1", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
            ("1.0", "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"),
            ("-1.0", "1bad6b8cf97131fceab8543e81f7757195fbb1d36b376ee994ad1cf17699c464"),
            ("1e3", "40510175845988f13f6162ed8526f0b09f73384467fa855e1e79b44a56562a58"),
            ("0.1", "14be4b45f18e0d8c67b4f719b5144eee88497e413709d11d85b096d8e2346310"),
            (
                "0.10000000000000001",
                "14be4b45f18e0d8c67b4f719b5144eee88497e413709d11d85b096d8e2346310",
            ),
            (
                "0.30000000000000004",
                "06bad31060c1212ae832de4c031f7b31e3b48aed57858294478cb19450cf34ca",
            ),
            ("123456.789", "df16e278bec8bd79b90a36552e05a4179549b0870da68fbe2580a8a920597ef4"),
            (
                "9007199254740991.0",
                "bd94269df4e35f2cddd901138a53f0983c638c770381e04dbfa3606ebdfc2278",
            ),
            (
                "9007199254740992.0",
                "0ad10bbdda8db20784fb3edc08722b255b8da67f2a12bb58ec32994ba4a3596e",
            ),
            (
                "9007199254740993",
                "a1c367c29158357e62a3ff5d3e800fb7698a22396439dbc0a9d4929322afd35d",
            ),
            (
                "18446744073709551615",
                "2cdb26265b4dc65e3b44d694f121fd6de99b9e4b8ae7f08d84bfa9537635ae43",
            ),
            (
                "-9223372036854775808",
                "85386477f3af47e4a0b308ee3b3a688df16e8b2228105dd7d4dcd42a9807cb78",
            ),
            ("1e30", "7412d94bdf30adfa71080e057185e1a8de86e2e99a8350b011df8ac41ed5a6e3"),
            (
                "1000000000000000000000000000000",
                "7412d94bdf30adfa71080e057185e1a8de86e2e99a8350b011df8ac41ed5a6e3",
            ),
            (
                "1.7976931348623157e308",
                "c2784e1abd6317452708f3fbf9641c16b959561bc621a1d408c23a20aa2cb585",
            ),
            ("5e-324", "c46e7ca1be4c8734f373a56530787288fa2058d73d07855e9247e949f811a42a"),
            (
                "3.141592653589793",
                "f0a1b7875844c3ae0d28f3cc44e9a6241da33e2623a69f0a71263158dffb4e87",
            ),
            (
                r#"{"b":[1.0,2.50],"a":"9999999999999999999999","c":null}"#,
                "0b2bafaed805873b8e12f3f9bbe8d3fc668e762fec4d6645f44af33da6f2a749",
            ),
        ];
        for (text, expected) in golden {
            assert_eq!(fingerprint(text).to_string(), expected, "{text}");
        }
    }

    /// A float holds sixteen digits.
    #[test]
    fn each_digit_of_a_long_number_counts() {
        for (one, other) in [
            ("123456789012345678901234567890", "123456789012345678901234567891"),
            ("-123456789012345678901234567890", "123456789012345678901234567890"),
            ("18446744073709551616", "18446744073709551617"),
            ("-9223372036854775809", "-9223372036854775810"),
            ("123456789012345678901234567890e3", "123456789012345678901234567891e3"),
            ("0.12345678901234567890", "0.12345678901234567891"),
            ("1.00000000000000000001", "1"),
            ("1.5e-20000000000", "123456789012345678901234567890"),
        ] {
            assert_ne!(fingerprint(one), fingerprint(other), "{one} {other}");
            let within = |number| format!(r#"{{"a":[{{"\"9":{number}}},7.0],"b":"1"}}"#);
            assert_ne!(fingerprint(&within(one)), fingerprint(&within(other)), "{one} {other}");
        }
    }

    #[test]
    fn long_numbers_that_are_equal_are_one() {
        for (one, other) in [
            ("123456789012345678901234567890", "123456789012345678901234567890.0"),
            ("123456789012345678901234567890", "1.23456789012345678901234567890E+29"),
            ("0.123456789012345678900", "1234567890123456789e-19"),
            ("1000000000000000000000000000000", "1e30"),
            ("0.1", "0.10000000000000001"),
        ] {
            assert_eq!(fingerprint(one), fingerprint(other), "{one} {other}");
        }
        // What stands beside one is written as ever.
        let long = "123456789012345678901234567890";
        let base = fingerprint(&format!(r#"{{"a":1,"b":[{long},2.5],"c":"7, 8"}}"#));
        let same = format!(r#"{{"c":"7, 8","b":[{long}, 2.50],"a":1.0,"d":null}}"#);
        assert_eq!(base, fingerprint(&same));
    }

    #[test]
    fn a_nul_in_a_string_survives() {
        let json = Json::of("a\0b").unwrap();
        assert_eq!(json.read::<String>().unwrap(), "a\0b");
        assert!(!json.as_str().contains('\0'));
    }

    /// What it says is stored and shown to people who may not see payloads.
    #[test]
    fn a_misfit_is_told_without_the_value() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Kind {
            Debit,
        }
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Card {
            #[expect(dead_code, reason = "it is read and not looked at")]
            number: u32,
            #[expect(dead_code, reason = "it is read and not looked at")]
            kind: Kind,
        }
        for text in [
            r#"{"number":"4111","kind":"debit"}"#,
            r#"{"number":41114111411141,"kind":"debit"}"#,
            r#"{"number":-4111,"kind":"debit"}"#,
            r#"{"number":1,"kind":"4111"}"#,
            r#"{"number":1,"kind":"debit","4111":1}"#,
            r#"["4111"]"#,
            r#""4111""#,
            "4111",
        ] {
            let error = Json::parse(text).unwrap().read::<Card>().unwrap_err();
            assert_eq!(error.code(), Code::TypeMismatch);
            let source = std::error::Error::source(&error).map(ToString::to_string);
            let said = format!("{error} {error:?} {source:?}");
            assert!(!said.contains("4111"), "{said}");
            assert!(said.contains("Card: it does not fit at line 1 column"), "{said}");
        }
        let missing = Json::parse(r#"{"kind":"debit"}"#).unwrap().read::<Card>().unwrap_err();
        let said = missing.detail();
        assert!(said.ends_with("at line 1 column 16, the field `number` is missing"), "{said}");
    }

    /// Fails where what is left of one payload gets into the next.
    #[test]
    fn payloads_do_not_mix() {
        struct Nested;
        impl Serialize for Nested {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let inner = Json::of(&[1, 2]).map_err(serde::ser::Error::custom)?;
                serializer.serialize_str(inner.as_str())
            }
        }
        let half_way = [std::collections::HashMap::from([((1, 2), 3)])];
        assert_eq!(Json::of(&half_way).unwrap_err().code(), Code::NotSerializable);
        assert_eq!(Json::of(&("a", Nested)).unwrap().as_str(), r#"["a","[1,2]"]"#);
        let long = "x".repeat(2 * WRITTEN_BYTES_KEPT);
        assert_eq!(Json::of(&long).unwrap().as_str().len(), long.len() + 2);
        assert_eq!(Json::of(&1).unwrap().as_str(), "1");
    }

    /// Fails where what most readers cannot hold gets in, by whichever way, or where a NaN becomes `null`.
    #[test]
    fn what_a_value_cannot_hold_is_refused_at_every_door() {
        #[derive(Serialize)]
        enum Part {
            Point { x: Option<f32>, y: f64 },
            Pair(f64, ()),
            One(Vec<f64>),
        }
        let deep = |depth: usize| {
            let mut value = serde_json::json!(null);
            (0..depth).for_each(|_| value = serde_json::json!([value]));
            Json::of(&value)
        };
        let raw = |text: &str| serde_json::value::RawValue::from_string(text.to_owned()).unwrap();
        let refused = |json: Result<Json, Error>| json.unwrap_err().code() == Code::NotSerializable;
        assert!(refused(Json::of(&f64::NAN)) && refused(Json::of(&[1.0, f64::INFINITY])));
        assert!(refused(Json::of(&Some(f32::NEG_INFINITY))));
        assert!(refused(Json::of(&Part::Point { x: Some(f32::NAN), y: 0.0 })));
        assert!(refused(Json::of(&Part::Pair(f64::NAN, ()))));
        assert!(refused(Json::of(&std::collections::BTreeMap::from([(
            1,
            Part::One(vec![f64::NAN])
        )]))));
        assert!(refused(deep(101)) && deep(100).is_ok());
        assert!(refused(Json::of(&raw("1e400"))) && refused(Json::of(&[Json::stored("[1e400]")])));
        assert!(
            refused(Json::parse("1e400"))
                && refused(Json::parse("[".repeat(101) + &"]".repeat(101)))
        );
        // What is read back was stored before: that door is open.
        assert!(serde_json::from_str::<Vec<Json>>("[1e400]").is_ok());
        for fits in [Part::Point { x: None, y: 1.5 }, Part::Pair(0.0, ()), Part::One(vec![])] {
            let json = Json::of(&fits).unwrap();
            assert_eq!(json.as_str(), serde_json::to_string(&fits).unwrap());
        }
        assert_eq!(Json::of(&raw("[ 1.50 ]")).unwrap().as_str(), "[ 1.50 ]");
    }

    #[test]
    fn too_large_a_payload_is_refused() {
        let error = Json::of(&"x".repeat(PAYLOAD_BYTES_MAX)).unwrap_err();
        assert_eq!(error.code(), Code::PayloadTooLarge);
    }
}
