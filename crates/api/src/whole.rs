//! Whole numbers in JSON. `3.0` is one as well: some languages write all numbers that way.

use std::fmt;
use std::marker::PhantomData;

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// Reads an optional whole number that fits `T`. For `#[serde(deserialize_with)]`.
pub(crate) fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    reader: D,
) -> Result<Option<T>, D::Error> {
    reader.deserialize_option(Whole(PhantomData))
}

struct Whole<T>(PhantomData<T>);

impl<'de, T: TryFrom<u64>> Visitor<'de> for Whole<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::any::type_name::<T>())
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        T::try_from(value)
            .map(Some)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        let refuse = || E::invalid_value(Unexpected::Signed(value), &self);
        let fits = u64::try_from(value)
            .ok()
            .and_then(|value| T::try_from(value).ok());
        fits.map(Some).ok_or_else(refuse)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        let refuse = || E::invalid_type(Unexpected::Float(value), &self);
        if value.fract() != 0.0 {
            return Err(refuse());
        }

        // A conversion by text rounds nothing.
        let whole: Option<u64> = format!("{value:.0}").parse().ok();
        let fits = whole.and_then(|value| T::try_from(value).ok());
        fits.map(Some).ok_or_else(refuse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<u8>, String> {
        whole(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn every_notation_of_a_whole_number_is_accepted() {
        for (text, wanted) in [
            ("3", Some(3)),
            ("3.0", Some(3)),
            ("2.5e1", Some(25)),
            ("0", Some(0)),
            ("null", None),
        ] {
            assert_eq!(read(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn other_values_are_refused() {
        for text in [
            "3.5", "-1", "-1.0", "256", "256.0", "1e300", "\"3\"", "true", "[]",
        ] {
            assert!(
                read(text).is_err_and(|error| error.contains("u8")),
                "{text}"
            );
        }
    }
}
