//! Where one scene is worked on: the tables, the provider, and the task's output.

use std::sync::Arc;

use futures::StreamExt as _;
use longhaul::{Class, Job, Stop};

use super::{
    craft::Craft,
    parameters::{SceneOrder, Written},
};
use crate::{
    library::{Library, LibraryError},
    provider::{Piece, Prompt, Provider, ProviderError, Usage},
};

/// Words between two reports of progress.
const REPORT_WORDS: usize = 8;

/// What the handlers share.
#[derive(Debug, Clone)]
pub struct Study {
    /// The application's tables.
    pub library: Library,
    /// Who writes.
    pub provider: Arc<dyn Provider>,
}

/// Why a scene came to nothing.
#[derive(Debug)]
pub(super) enum Trouble {
    /// There is nothing to work on.
    Missing(String),
    Library(LibraryError),
    Provider(SceneRefused),
    /// The task is to stop.
    Stop(Stop),
}

/// What the provider said of a scene.
#[derive(Debug, thiserror::Error)]
#[error("scene {scene}: {source}")]
pub(super) struct SceneRefused {
    scene: i64,
    source: ProviderError,
}

impl Trouble {
    /// The reason, if it is this scene's alone and stays so: a batch goes on without it. A key that is refused would be
    /// refused for the next scene, too.
    pub(super) fn of_this_scene(&self) -> Option<String> {
        match self {
            Self::Missing(reason) => Some(reason.clone()),
            Self::Library(_) | Self::Stop(_) => None,
            Self::Provider(SceneRefused {
                source: ProviderError::InvalidKey { .. },
                ..
            }) => None,
            Self::Provider(refused) => {
                (refused.source.class() == Class::Fatal).then(|| refused.to_string())
            }
        }
    }
}

impl From<LibraryError> for Trouble {
    fn from(error: LibraryError) -> Self {
        Self::Library(error)
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Missing(reason) => Self::fatal(reason),
            // What these mean is said by `classify`.
            Trouble::Library(error) => error.into(),
            Trouble::Provider(error) => error.into(),
            Trouble::Stop(stop) => stop,
        }
    }
}

/// What the provider has written.
struct Answer {
    text: String,
    usage: Usage,
}

impl Study {
    /// Makes a summary or a text of one scene and writes it down. What an earlier attempt of this task has written
    /// stays, and the provider is not asked again.
    pub(super) async fn make(
        &self,
        job: &Job,
        craft: Craft,
        order: &SceneOrder,
        report: &mut Reporter<'_>,
    ) -> Result<Written, Trouble> {
        let SceneOrder {
            novel_id,
            scene: number,
        } = order;
        let task = job.id().0.to_string();
        let found = self.library.scene(job.owner(), novel_id, *number).await?;
        let scene = found.ok_or_else(|| {
            Trouble::Missing(format!("there is no scene {number} in novel {novel_id}"))
        })?;
        let (scene, model) = (&scene, self.provider.key().to_owned());
        if let Some(made) = craft.made_by(scene, &task) {
            let words = made.split_whitespace().count();
            return Ok(Written {
                scene: *number,
                words,
                model,
                usage: Usage::default(),
            });
        }
        let prompt = craft.prompt(scene);
        let prompt = prompt.ok_or_else(|| {
            Trouble::Missing(format!("scene {number} has no {} yet", craft.source()))
        })?;
        let Answer { text, usage } = self.ask(job, *number, prompt, report).await?;
        craft
            .save(&self.library, novel_id, *number, &text, &task)
            .await?;
        Ok(Written {
            scene: *number,
            words: text.split_whitespace().count(),
            model,
            usage,
        })
    }

    /// The provider's answer, told to the task's output word by word.
    async fn ask(
        &self,
        job: &Job,
        scene: i64,
        prompt: Prompt,
        report: &mut Reporter<'_>,
    ) -> Result<Answer, Trouble> {
        let refused = |source| Trouble::Provider(SceneRefused { scene, source });
        let expected = prompt.expected_words();
        let _permit = job.permit(self.provider.key()).await?;
        let (mut text, mut usage, mut reported) = (String::new(), Usage::default(), 0);
        let mut pieces = self.provider.write(prompt);
        loop {
            // A provider that is slow must not keep a cancelled task alive.
            let piece = tokio::select! {
                piece = pieces.next() => piece,
                () = job.cancelled() => {
                    job.check()?;
                    continue;
                }
            };
            match piece.transpose().map_err(refused)? {
                None => break,
                Some(Piece::Usage(told)) => usage = told,
                Some(Piece::Text(more)) => {
                    text += &more;
                    report.output = job.emit(&more).await?;
                    let words = text.split_whitespace().count();
                    if words >= reported + REPORT_WORDS {
                        reported = words;
                        report.words(job, words, expected).await?;
                    }
                }
            }
        }
        let text = text.trim().to_owned();
        if text.is_empty() {
            Err(refused(ProviderError::Empty))
        } else {
            Ok(Answer { text, usage })
        }
    }
}

/// Tells how far one scene is, as the task wants it told.
pub(super) struct Reporter<'r> {
    /// The number of the newest entry of the output.
    pub(super) output: u64,
    /// From words and the part of the scene that they are, 0 to 1, to progress.
    progress: Box<dyn Fn(usize, f64) -> longhaul::Progress + Send + Sync + 'r>,
}

impl<'r> Reporter<'r> {
    pub(super) fn new(
        progress: impl Fn(usize, f64) -> longhaul::Progress + Send + Sync + 'r,
    ) -> Self {
        Self {
            output: 0,
            progress: Box::new(progress),
        }
    }

    async fn words(&self, job: &Job, words: usize, expected: usize) -> Result<(), Stop> {
        // How long an answer gets is not known: the last twentieth is for the end.
        let part = (words as f64 / expected as f64).min(0.95);
        job.progress((self.progress)(words, part)).await
    }
}
