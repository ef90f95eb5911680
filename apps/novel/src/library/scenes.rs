//! The scenes that the tasks read and write.

use serde::Serialize;

use super::{Library, LibraryError, Row, SceneCard, Transaction, statement};

/// A scene with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scene {
    /// From 1, through the whole novel.
    pub number: i64,
    /// The number of its chapter.
    pub chapter: i64,
    /// The text, once it is written.
    pub text: Option<String>,
    /// The task that wrote the text, if one did.
    pub text_task: Option<String>,
    /// The summary, once it is written.
    pub summary: Option<String>,
    /// The task that wrote the summary, if one did.
    pub summary_task: Option<String>,
}

impl Library {
    /// A scene of one of the owner's novels.
    pub async fn scene(
        &self,
        owner: &str,
        novel: &str,
        number: i64,
    ) -> Result<Option<Scene>, LibraryError> {
        let params = [novel.into(), number.into(), owner.into()];
        let rows = self
            .begin_read()
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

    /// All scenes of a novel, without texts; `None` when the owner has no such novel.
    pub async fn scenes(
        &self,
        owner: &str,
        novel: &str,
    ) -> Result<Option<Vec<SceneCard>>, LibraryError> {
        let mut open = self.begin_read().await?;
        let novels = open
            .fetch(&statement::GET_NOVEL, &[novel.into(), owner.into()])
            .await?;
        if novels.is_empty() {
            return Ok(None);
        }

        open.scene_cards(novel).await.map(Some)
    }

    /// Saves the summary that a task has written. Saving it again changes nothing.
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

    /// Saves the text that a task has written. Saving it again changes nothing.
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
        value: &str,
        task: &str,
    ) -> Result<(), LibraryError> {
        let mut open = self.begin_write().await?;
        let params = [value.into(), task.into(), novel.into(), scene.into()];
        open.execute(statement, &params).await?;
        open.commit().await
    }
}

impl Transaction {
    pub(super) async fn scene_cards(
        &mut self,
        novel: &str,
    ) -> Result<Vec<SceneCard>, LibraryError> {
        let rows = self.fetch(&statement::LIST_SCENES, &[novel.into()]).await?;
        rows.iter().map(scene_card).collect()
    }

    /// Adds scenes with a summary and without a text, at the end of a chapter. Returns their
    /// numbers.
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
            let text: Option<&str> = None;
            let row = [
                novel.into(),
                last.into(),
                chapter.into(),
                text.into(),
                summary.as_str().into(),
            ];
            self.execute(&statement::INSERT_SCENE, &row).await?;
            numbers.push(last);
        }

        Ok(numbers)
    }
}

fn scene_card(row: &Row) -> Result<SceneCard, LibraryError> {
    Ok(SceneCard {
        number: row.int("number")?,
        chapter: row.int("chapter")?,
        has_text: row.int("written")? > 0,
        summary: row.optional_text("summary")?,
    })
}
