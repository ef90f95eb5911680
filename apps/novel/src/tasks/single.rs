//! One scene: `generate_summary` and `generate_scene`.

use std::error::Error;

use longhaul::{Class, Context, Job, Outcome, Progress, Task, TypeSettings};

use super::{
    Study, classify,
    craft::Craft,
    parameters::{SceneOrder, Written},
    settings_of_one,
    study::Reporter,
};

/// `generate_summary`: the text of a scene becomes its summary.
#[derive(Debug, Clone)]
pub struct GenerateSummary(pub(super) Study);

/// `generate_scene`: the summary of a scene becomes its text.
#[derive(Debug, Clone)]
pub struct GenerateScene(pub(super) Study);

impl Task for GenerateSummary {
    const TYPE: &'static str = "generate_summary";
    type Params = SceneOrder;
    type Output = Written;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Written> {
        one(&self.0, &ctx, Craft::Summary, &ctx.params).await
    }

    fn settings(&self) -> TypeSettings {
        settings_of_one()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

impl Task for GenerateScene {
    const TYPE: &'static str = "generate_scene";
    type Params = SceneOrder;
    type Output = Written;

    async fn run(&self, ctx: Context<Self>) -> Outcome<Written> {
        one(&self.0, &ctx, Craft::Text, &ctx.params).await
    }

    fn settings(&self) -> TypeSettings {
        settings_of_one()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

async fn one(study: &Study, job: &Job, craft: Craft, order: &SceneOrder) -> Outcome<Written> {
    let scene = order.scene;
    let mut report = Reporter::new(|words, part| {
        Progress::percent(part * 100.0).message(format!("scene {scene}: {words} words"))
    });
    let written = study.make(job, craft, order, &mut report).await?;
    job.progress(
        Progress::percent(100.0).message(format!("scene {scene}: {} words", written.words)),
    )
    .await?;
    Ok(written)
}
