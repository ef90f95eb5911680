//! A batch as one task: one scene after another, with a checkpoint after each.
//!
//! It is simple to follow, its output is one stream in order, and it makes one call at a time. A
//! scene that the provider refuses for good is left out. Any other error ends the attempt, and the
//! next attempt continues after the last scene that is done.

use longhaul::{Job, Outcome, Progress, Stop};
use serde::{Deserialize, Serialize};

use super::{
    batch,
    parameters::{BatchParams, BatchProgress, BatchResult, SceneParams, SceneResult},
    scene_field::SceneField,
    scene_writer::{ProgressReporter, SceneWriter},
};

/// The checkpoint: what the next attempt needs to continue.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct LoopState {
    /// The scenes of the batch, as they were when the first attempt started.
    scenes: Option<Vec<i64>>,
    /// How many of them are done or left out.
    passed: usize,
    /// The last entry of the output that belongs to those.
    output: u64,
    result: BatchResult,
}

pub(super) async fn run(
    writer: &SceneWriter,
    job: &Job,
    field: SceneField,
    params: &BatchParams,
) -> Outcome<BatchResult> {
    let mut state = job.state::<LoopState>()?;
    let scenes = match state.scenes.clone() {
        Some(scenes) => scenes,
        None => {
            let scenes = batch::scenes(writer, job, field, params).await?;
            state.change(|state| state.scenes = Some(scenes.clone()))?;
            scenes
        }
    };

    // Readers keep the output of the finished scenes and nothing after it.
    if state.output > 0 {
        job.resume_output(state.output).await?;
    }

    let of = scenes.len();
    for scene in scenes.into_iter().skip(state.passed) {
        let params = SceneParams {
            novel_id: params.novel_id.clone(),
            scene,
        };
        let mut reporter = reporter(scene, of, &state.result);
        reporter.output = job.emit(&format!("\n\n[scene {scene}]\n")).await?;

        let result = write_or_skip(writer, job, field, &params, &mut reporter).await?;
        let output = reporter.output;
        state.change(|state| {
            state.passed += 1;
            state.output = output;
            state.result.add(result);
        })?;
        // The provider charges for each scene, so every scene gets its checkpoint at once.
        state.save().await?;

        let message = format!("{} of {of} done", state.result.done);
        job.progress(Progress::of(state.passed, of).message(message))
            .await?;
    }

    state.save().await?;
    check(state.result.clone())
}

/// Writes one scene; `Err` with the reason if the scene is left out.
async fn write_or_skip(
    writer: &SceneWriter,
    job: &Job,
    field: SceneField,
    params: &SceneParams,
    reporter: &mut ProgressReporter<'_>,
) -> Outcome<Result<SceneResult, String>> {
    let error = match writer.write(job, field, params, reporter).await {
        Ok(result) => return Ok(Ok(result)),
        Err(error) => error,
    };
    let Some(reason) = error.skip_reason() else {
        return Err(error.into());
    };

    job.warn(format!("left out: {reason}"));
    Ok(Err(reason))
}

/// Reports the progress of one scene as progress of the whole batch.
fn reporter(scene: i64, of: usize, result: &BatchResult) -> ProgressReporter<'static> {
    let done = result.done;
    let failed = result.failed;

    ProgressReporter::new(move |word_count, fraction| {
        let percent = ((done + failed) as f64 + fraction) * 100.0 / of as f64;
        let details = BatchProgress {
            scene,
            done,
            failed,
            of,
            word_count,
        };

        Progress::percent(percent)
            .message(format!("scene {scene}, {done} of {of} done"))
            .details(&details)
    })
}

/// The result, for the finish step.
pub(super) fn result(job: &Job) -> Outcome<BatchResult> {
    let state = job.checkpoint::<LoopState>()?.unwrap_or_default();
    check(state.result)
}

/// A batch without a single success fails.
fn check(result: BatchResult) -> Outcome<BatchResult> {
    if result.done == 0 && result.failed > 0 {
        return Err(Stop::fatal("none of the scenes could be written"));
    }
    Ok(result)
}
