//! Identities: tasks, nodes and leases.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::time::Timestamp;

/// The identity of a task, a UUIDv7: ids sort by the time of submission.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Uuid);

/// The identity of a node: random for each start of a process, whatever its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub Uuid);

impl NodeId {
    /// No node.
    pub const NONE: Self = Self(Uuid::nil());
}

/// The identity of a file that a task made: random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArtifactId(pub Uuid);

/// The secret that a claim hands out. It is valid for one attempt and never printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseToken(pub Uuid);

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(…)")
    }
}

/// Makes growing task ids, so that tasks of one batch keep their order even within a millisecond.
#[derive(Debug, Default, Clone)]
pub struct TaskIdSequence {
    last: u128,
}

/// The free bits of a UUIDv7 below its time: 12 after the version and 62 after the variant.
const FREE_BITS: u32 = 74;

impl TaskIdSequence {
    /// The next id. `now` gives the time part and `random` the gap to the id before.
    pub fn next_id(&mut self, now: Timestamp, random: u64) -> TaskId {
        let millis = (now.as_micros().max(0) / 1_000) as u128;
        let fresh = (millis << FREE_BITS) | (u128::from(random) << 8);
        let gap = 1 + u128::from(random & 0xffff_ffff);
        self.last = fresh.max(self.last + gap);
        TaskId(layout(self.last))
    }
}

/// Spreads 48 bits of time and 74 free bits around the version and variant fields.
fn layout(value: u128) -> Uuid {
    let low = value & ((1 << 62) - 1);
    let middle = (value >> 62) & 0xfff;
    let millis = (value >> FREE_BITS) & ((1 << 48) - 1);
    Uuid::from_u128((millis << 80) | (0x7 << 76) | (middle << 64) | (0b10 << 62) | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_within_one_millisecond_and_across_clock_steps_back() {
        let mut sequence = TaskIdSequence::default();
        let now = Timestamp::from_micros(1_700_000_000_000_000);
        let earlier = Timestamp::from_micros(1_600_000_000_000_000);
        let mut ids: Vec<TaskId> = (0..1_000)
            .map(|n| sequence.next_id(now, n * 7_919))
            .collect();

        ids.extend((0..1_000).map(|n| sequence.next_id(earlier, n)));
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn an_id_is_a_uuid_of_version_7_that_carries_its_time() {
        let now = Timestamp::from_micros(1_700_000_000_123_456);
        let id = TaskIdSequence::default().next_id(now, u64::MAX).0;
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        assert_eq!(id.as_u128() >> 80, 1_700_000_000_123);
    }

    #[test]
    fn a_lease_token_does_not_show_itself_in_logs() {
        let shown = format!("{:?}", LeaseToken(Uuid::from_u128(0xdead_beef)));
        assert!(!shown.contains("beef"));
    }
}
