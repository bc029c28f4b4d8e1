//! Whether every float of a value is a number.
//!
//! Owns: a serializer that writes nothing, and fails at a float that JSON cannot say. serde_json writes `null` for
//! it, which is something else to whoever reads it.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// Whether a value has no float that is infinite or no number.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), NotFinite> {
    value.serialize(Finite)
}

/// Why a value is refused.
#[derive(Debug)]
pub(super) struct NotFinite(String);

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFinite {}

impl ser::Error for NotFinite {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(why.to_string())
    }
}

#[derive(Clone, Copy)]
struct Finite;

type Checked = Result<(), NotFinite>;

/// Values without parts.
macro_rules! plain {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, _: $type) -> Checked {
            Ok(())
        })*
    };
}

/// Values whose parts come one by one.
macro_rules! in_parts {
    ($($trait:ident $name:ident),*) => {
        $(impl ser::$trait for Finite {
            type Ok = ();
            type Error = NotFinite;

            fn $name<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
                check(value)
            }

            fn end(self) -> Checked {
                Ok(())
            }
        })*
    };
}

/// Values whose parts have names.
macro_rules! in_fields {
    ($($trait:ident),*) => {
        $(impl ser::$trait for Finite {
            type Ok = ();
            type Error = NotFinite;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, _: &'static str, value: &T) -> Checked {
                check(value)
            }

            fn end(self) -> Checked {
                Ok(())
            }
        })*
    };
}

in_parts!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);
in_fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Finite {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Checked {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
        check(value)
    }

    fn end(self) -> Checked {
        Ok(())
    }
}

impl Serializer for Finite {
    type Ok = ();
    type Error = NotFinite;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    plain!(
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_i128: i128, serialize_u8: u8, serialize_u16: u16,
        serialize_u32: u32, serialize_u64: u64, serialize_u128: u128, serialize_char: char,
        serialize_str: &str, serialize_bytes: &[u8], serialize_unit_struct: &'static str
    );

    fn serialize_f32(self, value: f32) -> Checked {
        self.serialize_f64(f64::from(value))
    }

    fn serialize_f64(self, value: f64) -> Checked {
        if value.is_finite() { Ok(()) } else { Err(NotFinite(format!("JSON has no {value}"))) }
    }

    fn serialize_none(self) -> Checked {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checked {
        check(value)
    }

    fn serialize_unit(self) -> Checked {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Checked {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Checked {
        check(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Checked {
        check(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, NotFinite> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NotFinite> {
        Ok(self)
    }
}
