//! Routes for scenes: read one, and have summaries and texts written, for one scene or many.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul::{
    Submission, Task,
    server::{ApiError, Caller, EmptyBody, JsonBody, OptionalBody, ok},
};
use serde::Deserialize;

use super::{Application, NovelPath, ScenePath, Submitted, api_error, for_caller};
use crate::{
    library::{LibraryError, Scene, Transaction},
    splitting::SCENES,
    tasks::{BatchGenerateScene, BatchParams, GenerateScene, GenerateSummary, SceneParams, Style},
};

/// The most new scenes of one request, each of which is one call of the provider.
const NEW_SCENES: usize = 100;
/// The longest summary of a request, in bytes: the same as for a scene.
const SUMMARY_BYTES: usize = crate::splitting::SCENE_BYTES;

/// Scenes to write, at the end of a chapter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewScenes {
    chapter: i64,
    /// The summary of each scene.
    summaries: Vec<String>,
    #[serde(default)]
    style: Style,
}

/// The scenes of a batch; without them, every scene that can be written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    scenes: Option<Vec<i64>>,
    #[serde(default)]
    style: Style,
}

pub(super) async fn read(
    State(application): State<Arc<Application>>,
    caller: Caller,
    path: ScenePath,
) -> Result<Response, ApiError> {
    Ok(ok(&find(&application, &caller, &path).await?))
}

pub(super) async fn summarize(
    State(application): State<Arc<Application>>,
    caller: Caller,
    path: ScenePath,
    _: EmptyBody,
) -> Result<Response, ApiError> {
    if find(&application, &caller, &path).await?.text.is_none() {
        return Err(ApiError::Conflict(format!(
            "scene {} has no text to summarise",
            path.scene
        )));
    }

    let task = application
        .longhaul
        .submit::<GenerateSummary>(path.params());
    submit(&caller, &path.novel, task).await
}

pub(super) async fn write(
    State(application): State<Arc<Application>>,
    caller: Caller,
    path: ScenePath,
    _: EmptyBody,
) -> Result<Response, ApiError> {
    if find(&application, &caller, &path).await?.summary.is_none() {
        return Err(ApiError::Conflict(format!(
            "scene {} has no summary to write from",
            path.scene
        )));
    }

    let task = application.longhaul.submit::<GenerateScene>(path.params());
    submit(&caller, &path.novel, task).await
}

/// Submits a batch of either type.
pub(super) async fn batch<T: Task<Params = BatchParams>>(
    State(application): State<Arc<Application>>,
    caller: Caller,
    NovelPath(novel): NovelPath,
    OptionalBody(batch): OptionalBody<Batch>,
) -> Result<Response, ApiError> {
    let params = batch_params(&application, &caller, &novel, batch).await?;
    let task = application.longhaul.submit::<T>(params);
    submit(&caller, &novel, task).await
}

/// Commits the new scenes together with the task that writes them.
pub(super) async fn add(
    State(application): State<Arc<Application>>,
    caller: Caller,
    NovelPath(novel): NovelPath,
    JsonBody(new): JsonBody<NewScenes>,
) -> Result<Response, ApiError> {
    let known = application
        .library
        .scenes(caller.owner(), &novel)
        .await
        .map_err(api_error)?;
    let known = known.ok_or(ApiError::Missing("novel"))?;

    check(&new, known.len())?;
    let mut open = application.library.begin_write().await.map_err(api_error)?;
    let added = match add_in(&mut open, &application, &caller, &novel, &new).await {
        Ok(added) => open.commit().await.map(|()| added),
        Err(error) => open.roll_back().await.and(Err(error)),
    };

    let (scenes, task_id) = added.map_err(|error| match error {
        error if error.is_missing_parent() => {
            ApiError::invalid_field("chapter", "is not in this novel", "a chapter of the novel")
        }
        error if error.is_duplicate() => {
            ApiError::Conflict("another request has added scenes; send it again".to_owned())
        }
        error => api_error(error),
    })?;

    // Without the wake-up, the worker finds the task only at its next poll.
    application.longhaul.wake();
    Ok(Submitted {
        novel_id: &novel,
        scenes: Some(&scenes),
        task_id,
    }
    .answer())
}

