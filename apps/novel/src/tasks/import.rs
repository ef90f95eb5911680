//! `import_novel`: a text becomes chapters and scenes, and each scene gets a summary.

use std::error::Error;

use longhaul::{Children, Class, Context, Outcome, Progress, Stop, Task, TypeSettings};

use super::{
    GenerateSummary, Study, WHOLE_NOVEL, batch, classify,
    parameters::{ImportDone, ImportOrder, SceneOrder},
};
use crate::splitting::split;

/// The task type `import_novel`.
#[derive(Debug, Clone)]
pub struct ImportNovel(pub(super) Study);

impl Task for ImportNovel {
    const TYPE: &'static str = "import_novel";
    const FINISH_STEP: bool = true;
    type Params = ImportOrder;
    type Output = ImportDone;

    async fn run(&self, ctx: Context<Self>) -> Outcome<ImportDone> {
        let ImportOrder { novel_id } = &ctx.params;
        let source = self.0.library.source(ctx.owner(), novel_id).await?;
        let source = source.ok_or_else(|| Stop::fatal(format!("there is no novel {novel_id}")))?;
        let chapters = split(&source);
        if chapters.is_empty() {
            return Err(Stop::fatal("the text has no scene"));
        }
        self.0.library.save_chapters(novel_id, &chapters).await?;
        let scenes: usize = chapters.iter().map(|chapter| chapter.scenes.len()).sum();
        ctx.info(format!("{} chapters, {scenes} scenes", chapters.len()));
        ctx.progress(Progress::percent(10.0).message("split; summaries are being written"))
            .await?;
        let order = |scene| SceneOrder {
            novel_id: novel_id.clone(),
            scene,
        };
        ctx.submit_all::<GenerateSummary>((1..=scenes as i64).map(order))
            .await?;
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<ImportDone> {
        let novel = self
            .0
            .library
            .novel(ctx.owner(), &ctx.params.novel_id)
            .await?;
        let novel = novel.ok_or_else(|| Stop::fatal("the novel was removed meanwhile"))?;
        ctx.progress(100).await?;
        Ok(ImportDone {
            chapters: novel.chapters.len(),
            scenes: children.all.len(),
            summaries: batch::counted::<GenerateSummary>(&children)?,
        })
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().expected_duration(WHOLE_NOVEL)
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}
