//! What the tasks are given, report and leave behind.

use longhaul::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::provider::Usage;

/// Scenes of one batch: those of a whole novel.
const SCENES: usize = crate::splitting::SCENES;

/// One scene of a novel of the task's owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SceneOrder {
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
pub struct BatchOrder {
    /// The novel.
    #[schemars(length(min = 36, max = 36))]
    pub novel_id: String,
    /// The scenes' numbers. Without them: every scene that there is something to make from; a scene that has a text is
    /// not written again unless it is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = SCENES))]
    pub scenes: Option<Vec<i64>>,
    /// How the work is cut.
    #[serde(default)]
    pub style: Style,
}

/// How a batch does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A task for each scene, beside one another and on all nodes; each is retried by itself.
    #[default]
    Children,
    /// One scene after the other in one task, with a checkpoint after each.
    Loop,
}

/// A novel whose text is in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportOrder {
    /// The novel.
    #[schemars(length(min = 36, max = 36))]
    pub novel_id: String,
}

/// A summary or a scene is written; the text is in the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The scene's number.
    pub scene: i64,
    /// How many words were written.
    pub words: usize,
    /// Who wrote: `provider/model`.
    pub model: String,
    /// What it cost, if the provider told it. An attempt that finds the text of an earlier one there costs nothing.
    pub usage: Usage,
}

/// What came of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchDone {
    /// How many scenes were worked on.
    pub done: usize,
    /// How many were not.
    pub failed: usize,
    /// Why, for the first 100 of those.
    pub failures: Vec<String>,
    /// How many words were written.
    pub words: usize,
    /// What it cost.
    pub usage: Usage,
}

/// How far a looping batch is; the details of its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchProgress {
    /// The scene that is worked on.
    pub scene: i64,
    /// Scenes that are done.
    pub done: usize,
    /// Scenes that came to nothing.
    pub failed: usize,
    /// All of them.
    pub of: usize,
    /// Words of the scene that is worked on.
    pub words: usize,
}

/// What came of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportDone {
    /// How many chapters were found.
    pub chapters: usize,
    /// How many scenes.
    pub scenes: usize,
    /// What came of their summaries.
    pub summaries: BatchDone,
}
