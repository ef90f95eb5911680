//! The field of a scene that a task generates: the summary from the text, or the text from the
//! summary.

use crate::{
    library::{Library, LibraryError, Scene, SceneCard},
    provider::Prompt,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SceneField {
    Summary,
    Text,
}

impl SceneField {
    /// The prompt for the provider; `None` if the scene lacks the source field.
    pub(super) fn prompt(self, scene: &Scene) -> Option<Prompt> {
        match self {
            Self::Summary => scene.text.clone().map(Prompt::Summarize),
            Self::Text => scene.summary.clone().map(Prompt::Write),
        }
    }

    /// The name of the field that this one is generated from.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::Summary => "text",
            Self::Text => "summary",
        }
    }

    /// The field's value, if an earlier attempt of this task has written it.
    pub(super) fn written_by<'s>(self, scene: &'s Scene, task: &str) -> Option<&'s str> {
        let (value, writer) = match self {
            Self::Summary => (&scene.summary, &scene.summary_task),
            Self::Text => (&scene.text, &scene.text_task),
        };

        if writer.as_deref() == Some(task) {
            value.as_deref()
        } else {
            None
        }
    }

    /// Whether a batch that names no scenes includes this one.
    pub(super) fn is_due(self, scene: &SceneCard) -> bool {
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
        value: &str,
        task: &str,
    ) -> Result<(), LibraryError> {
        match self {
            Self::Summary => library.save_summary(novel, scene, value, task).await,
            Self::Text => library.save_text(novel, scene, value, task).await,
        }
    }
}
