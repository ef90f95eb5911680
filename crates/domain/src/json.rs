//! JSON text that every store keeps exactly.
//!
//! The text is checked once, here, and stored unchanged: numbers keep their digits and objects
//! their order. What a database cannot store exactly (a NUL, half a surrogate pair) and what would
//! slow readers (depth, size, too many keys) is refused with the field's name.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::{bounds, error::Invalid};

/// A checked JSON document, as text. Copies share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks `text`. `field` names it in a refusal.
    pub fn parse(field: &'static str, text: impl Into<String>) -> Result<Self, Invalid> {
        let text = text.into();
        check(field, &text)?;
        Ok(Self(text.into()))
    }

    /// The document of a value, with the same checks.
    pub fn from_value(field: &'static str, value: &impl Serialize) -> Result<Self, Invalid> {
        let refused = |cause: &dyn fmt::Display| {
            Invalid::new(
                field,
                format!("cannot be written: {cause}"),
                "a value that is JSON",
            )
        };

        // Taken, not borrowed: a value may serialise others while it is serialised.
        let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
        serde_json::to_writer(&mut buffer, value).map_err(|cause| refused(&cause))?;
        let text = str::from_utf8(&buffer).map_err(|cause| refused(&cause))?;
        check(field, text)?;
        let json = Self(text.into());

        if buffer.capacity() <= BUFFER_BYTES {
            buffer.clear();
            // A thread that is about to end has no buffer any more.
            let _ = BUFFER.try_with(|cell| cell.set(buffer));
        }

        Ok(json)
    }

    /// Text that was checked before and comes back from a store.
    pub fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The document read as a type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.0)
    }
}

/// The largest buffer that a thread reuses.
const BUFFER_BYTES: usize = 16 * 1024;

thread_local! {
    /// Reused for serialisation, so that a document costs one allocation of its own size.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

fn check(field: &'static str, text: &str) -> Result<(), Invalid> {
    if text.len() > bounds::JSON_BYTES {
        let allowed = format!(
            "at most {} bytes of JSON; store larger things as artifacts",
            bounds::JSON_BYTES
        );
        return Err(Invalid::new(
            field,
            format!("has {} bytes", text.len()),
            allowed,
        ));
    }

    let mut keys_left = bounds::JSON_KEYS;
    let mut reader = serde_json::Deserializer::from_str(text);
    Check {
        depth_left: bounds::JSON_DEPTH,
        keys_left: &mut keys_left,
    }
    .deserialize(&mut reader)
    .and_then(|()| reader.end())
    .map_err(|cause| Invalid::new(field, format!("is refused: {cause}"), "one JSON document"))
}

/// Walks a document without building it, and stops at the first thing that is not allowed.
struct Check<'a> {
    depth_left: usize,
    keys_left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Check<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl Check<'_> {
    fn deeper<E: Error>(&mut self) -> Result<Check<'_>, E> {
        let depth_left = self.depth_left.checked_sub(1).ok_or_else(|| {
            E::custom(format_args!(
                "it is nested deeper than {} levels",
                bounds::JSON_DEPTH
            ))
        })?;

        Ok(Check {
            depth_left,
            keys_left: self.keys_left,
        })
    }

    fn string<E: Error>(text: &str) -> Result<(), E> {
        if text.len() > bounds::JSON_STRING_BYTES {
            let max = bounds::JSON_STRING_BYTES;
            return Err(E::custom(format_args!(
                "a string has {} bytes, more than {max}",
                text.len()
            )));
        }

        if text.contains('\0') {
            return Err(E::custom(
                "a string holds the character U+0000, which databases cannot keep",
            ));
        }

        Ok(())
    }
}

impl<'de> Visitor<'de> for Check<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        Self::string(text)
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.deeper()?)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        // A key is checked like a string.
        while entries
            .next_key_seed(Check {
                depth_left: self.depth_left,
                keys_left: self.keys_left,
            })?
            .is_some()
        {
            *self.keys_left = self.keys_left.checked_sub(1).ok_or_else(|| {
                A::Error::custom(format_args!("it has more than {} keys", bounds::JSON_KEYS))
            })?;
            entries.next_value_seed(self.deeper()?)?;
        }

        Ok(())
    }
}

impl Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        // Text that was written into the database by hand may not be JSON. It is shown as a string,
        // so that one task does not break a whole list.
        match serde_json::from_str::<&serde_json::value::RawValue>(&self.0) {
            Ok(raw) => raw.serialize(writer),
            Err(_) => self.0.serialize(writer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Json::parse("parameters", text)
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn text_is_stored_unchanged() {
        for text in [
            "{\"b\":1, \"a\":1.000}",
            "12345678901234567890123456789.5",
            "\"\u{1F600} '; DROP\"",
            "[]",
            "null",
        ] {
            assert_eq!(Json::parse("parameters", text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_value_may_serialise_another_one() {
        struct Outer;
        impl Serialize for Outer {
            fn serialize<S: serde::Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
                let inner =
                    Json::from_value("inner", &[1, 2]).map_err(serde::ser::Error::custom)?;
                (0, inner, 3).serialize(writer)
            }
        }

        for _ in 0..2 {
            assert_eq!(
                Json::from_value("p", &Outer).unwrap().as_str(),
                "[0,[1,2],3]"
            );
        }
    }

    #[test]
    fn text_that_is_not_json_is_shown_as_a_string() {
        let shown = |text: &str| serde_json::to_string(&[Json::trusted(text)]).unwrap();
        assert_eq!(shown("{\"a\":1.000}"), "[{\"a\":1.000}]");
        assert_eq!(shown("{\"a\":"), "[\"{\\\"a\\\":\"]");
    }

    #[test]
    fn what_a_database_cannot_store_is_refused_by_name() {
        assert!(problem("\"a\\u0000b\"").contains("U+0000"));
        assert!(problem("{\"a\\u0000b\":1}").contains("U+0000"));
        assert!(problem("\"\\ud800\"").starts_with("parameters is refused"));
        assert!(problem("{\"a\":1} x").contains("trailing"));
        assert!(problem("").contains("EOF"));
    }

    #[test]
    fn depth_keys_strings_and_size_are_bounded() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Json::parse("parameters", nested(64)).is_ok());
        assert!(problem(&nested(200)).contains("deeper than 64"));
        assert!(problem(&format!("\"{}\"", "x".repeat(65 * 1024))).contains("string has"));
        let wide: Vec<String> = (0..10_001).map(|n| format!("\"{n}\":0")).collect();
        assert!(problem(&format!("{{{}}}", wide.join(","))).contains("10000 keys"));
        assert!(problem(&format!("[{}0]", "1,".repeat(150 * 1024))).contains("artifacts"));
    }
}
