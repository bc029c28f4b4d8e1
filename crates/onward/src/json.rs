//! Payloads: JSON text, as it is stored.
//!
//! Owns: [`Json`], its size limit, and the canonical form that fingerprints compare. Never keeps
//! a parsed tree: a payload is parsed where a typed value is wanted.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::{Code, Error, codec};

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
    /// `not_serializable` when the value has no JSON form, `payload_too_large` past
    /// [`PAYLOAD_BYTES_MAX`].
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        let text = serde_json::to_string(value)
            .map_err(|source| Error::new(Code::NotSerializable).because(source))?;
        Self::within_limit(text)
    }

    /// Takes a text that is already JSON.
    ///
    /// # Errors
    /// `not_serializable` when it is not JSON, `payload_too_large` past [`PAYLOAD_BYTES_MAX`].
    pub fn parse(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        serde_json::from_str::<serde::de::IgnoredAny>(&text)
            .map_err(|source| Error::new(Code::NotSerializable).because(source))?;
        Self::within_limit(text)
    }

    fn within_limit(text: String) -> Result<Self, Error> {
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
    /// how a number is written (`1`, `1.0`), or in a `null` where the other has nothing.
    pub fn fingerprint(&self) -> Fingerprint {
        match serde_json::from_str::<Value>(&self.0) {
            Ok(value) => {
                let mut text = String::with_capacity(self.0.len());
                write_canonical(&value, &mut text);
                Fingerprint::of(text.as_bytes())
            }
            Err(_) => Fingerprint::of(self.0.as_bytes()),
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

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(_, v)| !v.is_null()).collect();
            fields.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in fields {
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) => write_canonical_number(number, out),
        other => out.push_str(&other.to_string()),
    }
}

/// Whole numbers are written without a fraction, so that `1.0` and `1` are one number. Beyond
/// 2^53 a float no longer holds every whole number, and both forms are kept apart.
fn write_canonical_number(number: &serde_json::Number, out: &mut String) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            out.push_str(&format!("{float:.0}").replace("-0", "0"));
        }
        _ => out.push_str(&number.to_string()),
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

    #[test]
    fn too_large_a_payload_is_refused() {
        let error = Json::of(&"x".repeat(PAYLOAD_BYTES_MAX)).unwrap_err();
        assert_eq!(error.code(), Code::PayloadTooLarge);
    }
}
