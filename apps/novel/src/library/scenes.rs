//! Scenes: what the tasks read and write.

use serde::Serialize;

use super::{Library, LibraryError, SceneCard, Transaction, statement};

/// A scene with everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scene {
    /// From 1, through the whole novel.
    pub number: i64,
    /// The number of its chapter.
    pub chapter: i64,
    /// What is told, once that is written.
    pub text: Option<String>,
    /// The task that wrote the text, if one did.
    pub text_task: Option<String>,
    /// What happens in it, in short, once that is written.
    pub summary: Option<String>,
    /// The task that wrote the summary, if one did.
    pub summary_task: Option<String>,
}

impl Library {
    /// One scene of the owner's.
    pub async fn scene(
        &self,
        owner: &str,
        novel: &str,
        number: i64,
    ) -> Result<Option<Scene>, LibraryError> {
        let params = [novel.into(), number.into(), owner.into()];
        let rows = self
            .look()
            .await?
            .fetch(&statement::GET_SCENE, &params)
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(Scene {
            number: row.int("number")?,
            chapter: row.int("chapter")?,
            text: row.optional_text("text")?,
            text_task: row.optional_text("text_task")?,
            summary: row.optional_text("summary")?,
            summary_task: row.optional_text("summary_task")?,
        }))
    }

    /// Every scene of a novel of the owner's, without texts; nothing when the novel is not theirs.
    pub async fn scenes(
        &self,
        owner: &str,
        novel: &str,
    ) -> Result<Option<Vec<SceneCard>>, LibraryError> {
        let mut open = self.look().await?;
        if open
            .fetch(&statement::GET_NOVEL, &[novel.into(), owner.into()])
            .await?
            .is_empty()
        {
            return Ok(None);
        }
        open.scene_cards(novel).await.map(Some)
    }

    /// Writes what a task has made of a scene. To write it twice is to write it once.
    pub(crate) async fn save_summary(
        &self,
        novel: &str,
        scene: i64,
        summary: &str,
        task: &str,
    ) -> Result<(), LibraryError> {
        self.save(&statement::SAVE_SUMMARY, novel, scene, summary, task)
            .await
    }

    /// The same for a text.
    pub(crate) async fn save_text(
        &self,
        novel: &str,
        scene: i64,
        text: &str,
        task: &str,
    ) -> Result<(), LibraryError> {
        self.save(&statement::SAVE_TEXT, novel, scene, text, task)
            .await
    }

    async fn save(
        &self,
        statement: &'static statement::Statement,
        novel: &str,
        scene: i64,
        made: &str,
        task: &str,
    ) -> Result<(), LibraryError> {
        let mut open = self.begin().await?;
        open.execute(
            statement,
            &[made.into(), task.into(), novel.into(), scene.into()],
        )
        .await?;
        open.commit().await
    }
}

impl Transaction {
    pub(super) async fn scene_cards(
        &mut self,
        novel: &str,
    ) -> Result<Vec<SceneCard>, LibraryError> {
        let rows = self.fetch(&statement::LIST_SCENES, &[novel.into()]).await?;
        let card = |row: &super::transaction::Row| {
            Ok(SceneCard {
                number: row.int("number")?,
                chapter: row.int("chapter")?,
                has_text: row.int("written")? > 0,
                summary: row.optional_text("summary")?,
            })
        };
        rows.iter().map(card).collect()
    }

    /// Adds scenes that have a summary and no text yet, at the end of a chapter, and answers with their numbers.
    pub(crate) async fn add_scenes(
        &mut self,
        novel: &str,
        chapter: i64,
        summaries: &[String],
    ) -> Result<Vec<i64>, LibraryError> {
        let rows = self.fetch(&statement::LAST_SCENE, &[novel.into()]).await?;
        let mut last = rows.first().map_or(Ok(0), |row| row.int("last"))?;
        let mut numbers = Vec::with_capacity(summaries.len());
        for summary in summaries {
            last += 1;
            let nothing: Option<&str> = None;
            let row = [
                novel.into(),
                last.into(),
                chapter.into(),
                nothing.into(),
                summary.as_str().into(),
            ];
            self.execute(&statement::INSERT_SCENE, &row).await?;
            numbers.push(last);
        }
        Ok(numbers)
    }
}
