//! One scene: `generate_summary` and `generate_scene`.

use std::error::Error;

use longhaul::{Class, Context, Job, Outcome, Progress, Task, TypeSettings};

use super::{
    classify,
    parameters::{SceneParams, SceneResult},
    scene_field::SceneField,
    scene_settings,
    scene_writer::{ProgressReporter, SceneWriter},
};

/// `generate_summary`: writes the summary of a scene from its text.
#[derive(Debug, Clone)]
pub struct GenerateSummary(pub(super) SceneWriter);

/// `generate_scene`: writes the text of a scene from its summary.
#[derive(Debug, Clone)]
pub struct GenerateScene(pub(super) SceneWriter);

impl Task for GenerateSummary {
    const TYPE: &'static str = "generate_summary";
    type Params = SceneParams;
    type Output = SceneResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SceneResult> {
        generate(&self.0, &ctx, SceneField::Summary, &ctx.params).await
    }

    fn settings(&self) -> TypeSettings {
        scene_settings()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

impl Task for GenerateScene {
    const TYPE: &'static str = "generate_scene";
    type Params = SceneParams;
    type Output = SceneResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<SceneResult> {
        generate(&self.0, &ctx, SceneField::Text, &ctx.params).await
    }

    fn settings(&self) -> TypeSettings {
        scene_settings()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

async fn generate(
    writer: &SceneWriter,
    job: &Job,
    field: SceneField,
    params: &SceneParams,
) -> Outcome<SceneResult> {
    let scene = params.scene;
    let mut reporter = ProgressReporter::new(|word_count, fraction| {
        Progress::percent(fraction * 100.0).message(format!("scene {scene}: {word_count} words"))
    });
    let result = writer.write(job, field, params, &mut reporter).await?;

    let message = format!("scene {scene}: {} words", result.word_count);
    job.progress(Progress::percent(100.0).message(message))
        .await?;

    Ok(result)
}
