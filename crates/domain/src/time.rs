//! Timestamps: microseconds since 1970 in UTC, an integer in every database.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::Invalid;

/// A moment, in microseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// 9999-12-31T23:59:59Z: the last moment that every database and every JSON client can write.
const LAST_MICROS: i64 = 253_402_300_799_000_000;

impl Timestamp {
    /// The moment this many microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This moment moved by `ms` milliseconds, stopping at the last moment that can be stored.
    pub fn plus_ms(self, ms: u64) -> Self {
        let micros = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        Self(self.0.saturating_add(micros).min(LAST_MICROS))
    }

    /// This moment moved back by `ms` milliseconds.
    pub fn minus_ms(self, ms: u64) -> Self {
        let micros = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        Self(self.0.saturating_sub(micros))
    }

    /// Microseconds from `earlier` to this moment, zero when it is later.
    pub fn micros_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Refuses moments before 1970 and after 9999, which not every database can write.
    pub fn check(self, field: &'static str) -> Result<(), Invalid> {
        if (0..=LAST_MICROS).contains(&self.0) {
            return Ok(());
        }

        Err(Invalid::new(
            field,
            format!("is {} microseconds from 1970", self.0),
            "a time from 1970-01-01 to 9999-12-31",
        ))
    }
}

impl From<SystemTime> for Timestamp {
    /// A time before 1970, or too late for a database, becomes a moment that [`Timestamp::check`]
    /// refuses.
    fn from(moment: SystemTime) -> Self {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        match moment.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self(micros(since)),
            Err(before) => Self(-micros(before.duration())),
        }
    }
}

/// The duration in whole milliseconds. One that is too long becomes the largest number, which every
/// bound refuses.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The clock of a process that is its own store. Databases use their own clock.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Timestamp;

    /// How far this clock is ahead of the machine's, because that one was set back.
    fn lead(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_time_becomes_the_same_moment() {
        let epoch = SystemTime::UNIX_EPOCH;
        let second = Duration::from_micros(1_000_001);
        assert_eq!(
            Timestamp::from(epoch + second),
            Timestamp::from_micros(1_000_001)
        );
        assert!(Timestamp::from(epoch - second).check("runAt").is_err());
        assert_eq!(Timestamp::from(epoch).check("runAt"), Ok(()));
    }
}
