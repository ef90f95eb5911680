//! Times as RFC 3339 text.

use std::fmt;
use std::str::FromStr;

use longhaul_domain::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use utoipa::ToSchema;

/// A time in UTC with microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime, examples("2026-03-01T08:30:00Z"))]
pub struct Moment(pub Timestamp);

#[cfg(feature = "client")]
impl Moment {
    /// The time by the clock of this machine. Use it only to show people how long ago something
    /// was.
    pub fn now() -> Self {
        Self(Timestamp::from_micros(
            jiff::Timestamp::now().as_microsecond(),
        ))
    }
}

impl From<Timestamp> for Moment {
    fn from(moment: Timestamp) -> Self {
        Self(moment)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Stores reach one day beyond jiff's range; such a time is written as jiff's last.
        let written =
            jiff::Timestamp::from_microsecond(self.0.as_micros()).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{written}")
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read: jiff::Timestamp = text.parse().map_err(|_| {
            format!("{text:?} is not a time; allowed: RFC 3339, 2026-03-01T08:30:00Z")
        })?;
        Ok(Self(Timestamp::from_micros(read.as_microsecond())))
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        String::deserialize(reader)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_any_offset_and_written_in_utc() {
        for (text, written) in [
            ("2026-03-01T08:30:00Z", "2026-03-01T08:30:00Z"),
            ("2026-03-01T10:30:00+02:00", "2026-03-01T08:30:00Z"),
            (
                "2026-03-01T08:30:00.123456789Z",
                "2026-03-01T08:30:00.123456Z",
            ),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().to_string(), written);
        }
    }

    #[test]
    fn an_invalid_time_is_refused_with_an_example() {
        for text in [
            "",
            "tomorrow",
            "2026-03-01",
            "2026-03-01T08:30:00",
            "2026-02-30T08:30:00Z",
        ] {
            assert!(
                text.parse::<Moment>()
                    .unwrap_err()
                    .contains("2026-03-01T08:30:00Z"),
                "{text}"
            );
        }
    }

    #[test]
    fn the_last_times_of_a_store_can_be_written() {
        let last = Moment(Timestamp::default().plus_ms(u64::MAX));
        assert!(last.to_string().starts_with("9999-12-30T"));
    }
}
