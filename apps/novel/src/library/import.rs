//! Saves the chapters and scenes of an imported text.

use super::{Library, LibraryError, Transaction, statement};
use crate::splitting::Chapter;

impl Library {
    /// The text of one of the owner's novels, as it was imported.
    pub(crate) async fn source(
        &self,
        owner: &str,
        novel: &str,
    ) -> Result<Option<String>, LibraryError> {
        let rows = self
            .begin_read()
            .await?
            .fetch(&statement::GET_SOURCE, &[novel.into(), owner.into()])
            .await?;
        rows.first().map(|row| row.text("source")).transpose()
    }

    /// Saves the chapters and scenes, all or none. A second attempt finds them there and changes
    /// nothing, even if both run at the same time.
    pub(crate) async fn save_chapters(
        &self,
        novel: &str,
        chapters: &[Chapter],
    ) -> Result<(), LibraryError> {
        let mut open = self.begin_write().await?;
        let saved = open
            .fetch(&statement::LIST_CHAPTERS, &[novel.into()])
            .await?;
        if !saved.is_empty() {
            return open.roll_back().await;
        }

        match insert(&mut open, novel, chapters).await {
            Ok(()) => open.commit().await,
            Err(error) if error.is_duplicate() => open.roll_back().await,
            Err(error) => Err(error),
        }
    }
}

async fn insert(
    open: &mut Transaction,
    novel: &str,
    chapters: &[Chapter],
) -> Result<(), LibraryError> {
    let mut scene = 0;
    for (chapter, number) in chapters.iter().zip(1_i64..) {
        let row = [novel.into(), number.into(), chapter.title.as_str().into()];
        open.execute(&statement::INSERT_CHAPTER, &row).await?;

        for text in &chapter.scenes {
            scene += 1;
            let summary: Option<&str> = None;
            let row = [
                novel.into(),
                scene.into(),
                number.into(),
                text.as_str().into(),
                summary.into(),
            ];
            open.execute(&statement::INSERT_SCENE, &row).await?;
        }
    }

    Ok(())
}
