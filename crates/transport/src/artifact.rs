//! What every artifact store refuses, and the keys that they all make.

use std::{fmt, str::FromStr};

use longhaul_domain::{
    Invalid, TaskId,
    artifact::FILE_NAME_BYTES,
    bounds::{ARTIFACT_BYTES, NAME_BYTES, check_text},
    contract::artifact_store::NewArtifact,
};
use uuid::Uuid;

use crate::random;

/// Where a file is kept: `{task}/{attempt}/{random}`. Nothing else can be written as a key, so no key leads elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArtifactKey {
    pub task_id: TaskId,
    pub attempt: u32,
    random: Uuid,
}

impl ArtifactKey {
    /// A key that nobody can guess.
    pub fn fresh(task_id: TaskId, attempt: u32) -> Self {
        Self { task_id, attempt, random: random::uuid() }
    }

    /// The three parts as they stand in the key: hexadecimal digits and hyphens, and a plain number in the middle.
    pub fn parts(&self) -> [String; 3] {
        [self.task_id.to_string(), self.attempt.to_string(), self.random.to_string()]
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
        parse(text).filter(|key| key.to_string() == text).ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            Invalid::new("key", format!("is {shown:?}"), "a key that the artifact store has made")
        })
    }
}

fn parse(text: &str) -> Option<ArtifactKey> {
    let mut parts = text.splitn(3, '/');
    let task_id = TaskId(parts.next()?.parse().ok()?);
    let attempt = parts.next()?.parse().ok()?;
    let random = parts.next()?.parse().ok()?;
    Some(ArtifactKey { task_id, attempt, random })
}

/// Refuses what cannot be kept or could not be shown to people: names end up in the headers of downloads.
pub fn check(artifact: &NewArtifact<'_>) -> Result<(), Invalid> {
    check_text("fileName", artifact.file_name, FILE_NAME_BYTES)?;
    check_text("contentType", artifact.content_type, NAME_BYTES)?;
    if !artifact.content_type.is_ascii() {
        return Err(Invalid::new("contentType", "is not ASCII", "a media type such as text/plain"));
    }
    if artifact.bytes.len() > ARTIFACT_BYTES {
        let problem = format!("has {} bytes", artifact.bytes.len());
        return Err(Invalid::new("bytes", problem, format!("up to {ARTIFACT_BYTES} bytes")));
    }
    Ok(())
}
