//! The parameters, progress details and results of the tasks.

use longhaul::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::provider::Usage;

/// The most scenes of one batch: those of a whole novel.
const SCENES: usize = crate::splitting::SCENES;

/// One scene of a novel of the task's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SceneParams {
    /// The novel.
    #[schemars(length(min = 36, max = 36))]
    pub novel_id: String,
    /// The scene's number in the novel.
    #[schemars(range(min = 1))]
    pub scene: i64,
}

/// Many scenes of a novel of the task's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchParams {
    /// The novel.
    #[schemars(length(min = 36, max = 36))]
    pub novel_id: String,
    /// The scenes' numbers. Without them, a batch of summaries takes every scene with a text, and a
    /// batch of texts takes every scene with a summary and without a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SCENES))]
    pub scenes: Option<Vec<i64>>,
    /// How the work is divided.
    #[serde(default)]
    pub style: Style,
}

/// How a batch does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A child task for each scene. They run in parallel on all nodes, each with its own retries.
    #[default]
    Children,
    /// One task that writes one scene after another, with a checkpoint after each.
    Loop,
}

/// A novel whose text is in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportParams {
    /// The novel.
    #[schemars(length(min = 36, max = 36))]
    pub novel_id: String,
}

/// The result of writing a summary or a text, which is in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SceneResult {
    /// The scene's number.
    pub scene: i64,
    /// How many words were written.
    pub word_count: usize,
    /// The provider and the model that wrote it: `provider/model`.
    pub model: String,
    /// The cost, if the provider reported it. It is 0 if an earlier attempt had written the text.
    pub usage: Usage,
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchResult {
    /// How many scenes were written.
    pub done: usize,
    /// How many failed.
    pub failed: usize,
    /// The reasons of the first 100 failures.
    pub failures: Vec<String>,
    /// How many words were written.
    pub word_count: usize,
    /// The cost of all of them.
    pub usage: Usage,
}

/// The progress details of a batch that runs as a loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchProgress {
    /// The scene that is being written.
    pub scene: i64,
    /// Scenes that are done.
    pub done: usize,
    /// Scenes that failed.
    pub failed: usize,
    /// All scenes of the batch.
    pub of: usize,
    /// Words of the scene that is being written.
    pub word_count: usize,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportResult {
    /// How many chapters were found.
    pub chapters: usize,
    /// How many scenes were found.
    pub scenes: usize,
    /// The results of their summaries.
    pub summaries: BatchResult,
}
