//! A batch as one task: a scene after the other, with a checkpoint after each.
//!
//! It is simple to follow, its output is one stream in order, and it never has more than one call under way. A scene that
//! the provider refuses for good is noted and left out; everything else ends the attempt, and the next one goes on after
//! the last scene that is done.

use longhaul::{Job, Outcome, Progress, Stop};
use serde::{Deserialize, Serialize};

use super::{
    Study, batch,
    craft::Craft,
    parameters::{BatchDone, BatchOrder, BatchProgress, SceneOrder},
    study::Reporter,
};

/// What the next attempt needs to know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Way {
    /// What was to be done when it began.
    scenes: Option<Vec<i64>>,
    /// How many of them are behind us.
    passed: usize,
    /// The last entry of the output that belongs to them.
    output: u64,
    result: BatchDone,
}

pub(super) async fn run(
    study: &Study,
    job: &Job,
    craft: Craft,
    order: &BatchOrder,
) -> Outcome<BatchDone> {
    let mut way = job.state::<Way>()?;
    let scenes = match way.scenes.clone() {
        Some(scenes) => scenes,
        None => {
            let scenes = batch::scenes(study, job, craft, order).await?;
            way.change(|way| way.scenes = Some(scenes.clone()))?;
            scenes
        }
    };
    if way.output > 0 {
        job.resume_output(way.output).await?;
    }
    for scene in scenes.iter().skip(way.passed).copied() {
        let (done, failed, of) = (way.result.done, way.result.failed, scenes.len());
        let mut report = Reporter::new(move |words, part| {
            let percent = ((done + failed) as f64 + part) * 100.0 / of as f64;
            let details = BatchProgress {
                scene,
                done,
                failed,
                of,
                words,
            };
            Progress::percent(percent)
                .message(format!("scene {scene}, {done} of {of} done"))
                .details(&details)
        });
        let one = SceneOrder {
            novel_id: order.novel_id.clone(),
            scene,
        };
        report.output = job.emit(&format!("\n\n[scene {scene}]\n")).await?;
        let made = study.make(job, craft, &one, &mut report).await.map(Ok);
        let made = made.or_else(|trouble| trouble.of_this_scene().map(Err).ok_or(trouble))?;
        if let Err(reason) = &made {
            job.warn(format!("left out: {reason}"));
        }
        let output = report.output;
        way.change(|way| {
            (way.passed, way.output) = (way.passed + 1, output);
            way.result.add(made);
        })?;
        // The scene was paid for: it must not be asked for again.
        way.save().await?;
        job.progress(
            Progress::of(way.passed, of).message(format!("{} of {of} done", way.result.done)),
        )
        .await?;
    }
    way.save().await?;
    judged(way.result.clone())
}

/// The result, as the finish step finds it.
pub(super) fn result(job: &Job) -> Outcome<BatchDone> {
    judged(job.checkpoint::<Way>()?.unwrap_or_default().result)
}

fn judged(result: BatchDone) -> Outcome<BatchDone> {
    if result.done == 0 && result.failed > 0 {
        return Err(Stop::fatal("none of the scenes could be worked on"));
    }
    Ok(result)
}
