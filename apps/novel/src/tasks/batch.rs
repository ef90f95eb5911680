//! Many scenes: `batch_generate_summary` and `batch_generate_scene`, each as children or as one loop.

use std::error::Error;

use longhaul::{Child, Children, Class, Context, Job, Outcome, Stop, Task, TypeSettings};

use super::{
    GenerateScene, GenerateSummary, Study, classify,
    craft::Craft,
    looping,
    parameters::{BatchDone, BatchOrder, SceneOrder, Style, Written},
    settings_of_many,
};

/// Failures that a result names.
const FAILURES: usize = 100;

/// `batch_generate_summary`: texts become summaries.
#[derive(Debug, Clone)]
pub struct BatchGenerateSummary(pub(super) Study);

/// `batch_generate_scene`: summaries become texts.
#[derive(Debug, Clone)]
pub struct BatchGenerateScene(pub(super) Study);

impl Task for BatchGenerateSummary {
    const TYPE: &'static str = "batch_generate_summary";
    const FINISH_STEP: bool = true;
    type Params = BatchOrder;
    type Output = BatchDone;

    async fn run(&self, ctx: Context<Self>) -> Outcome<BatchDone> {
        let orders = match ctx.params.style {
            Style::Loop => return looping::run(&self.0, &ctx, Craft::Summary, &ctx.params).await,
            Style::Children => orders(&self.0, &ctx, Craft::Summary, &ctx.params).await?,
        };
        ctx.submit_all::<GenerateSummary>(orders).await?;
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<BatchDone> {
        finish::<GenerateSummary>(&ctx, ctx.params.style, &children)
    }

    fn settings(&self) -> TypeSettings {
        settings_of_many()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

impl Task for BatchGenerateScene {
    const TYPE: &'static str = "batch_generate_scene";
    const FINISH_STEP: bool = true;
    type Params = BatchOrder;
    type Output = BatchDone;

    async fn run(&self, ctx: Context<Self>) -> Outcome<BatchDone> {
        let orders = match ctx.params.style {
            Style::Loop => return looping::run(&self.0, &ctx, Craft::Text, &ctx.params).await,
            Style::Children => orders(&self.0, &ctx, Craft::Text, &ctx.params).await?,
        };
        ctx.submit_all::<GenerateScene>(orders).await?;
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<BatchDone> {
        finish::<GenerateScene>(&ctx, ctx.params.style, &children)
    }

    fn settings(&self) -> TypeSettings {
        settings_of_many()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

/// The scenes of a batch: those that it names, or all that there is something to make from.
pub(super) async fn scenes(
    study: &Study,
    job: &Job,
    craft: Craft,
    order: &BatchOrder,
) -> Outcome<Vec<i64>> {
    let all = study.library.scenes(job.owner(), &order.novel_id).await?;
    let all = all.ok_or_else(|| Stop::fatal(format!("there is no novel {}", order.novel_id)))?;
    let mut scenes: Vec<i64> = match &order.scenes {
        Some(named) => named.clone(),
        None => all
            .iter()
            .filter(|scene| craft.is_wanted(scene))
            .map(|scene| scene.number)
            .collect(),
    };
    // A scene that is named twice is one.
    scenes.sort_unstable();
    scenes.dedup();
    Ok(scenes)
}

async fn orders(
    study: &Study,
    job: &Job,
    craft: Craft,
    order: &BatchOrder,
) -> Outcome<Vec<SceneOrder>> {
    let scenes = scenes(study, job, craft, order).await?;
    let order = |scene| SceneOrder {
        novel_id: order.novel_id.clone(),
        scene,
    };
    Ok(scenes.into_iter().map(order).collect())
}

/// The loop has put its result together itself; children are counted here.
fn finish<C: Task<Params = SceneOrder, Output = Written>>(
    job: &Job,
    style: Style,
    children: &Children,
) -> Outcome<BatchDone> {
    match style {
        Style::Loop => looping::result(job),
        Style::Children => counted::<C>(children),
    }
}

/// What came of the children.
pub(super) fn counted<C: Task<Output = Written>>(children: &Children) -> Outcome<BatchDone> {
    let mut done = BatchDone::default();
    children
        .results::<C>()?
        .into_iter()
        .for_each(|written| done.add(Ok(written)));
    children
        .failed()
        .for_each(|child| done.add(Err(reason(child))));
    Ok(done)
}

fn reason(child: &Child) -> String {
    child
        .error
        .clone()
        .unwrap_or_else(|| child.status.as_str().to_owned())
}

impl BatchDone {
    /// Notes what came of a scene.
    pub(super) fn add(&mut self, made: Result<Written, String>) {
        match made {
            Ok(written) => {
                self.done += 1;
                self.words += written.words;
                self.usage += written.usage;
            }
            Err(reason) => {
                self.failed += 1;
                if self.failures.len() < FAILURES {
                    self.failures.push(reason);
                }
            }
        }
    }
}
