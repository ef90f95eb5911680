//! Whole numbers as JSON has them: `3.0` is one, too, and some languages write all numbers so.

use std::fmt;
use std::marker::PhantomData;

use serde::{
    Deserializer,
    de::{Error, Unexpected, Visitor},
};

/// A number without a fraction that fits, or none. For `#[serde(deserialize_with)]`.
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
        // Written out, so that nothing is rounded on the way.
        let text = (value.fract() == 0.0).then(|| format!("{value:.0}"));
        let fits = text
            .and_then(|text| text.parse().ok())
            .and_then(|value: u64| T::try_from(value).ok());
        fits.map(Some)
            .ok_or_else(|| E::invalid_type(Unexpected::Float(value), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<u8>, String> {
        whole(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_number_is_one_however_it_is_written() {
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
    fn everything_else_is_refused() {
        for text in [
            "3.5", "-1", "-1.0", "256", "256.0", "1e300", "\"3\"", "true", "[]",
        ] {
            assert!(read(text).is_err_and(|told| told.contains("u8")), "{text}");
        }
    }
}
