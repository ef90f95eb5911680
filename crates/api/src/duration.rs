//! Durations: `30s`, `1h 30m`, or ISO 8601, `PT30S`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};
use longhaul_domain::time::millis;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use utoipa::ToSchema;

/// A duration of whole milliseconds, never negative. A day has 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = "time-span", examples("30s", "PT30S"))]
pub struct WireDuration(pub Duration);

impl WireDuration {
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// In milliseconds, as stores hold it.
    pub fn as_millis(self) -> u64 {
        millis(self.0)
    }
}

impl fmt::Display for WireDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = SignedDuration::try_from(self.0).unwrap_or(SignedDuration::MAX);
        write!(f, "{written}")
    }
}

impl FromStr for WireDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is not a duration; allowed: 30s, 1h 30m, PT30S");
        let span: Span = text.parse().map_err(|_| refuse())?;
        let signed = span
            .to_duration(SpanRelativeTo::days_are_24_hours())
            .map_err(|_| refuse())?;
        let duration = Duration::try_from(signed).map_err(|_| refuse())?;
        let ms = u64::try_from(duration.as_millis()).map_err(|_| refuse())?;
        Ok(Self::from_millis(ms))
    }
}

impl Serialize for WireDuration {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WireDuration {
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
    fn both_notations_are_read_and_iso_8601_is_written() {
        for (text, ms, written) in [
            ("30s", 30_000, "PT30S"),
            ("PT30S", 30_000, "PT30S"),
            ("1h 30m", 5_400_000, "PT1H30M"),
            ("PT1H30M", 5_400_000, "PT1H30M"),
            ("250ms", 250, "PT0.25S"),
            ("2d", 172_800_000, "PT48H"),
            ("P1D", 86_400_000, "PT24H"),
            ("0s", 0, "PT0S"),
        ] {
            let read: WireDuration = text.parse().unwrap();
            assert_eq!(
                (read.as_millis(), read.to_string().as_str()),
                (ms, written),
                "{text}"
            );
        }
    }

    #[test]
    fn an_invalid_duration_is_refused() {
        for text in ["", "30", "-5s", "PT-5S", "soon", "1 month"] {
            assert!(
                text.parse::<WireDuration>().unwrap_err().contains("PT30S"),
                "{text}"
            );
        }
    }
}
