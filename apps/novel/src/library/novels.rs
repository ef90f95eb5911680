//! Novels of one owner. Other users cannot read or change them.

use longhaul::{Longhaul, StoreError, Submission};
use serde::Serialize;

use super::{Library, LibraryError, Row, Transaction, statement};
use crate::tasks::ImportNovel;

/// Sorts after every id, so that a list begins with the newest.
const END: &str = "g";

/// A novel to import.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewNovel<'n> {
    pub(crate) id: &'n str,
    pub(crate) owner: &'n str,
    pub(crate) title: &'n str,
    pub(crate) source: &'n str,
    pub(crate) import_key: Option<&'n str>,
}

/// The novel and the task of an import.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Imported {
    pub(crate) novel_id: String,
    pub(crate) task_id: String,
}

/// A novel in a list.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NovelCard {
    /// Its id.
    pub novel_id: String,
    /// Its title.
    pub title: String,
    /// The task that imports it.
    pub task_id: String,
    /// How many chapters it has.
    pub chapters: i64,
    /// How many scenes it has.
    pub scenes: i64,
    /// How many scenes have a summary.
    pub summaries: i64,
}

/// A novel with everything but the texts.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NovelView {
    /// Its id.
    pub novel_id: String,
    /// Its title.
    pub title: String,
    /// The task that imports it.
    pub task_id: String,
    /// By number. There are none until the import has split the text.
    pub chapters: Vec<ChapterView>,
}

/// A chapter of a novel.
#[derive(Debug, Clone, Serialize)]
pub struct ChapterView {
    /// From 1.
    pub number: i64,
    /// Its title.
    pub title: String,
    /// By number.
    pub scenes: Vec<SceneCard>,
}

/// A scene without its text.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SceneCard {
    /// From 1, through the whole novel.
    pub number: i64,
    /// Whether it has a text.
    pub has_text: bool,
    /// The summary, once it is written.
    pub summary: Option<String>,
    /// The number of its chapter.
    #[serde(skip)]
    pub chapter: i64,
}

impl Library {
    /// Saves a novel and submits the task that imports it, both or neither. If the import key was
    /// used before, the earlier novel and task are returned.
    pub(crate) async fn import(
        &self,
        novel: &NewNovel<'_>,
        longhaul: &Longhaul,
        task: Submission<ImportNovel>,
    ) -> Result<Imported, LibraryError> {
        if let Some(known) = self.find_import(novel).await? {
            return Ok(known);
        }

        let mut open = self.begin_write().await?;
        match insert(&mut open, novel, longhaul, task).await {
            Ok(imported) => {
                open.commit().await?;
                Ok(imported)
            }
            Err(error) => {
                open.roll_back().await?;
                if !error.is_duplicate() {
                    return Err(error);
                }

                // Another request with the same key was faster.
                self.find_import(novel).await?.ok_or(error)
            }
        }
    }

    async fn find_import(&self, novel: &NewNovel<'_>) -> Result<Option<Imported>, LibraryError> {
        let Some(key) = novel.import_key else {
            return Ok(None);
        };
        let rows = self
            .begin_read()
            .await?
            .fetch(&statement::FIND_IMPORT, &[novel.owner.into(), key.into()])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };

        if row.text("title")? != novel.title || row.text("source")? != novel.source {
            return Err(StoreError::IdempotencyMismatch.into());
        }

        Ok(Some(Imported {
            novel_id: row.text("id")?,
            task_id: row.text("task_id")?,
        }))
    }

    /// The owner's novels before `before`, newest first.
    pub async fn novels(
        &self,
        owner: &str,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<NovelCard>, LibraryError> {
        let params = [
            owner.into(),
            before.unwrap_or(END).into(),
            i64::try_from(limit).unwrap_or(1).into(),
        ];
        let rows = self
            .begin_read()
            .await?
            .fetch(&statement::LIST_NOVELS, &params)
            .await?;

        rows.iter().map(novel_card).collect()
    }

    /// One novel with its chapters, scenes and summaries.
    pub async fn novel(&self, owner: &str, id: &str) -> Result<Option<NovelView>, LibraryError> {
        let mut open = self.begin_read().await?;
        let rows = open
            .fetch(&statement::GET_NOVEL, &[id.into(), owner.into()])
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let mut novel = NovelView {
            novel_id: row.text("id")?,
            title: row.text("title")?,
            task_id: row.text("task_id")?,
            chapters: vec![],
        };

        for row in open.fetch(&statement::LIST_CHAPTERS, &[id.into()]).await? {
            novel.chapters.push(ChapterView {
                number: row.int("number")?,
                title: row.text("title")?,
                scenes: vec![],
            });
        }

        for scene in open.scene_cards(id).await? {
            let chapters = &mut novel.chapters;
            let index = chapters.binary_search_by_key(&scene.chapter, |chapter| chapter.number);
            if let Ok(index) = index {
                chapters[index].scenes.push(scene);
            }
        }

        Ok(Some(novel))
    }

    /// Deletes a novel with its chapters and scenes. Its tasks will find nothing and fail.
    pub async fn delete(&self, owner: &str, id: &str) -> Result<bool, LibraryError> {
        let mut open = self.begin_write().await?;
        let deleted = open
            .execute(&statement::DELETE_NOVEL, &[id.into(), owner.into()])
            .await?;
        open.commit().await?;
        Ok(deleted > 0)
    }
}

fn novel_card(row: &Row) -> Result<NovelCard, LibraryError> {
    Ok(NovelCard {
        novel_id: row.text("id")?,
        title: row.text("title")?,
        task_id: row.text("task_id")?,
        chapters: row.int("chapters")?,
        scenes: row.int("scenes")?,
        summaries: row.int("summaries")?,
    })
}

async fn insert(
    open: &mut Transaction,
    novel: &NewNovel<'_>,
    longhaul: &Longhaul,
    task: Submission<ImportNovel>,
) -> Result<Imported, LibraryError> {
    let task_id = open.submit(longhaul, task).await?.id().0.to_string();
    let NewNovel {
        id,
        owner,
        title,
        source,
        import_key,
    } = *novel;

    let row = [
        id.into(),
        owner.into(),
        title.into(),
        source.into(),
        task_id.as_str().into(),
        import_key.into(),
    ];
    open.execute(&statement::INSERT_NOVEL, &row).await?;

    Ok(Imported {
        novel_id: id.to_owned(),
        task_id,
    })
}