async fn add_in(
    open: &mut Transaction,
    application: &Application,
    caller: &Caller,
    novel: &str,
    new: &NewScenes,
) -> Result<(Vec<i64>, String), LibraryError> {
    let scenes = open.add_scenes(novel, new.chapter, &new.summaries).await?;
    let longhaul = &application.longhaul;
    let novel_id = novel.to_owned();

    let task_id = if let [scene] = scenes[..] {
        let params = SceneParams { novel_id, scene };
        let task = longhaul.submit::<GenerateScene>(params);
        let task = for_caller(caller, novel, task);
        open.submit(longhaul, task).await?.id()
    } else {
        let params = BatchParams {
            novel_id,
            scenes: Some(scenes.clone()),
            style: new.style,
        };
        let task = longhaul.submit::<BatchGenerateScene>(params);
        let task = for_caller(caller, novel, task);
        open.submit(longhaul, task).await?.id()
    };

    Ok((scenes, task_id.0.to_string()))
}

fn check(new: &NewScenes, known: usize) -> Result<(), ApiError> {
    let count = new.summaries.len();
    if !(1..=NEW_SCENES).contains(&count) {
        return Err(ApiError::invalid_field(
            "summaries",
            format!("has {count}"),
            format!("1 to {NEW_SCENES}"),
        ));
    }

    if known + count > SCENES {
        return Err(ApiError::invalid_field(
            "summaries",
            format!("are too many beside {known} scenes"),
            format!("{SCENES} in all"),
        ));
    }

    let invalid = new.summaries.iter().position(|text| {
        text.trim().is_empty() || text.len() > SUMMARY_BYTES || text.contains('\0')
    });
    match invalid {
        None => Ok(()),
        Some(at) => {
            let allowed = format!("1 to {SUMMARY_BYTES} bytes without NUL");
            Err(ApiError::invalid_field(
                format!("summaries[{at}]"),
                "is empty, too long or has a NUL",
                allowed,
            ))
        }
    }
}

impl ScenePath {
    fn params(&self) -> SceneParams {
        SceneParams {
            novel_id: self.novel.clone(),
            scene: self.scene,
        }
    }
}

async fn find(
    application: &Application,
    caller: &Caller,
    path: &ScenePath,
) -> Result<Scene, ApiError> {
    let found = application
        .library
        .scene(caller.owner(), &path.novel, path.scene)
        .await;
    found.map_err(api_error)?.ok_or(ApiError::Missing("scene"))
}

/// Checks that the novel and the scenes of a batch exist.
async fn batch_params(
    application: &Application,
    caller: &Caller,
    novel: &str,
    batch: Batch,
) -> Result<BatchParams, ApiError> {
    let known = application
        .library
        .scenes(caller.owner(), novel)
        .await
        .map_err(api_error)?;
    let known = known.ok_or(ApiError::Missing("novel"))?;

    if let Some(scenes) = &batch.scenes {
        if !(1..=SCENES).contains(&scenes.len()) {
            return Err(ApiError::invalid_field(
                "scenes",
                format!("has {}", scenes.len()),
                format!("1 to {SCENES} numbers"),
            ));
        }

        let numbers: std::collections::HashSet<i64> =
            known.iter().map(|scene| scene.number).collect();
        if let Some(unknown) = scenes.iter().find(|scene| !numbers.contains(*scene)) {
            let allowed = format!("numbers of this novel's {} scenes", known.len());
            return Err(ApiError::invalid_field(
                "scenes",
                format!("has {unknown}, which is not there"),
                allowed,
            ));
        }
    }

    Ok(BatchParams {
        novel_id: novel.to_owned(),
        scenes: batch.scenes,
        style: batch.style,
    })
}

async fn submit<T: Task>(
    caller: &Caller,
    novel: &str,
    task: Submission<T>,
) -> Result<Response, ApiError> {
    let handle = for_caller(caller, novel, task)
        .await
        .map_err(ApiError::from)?;
    Ok(Submitted {
        novel_id: novel,
        scenes: None,
        task_id: handle.id().0.to_string(),
    }
    .answer())
}
