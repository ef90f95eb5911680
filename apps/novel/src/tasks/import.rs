//! `import_novel`: splits a text into chapters and scenes, and has each scene summarized.

use std::error::Error;

use longhaul::{Children, Class, Context, Outcome, Progress, Stop, Task, TypeSettings};

use super::{
    GenerateSummary, WHOLE_NOVEL, batch, classify,
    parameters::{ImportParams, ImportResult, SceneParams},
    scene_writer::SceneWriter,
};
use crate::splitting::split;

/// The task type `import_novel`.
#[derive(Debug, Clone)]
pub struct ImportNovel(pub(super) SceneWriter);

impl Task for ImportNovel {
    const TYPE: &'static str = "import_novel";
    const FINISH_STEP: bool = true;
    type Params = ImportParams;
    type Output = ImportResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<ImportResult> {
        let library = &self.0.library;
        let ImportParams { novel_id } = &ctx.params;
        let source = library.source(ctx.owner(), novel_id).await?;
        let source = source.ok_or_else(|| Stop::fatal(format!("there is no novel {novel_id}")))?;

        let chapters = split(&source);
        if chapters.is_empty() {
            return Err(Stop::fatal("the text has no scene"));
        }
        library.save_chapters(novel_id, &chapters).await?;

        let scenes: usize = chapters.iter().map(|chapter| chapter.scenes.len()).sum();
        ctx.info(format!("{} chapters, {scenes} scenes", chapters.len()));
        ctx.progress(Progress::percent(10.0).message("split; summaries are being written"))
            .await?;

        let child = |scene| SceneParams {
            novel_id: novel_id.clone(),
            scene,
        };
        ctx.submit_all::<GenerateSummary>((1..=scenes as i64).map(child))
            .await?;
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<ImportResult> {
        let library = &self.0.library;
        let novel = library.novel(ctx.owner(), &ctx.params.novel_id).await?;
        let novel = novel.ok_or_else(|| Stop::fatal("the novel was deleted during its import"))?;

        ctx.progress(100).await?;
        Ok(ImportResult {
            chapters: novel.chapters.len(),
            scenes: children.all.len(),
            summaries: batch::result_of::<GenerateSummary>(&children)?,
        })
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().expected_duration(WHOLE_NOVEL)
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}
