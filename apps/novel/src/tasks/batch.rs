//! Many scenes: `batch_generate_summary` and `batch_generate_scene`, each with a child per scene or
//! as one loop.

use std::error::Error;

use longhaul::{Child, Children, Class, Context, Job, Outcome, Stop, Task, TypeSettings};

use super::{
    GenerateScene, GenerateSummary, batch_loop, batch_settings, classify,
    parameters::{BatchParams, BatchResult, SceneParams, SceneResult, Style},
    scene_field::SceneField,
    scene_writer::SceneWriter,
};

/// How many failures a result lists.
const FAILURES: usize = 100;

/// `batch_generate_summary`: writes summaries from texts.
#[derive(Debug, Clone)]
pub struct BatchGenerateSummary(pub(super) SceneWriter);

/// `batch_generate_scene`: writes texts from summaries.
#[derive(Debug, Clone)]
pub struct BatchGenerateScene(pub(super) SceneWriter);

impl Task for BatchGenerateSummary {
    const TYPE: &'static str = "batch_generate_summary";
    const FINISH_STEP: bool = true;
    type Params = BatchParams;
    type Output = BatchResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<BatchResult> {
        run::<GenerateSummary>(&self.0, &ctx, SceneField::Summary, &ctx.params).await
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<BatchResult> {
        finish::<GenerateSummary>(&ctx, ctx.params.style, &children)
    }

    fn settings(&self) -> TypeSettings {
        batch_settings()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

impl Task for BatchGenerateScene {
    const TYPE: &'static str = "batch_generate_scene";
    const FINISH_STEP: bool = true;
    type Params = BatchParams;
    type Output = BatchResult;

    async fn run(&self, ctx: Context<Self>) -> Outcome<BatchResult> {
        run::<GenerateScene>(&self.0, &ctx, SceneField::Text, &ctx.params).await
    }

    async fn finish(&self, ctx: Context<Self>, children: Children) -> Outcome<BatchResult> {
        finish::<GenerateScene>(&ctx, ctx.params.style, &children)
    }

    fn settings(&self) -> TypeSettings {
        batch_settings()
    }

    fn classify(&self, error: &(dyn Error + 'static)) -> Class {
        classify(error)
    }
}

/// Runs the loop, or submits a child of type `C` for each scene.
async fn run<C: Task<Params = SceneParams>>(
    writer: &SceneWriter,
    job: &Job,
    field: SceneField,
    params: &BatchParams,
) -> Outcome<BatchResult> {
    if params.style == Style::Loop {
        return batch_loop::run(writer, job, field, params).await;
    }

    let scenes = scenes(writer, job, field, params).await?;
    let child = |scene| SceneParams {
        novel_id: params.novel_id.clone(),
        scene,
    };
    job.submit_all::<C>(scenes.into_iter().map(child)).await?;

    Err(Stop::wait_for_children())
}

/// The scenes of a batch: those that it names, or all that are due. Each is listed once, in order.
pub(super) async fn scenes(
    writer: &SceneWriter,
    job: &Job,
    field: SceneField,
    params: &BatchParams,
) -> Outcome<Vec<i64>> {
    let novel = &params.novel_id;
    let all = writer.library.scenes(job.owner(), novel).await?;
    let all = all.ok_or_else(|| Stop::fatal(format!("there is no novel {novel}")))?;

    let mut scenes: Vec<i64> = match &params.scenes {
        Some(named) => named.clone(),
        None => all
            .iter()
            .filter(|scene| field.is_due(scene))
            .map(|scene| scene.number)
            .collect(),
    };
    scenes.sort_unstable();
    scenes.dedup();

    Ok(scenes)
}

/// The result of a batch. A loop has saved its own; children are counted here.
fn finish<C: Task<Params = SceneParams, Output = SceneResult>>(
    job: &Job,
    style: Style,
    children: &Children,
) -> Outcome<BatchResult> {
    match style {
        Style::Loop => batch_loop::result(job),
        Style::Children => result_of::<C>(children),
    }
}

/// Adds up the results of the children.
pub(super) fn result_of<C: Task<Output = SceneResult>>(
    children: &Children,
) -> Outcome<BatchResult> {
    let mut result = BatchResult::default();
    for scene in children.results::<C>()? {
        result.add(Ok(scene));
    }
    for child in children.failed() {
        result.add(Err(failure_of(child)));
    }

    Ok(result)
}

/// The error of a child that failed; the status of one that was cancelled.
fn failure_of(child: &Child) -> String {
    match &child.error {
        Some(error) => error.clone(),
        None => child.status.as_str().to_owned(),
    }
}

impl BatchResult {
    /// Adds the result of one scene, or the reason why it has none.
    pub(super) fn add(&mut self, scene: Result<SceneResult, String>) {
        match scene {
            Ok(scene) => {
                self.done += 1;
                self.word_count += scene.word_count;
                self.usage += scene.usage;
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
