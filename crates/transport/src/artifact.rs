//! The keys that all artifact stores share.

use std::{fmt, str::FromStr};

use longhaul_domain::{Invalid, TaskId, contract::artifact_store::NewArtifact};
use uuid::Uuid;

/// The location of a file: `{task}/{attempt}/{random}`. A key has no other spelling, so it cannot
/// lead to another location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArtifactKey {
    pub task_id: TaskId,
    pub attempt: u32,
    random: Uuid,
}

impl ArtifactKey {
    /// The key of a new file.
    pub const fn of(new: &NewArtifact<'_>) -> Self {
        Self {
            task_id: new.task_id,
            attempt: new.attempt,
            random: new.id.0,
        }
    }

    /// The three segments of the key: two of hexadecimal digits and hyphens, and a plain number
    /// between them.
    pub fn segments(&self) -> [String; 3] {
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

    /// Accepts a key exactly as a store has made it. Another spelling of the same key is invalid.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Some(key) = parse(text)
            && key.to_string() == text
        {
            return Ok(key);
        }

        let shown: String = text.chars().take(60).collect();
        Err(Invalid::new(
            "key",
            format!("is {shown:?}"),
            "a key that the artifact store has made",
        ))
    }
}

fn parse(text: &str) -> Option<ArtifactKey> {
    let mut segments = text.splitn(3, '/');
    let task_id = TaskId(segments.next()?.parse().ok()?);
    let attempt = segments.next()?.parse().ok()?;
    let random = segments.next()?.parse().ok()?;

    Some(ArtifactKey {
        task_id,
        attempt,
        random,
    })
}
