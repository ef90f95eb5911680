//! Generates the summary or the text of one scene: reads the tables, asks the provider, streams the
//! task's output and saves the result.

use std::sync::Arc;

use futures::StreamExt as _;
use longhaul::{Class, Job, Progress, Stop};

use super::{
    parameters::{SceneParams, SceneResult},
    scene_field::SceneField,
};
use crate::{
    library::{Library, LibraryError, Scene},
    provider::{Piece, Prompt, Provider, ProviderError, Usage},
};

/// Words between two reports of progress.
const REPORT_WORDS: usize = 8;

/// What all handlers share.
#[derive(Debug, Clone)]
pub struct SceneWriter {
    /// The application's tables.
    pub library: Library,
    /// The provider of texts.
    pub provider: Arc<dyn Provider>,
}

/// Why a scene was not written.
#[derive(Debug)]
pub(super) enum SceneError {
    /// The scene, or the field that it is generated from, is missing.
    Missing(String),
    Library(LibraryError),
    Provider(ProviderFailure),
    /// The task is to stop.
    Stop(Stop),
}

/// A provider's error, with the scene that it is about.
#[derive(Debug, thiserror::Error)]
#[error("scene {scene}: {source}")]
pub(super) struct ProviderFailure {
    scene: i64,
    source: ProviderError,
}

impl SceneError {
    /// Why a batch leaves out this scene; `None` if the error ends the batch.
    ///
    /// A batch leaves out a scene when the error is permanent and about that scene alone. A key
    /// that is refused would be refused for the next scene, too.
    pub(super) fn skip_reason(&self) -> Option<String> {
        match self {
            Self::Missing(reason) => Some(reason.clone()),
            Self::Provider(failure) => {
                let is_permanent = failure.source.class() == Class::Fatal;
                let is_about_scene = is_permanent && !failure.source.is_invalid_key();
                is_about_scene.then(|| failure.to_string())
            }
            Self::Library(_) | Self::Stop(_) => None,
        }
    }
}

impl From<LibraryError> for SceneError {
    fn from(error: LibraryError) -> Self {
        Self::Library(error)
    }
}

impl From<Stop> for SceneError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<SceneError> for Stop {
    fn from(error: SceneError) -> Self {
        match error {
            SceneError::Missing(reason) => Self::fatal(reason),
            // `classify` decides what these mean for the task.
            SceneError::Library(error) => error.into(),
            SceneError::Provider(failure) => failure.into(),
            SceneError::Stop(stop) => stop,
        }
    }
}

/// The provider's answer.
struct Answer {
    text: String,
    usage: Usage,
}

impl SceneWriter {
    /// Generates a field of one scene and saves it. If an earlier attempt of this task has saved
    /// it, the provider is not asked again.
    pub(super) async fn write(
        &self,
        job: &Job,
        field: SceneField,
        params: &SceneParams,
        reporter: &mut ProgressReporter<'_>,
    ) -> Result<SceneResult, SceneError> {
        let novel = &params.novel_id;
        let number = params.scene;
        let task = job.id().0.to_string();

        let scene = self.scene(job, params).await?;
        if let Some(written) = field.written_by(&scene, &task) {
            return Ok(self.result(number, written, Usage::default()));
        }

        let Some(prompt) = field.prompt(&scene) else {
            let reason = format!("scene {number} has no {} yet", field.source());
            return Err(SceneError::Missing(reason));
        };
        let Answer { text, usage } = self.ask(job, number, prompt, reporter).await?;

        field
            .save(&self.library, novel, number, &text, &task)
            .await?;
        Ok(self.result(number, &text, usage))
    }

    async fn scene(&self, job: &Job, params: &SceneParams) -> Result<Scene, SceneError> {
        let SceneParams { novel_id, scene } = params;
        let found = self.library.scene(job.owner(), novel_id, *scene).await?;

        found.ok_or_else(|| {
            SceneError::Missing(format!("there is no scene {scene} in novel {novel_id}"))
        })
    }

    fn result(&self, scene: i64, text: &str, usage: Usage) -> SceneResult {
        SceneResult {
            scene,
            word_count: text.split_whitespace().count(),
            model: self.provider.key().to_owned(),
            usage,
        }
    }

    /// Asks the provider, and streams its answer to the task's output.
    async fn ask(
        &self,
        job: &Job,
        scene: i64,
        prompt: Prompt,
        reporter: &mut ProgressReporter<'_>,
    ) -> Result<Answer, SceneError> {
        let failed = |source| SceneError::Provider(ProviderFailure { scene, source });
        let expected_word_count = prompt.expected_word_count();

        // The permit counts as used for as long as the answer lasts.
        let _permit = job.permit(self.provider.key()).await?;

        let mut pieces = self.provider.write(prompt);
        let mut text = String::new();
        let mut usage = Usage::default();

        loop {
            // A slow provider must not delay the end of a cancelled task.
            let piece = tokio::select! {
                piece = pieces.next() => piece,
                () = job.cancelled() => {
                    job.check()?;
                    continue;
                }
            };

            match piece.transpose().map_err(failed)? {
                None => break,
                Some(Piece::Usage(reported)) => usage = reported,
                Some(Piece::Text(more)) => {
                    text += &more;
                    reporter.output = job.emit(&more).await?;
                    reporter.report(job, &text, expected_word_count).await?;
                }
            }
        }

        let text = text.trim().to_owned();
        if text.is_empty() {
            return Err(failed(ProviderError::Empty));
        }

        Ok(Answer { text, usage })
    }
}

/// Reports the progress of one scene. The task decides what a report says.
pub(super) struct ProgressReporter<'r> {
    /// The number of the newest entry of the output.
    pub(super) output: u64,
    /// How many words were reported last.
    reported: usize,
    /// Makes a report from the number of words and the completed fraction of the scene, 0 to 1.
    to_progress: Box<dyn Fn(usize, f64) -> Progress + Send + Sync + 'r>,
}

impl<'r> ProgressReporter<'r> {
    pub(super) fn new(to_progress: impl Fn(usize, f64) -> Progress + Send + Sync + 'r) -> Self {
        Self {
            output: 0,
            reported: 0,
            to_progress: Box::new(to_progress),
        }
    }

    /// Reports every few words.
    async fn report(
        &mut self,
        job: &Job,
        text: &str,
        expected_word_count: usize,
    ) -> Result<(), Stop> {
        let words = text.split_whitespace().count();
        if words < self.reported + REPORT_WORDS {
            return Ok(());
        }

        self.reported = words;
        // The length of an answer is not known in advance, so 100 % is left for its end.
        let fraction = (words as f64 / expected_word_count as f64).min(0.95);
        job.progress((self.to_progress)(words, fraction)).await
    }
}
