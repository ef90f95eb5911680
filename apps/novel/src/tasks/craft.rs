//! The two things that can be made of a scene: a summary of its text, and a text from its summary.

use crate::{
    library::{Library, LibraryError, Scene, SceneCard},
    provider::Prompt,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Craft {
    Summary,
    Text,
}

impl Craft {
    /// What to ask the provider for, if the scene has what it is made from.
    pub(super) fn prompt(self, scene: &Scene) -> Option<Prompt> {
        match self {
            Self::Summary => scene.text.clone().map(Prompt::Summarize),
            Self::Text => scene.summary.clone().map(Prompt::Tell),
        }
    }

    /// What a scene lacks that cannot be worked on.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::Summary => "text",
            Self::Text => "summary",
        }
    }

    /// What this task has made of the scene in an earlier attempt.
    pub(super) fn made_by<'s>(self, scene: &'s Scene, task: &str) -> Option<&'s str> {
        let (made, by) = match self {
            Self::Summary => (&scene.summary, &scene.summary_task),
            Self::Text => (&scene.text, &scene.text_task),
        };
        made.as_deref().filter(|_| by.as_deref() == Some(task))
    }

    /// Whether a batch that names no scenes takes this one.
    pub(crate) fn is_wanted(self, scene: &SceneCard) -> bool {
        match self {
            Self::Summary => scene.has_text,
            Self::Text => scene.summary.is_some() && !scene.has_text,
        }
    }

    pub(super) async fn save(
        self,
        library: &Library,
        novel: &str,
        scene: i64,
        made: &str,
        task: &str,
    ) -> Result<(), LibraryError> {
        match self {
            Self::Summary => library.save_summary(novel, scene, made, task).await,
            Self::Text => library.save_text(novel, scene, made, task).await,
        }
    }
}
