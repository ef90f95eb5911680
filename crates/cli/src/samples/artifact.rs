use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use longhaul::{Context, Outcome, Task};

/// The largest file of a sample, in bytes: it is built in memory.
const BYTES: u64 = 64 * 1024 * 1024;

/// `sample.artifact`: stores a file of a given size and returns its URL.
#[derive(Debug)]
pub struct Artifact;

/// The size of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSize {
    /// In bytes.
    #[schemars(range(max = BYTES))]
    pub bytes: u64,
}

/// The stored file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// Its URL below the server's own. It is signed: anyone who has it can download the file.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    /// Until when the file is kept, as RFC 3339.
    pub expires_at: String,
}

impl Task for Artifact {
    const TYPE: &'static str = "sample.artifact";
    type Params = FileSize;
    type Output = StoredFile;

    async fn run(&self, ctx: Context<Self>) -> Outcome<StoredFile> {
        let line = b"A line of a file that a sample made.\n";
        let size = usize::try_from(ctx.params.bytes.min(BYTES)).unwrap_or(0);
        let content: Vec<u8> = line.iter().copied().cycle().take(size).collect();
        let stored = ctx
            .store_artifact("sample.txt", "text/plain; charset=utf-8", &content)
            .await?;
        let expires_at = jiff::Timestamp::from_microsecond(stored.expires_at.as_micros())
            .unwrap_or(jiff::Timestamp::MAX);

        Ok(StoredFile {
            url: stored.url,
            bytes: stored.bytes,
            expires_at: expires_at.to_string(),
        })
    }
}
