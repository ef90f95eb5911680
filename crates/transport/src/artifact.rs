//! The keys that all artifact stores know.

use std::{fmt, str::FromStr};

use longhaul_domain::{Invalid, TaskId, contract::artifact_store::NewArtifact};
use uuid::Uuid;

/// Where a file is kept: `{task}/{attempt}/{random}`. Nothing else can be written as a key, so no key leads elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArtifactKey {
    pub task_id: TaskId,
    pub attempt: u32,
    random: Uuid,
}

impl ArtifactKey {
    /// The key of a file to be kept.
    pub const fn of(new: &NewArtifact<'_>) -> Self {
        Self {
            task_id: new.task_id,
            attempt: new.attempt,
            random: new.id.0,
        }
    }

    /// The three parts as they stand in the key: hexadecimal digits and hyphens, and a plain number in the middle.
    pub fn parts(&self) -> [String; 3] {
        [
            self.task_id.to_string(),
            self.attempt.to_string(),
            self.random.to_string(),
        ]
    }
}

impl fmt::Display for ArtifactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task_id, self.attempt, self.random)
    }
}

impl FromStr for ArtifactKey {
    type Err = Invalid;

    /// Accepts what a store has made, to the letter: another spelling of the same key is none.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text)
            .filter(|key| key.to_string() == text)
            .ok_or_else(|| {
                let shown: String = text.chars().take(60).collect();
                Invalid::new(
                    "key",
                    format!("is {shown:?}"),
                    "a key that the artifact store has made",
                )
            })
    }
}

fn parse(text: &str) -> Option<ArtifactKey> {
    let mut parts = text.splitn(3, '/');
    let task_id = TaskId(parts.next()?.parse().ok()?);
    let attempt = parts.next()?.parse().ok()?;
    let random = parts.next()?.parse().ok()?;
    Some(ArtifactKey {
        task_id,
        attempt,
        random,
    })
}
