use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{STEP_MS, STEPS};
use longhaul::{Context, Outcome, Task};

/// `sample.stream`: writes numbered chunks to its output stream. A later attempt continues where
/// the last one stopped.
#[derive(Debug)]
pub struct Stream;

/// How many chunks, and how long each takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Chunks {
    /// How many.
    #[schemars(range(max = STEPS))]
    pub chunks: u32,
    /// How long each takes, in milliseconds.
    #[schemars(range(max = STEP_MS))]
    pub chunk_ms: u64,
}

/// The chunks written, and where the last attempt started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// All chunks.
    pub chunks: u32,
    /// The chunks that earlier attempts had written.
    pub resumed_from: u32,
}

/// The end of the stream.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Position {
    chunks: u32,
    offset: u64,
}

impl Task for Stream {
    const TYPE: &'static str = "sample.stream";
    type Params = Chunks;
    type Output = Written;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Written> {
        let Chunks { chunks, chunk_ms } = ctx.params;
        let start: Position = ctx.checkpoint()?.unwrap_or_default();
        ctx.resume_output(start.offset).await?;

        for chunk in start.chunks + 1..=chunks {
            ctx.sleep(Duration::from_millis(chunk_ms)).await?;
            let offset = ctx.emit(&format!("chunk {chunk}\n")).await?;
            ctx.save_checkpoint(&Position {
                chunks: chunk,
                offset,
            })
            .await?;
        }

        Ok(Written {
            chunks,
            resumed_from: start.chunks,
        })
    }
}
