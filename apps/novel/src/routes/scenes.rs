//! Scenes: read one, have it summarised or told, one at a time or many.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul::{
    Submission, Task,
    server::{ApiError, Caller, JsonBody, NoBody, OptionalBody, ok},
};
use serde::Deserialize;

use super::{Application, NovelPath, ScenePath, Submitted, of_caller, told};
use crate::{
    library::{LibraryError, Scene, Transaction},
    splitting::SCENES,
    tasks::{BatchGenerateScene, BatchOrder, GenerateScene, GenerateSummary, SceneOrder, Style},
};

/// New scenes of one request: some hundred calls of a provider.
const NEW_SCENES: usize = 100;
/// The longest summary that is handed in, in bytes: as long as a scene may be.
const SUMMARY_BYTES: usize = crate::splitting::SCENE_BYTES;

/// Scenes that are to be written, at the end of a chapter.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewScenes {
    chapter: i64,
    /// What happens in each, in short.
    summaries: Vec<String>,
    #[serde(default)]
    style: Style,
}

/// What a batch is about; all that can be worked on, if nothing is said.
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
    _: NoBody,
) -> Result<Response, ApiError> {
    if find(&application, &caller, &path).await?.text.is_none() {
        return Err(ApiError::Conflict(format!(
            "scene {} has no text to summarise",
            path.scene
        )));
    }
    let ScenePath { novel, scene } = path;
    let order = SceneOrder {
        novel_id: novel.clone(),
        scene,
    };
    submit(
        &caller,
        &novel,
        application.longhaul.submit::<GenerateSummary>(order),
    )
    .await
}

pub(super) async fn tell(
    State(application): State<Arc<Application>>,
    caller: Caller,
    path: ScenePath,
    _: NoBody,
) -> Result<Response, ApiError> {
    if find(&application, &caller, &path).await?.summary.is_none() {
        return Err(ApiError::Conflict(format!(
            "scene {} has no summary to write from",
            path.scene
        )));
    }
    let ScenePath { novel, scene } = path;
    let order = SceneOrder {
        novel_id: novel.clone(),
        scene,
    };
    submit(
        &caller,
        &novel,
        application.longhaul.submit::<GenerateScene>(order),
    )
    .await
}

/// A batch of either kind.
pub(super) async fn many<T: Task<Params = BatchOrder>>(
    State(application): State<Arc<Application>>,
    caller: Caller,
    NovelPath(novel): NovelPath,
    OptionalBody(batch): OptionalBody<Batch>,
) -> Result<Response, ApiError> {
    let order = order(&application, &caller, &novel, batch).await?;
    submit(&caller, &novel, application.longhaul.submit::<T>(order)).await
}

/// The new scenes and the task that writes them are committed together.
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
        .map_err(told)?;
    let known = known.ok_or(ApiError::Missing("novel"))?;
    check(&new, known.len())?;
    let mut open = application.library.begin().await.map_err(told)?;
    let added = match add_in(&mut open, &application, &caller, &novel, &new).await {
        Ok(added) => open.commit().await.map(|()| added),
        Err(error) => open.roll_back().await.and(Err(error)),
    };
    let (scenes, task_id) = added.map_err(|error| match error {
        error if error.is_orphan() => {
            ApiError::unfit("chapter", "is not in this novel", "a chapter of the novel")
        }
        error if error.is_taken() => {
            ApiError::Conflict("scenes were added meanwhile; send it again".to_owned())
        }
        error => told(error),
    })?;
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
    let (longhaul, novel_id) = (&application.longhaul, novel.to_owned());
    let task_id = if let [scene] = scenes[..] {
        let task = longhaul.submit::<GenerateScene>(SceneOrder { novel_id, scene });
        open.submit(longhaul, of_caller(caller, novel, task))
            .await?
            .id()
    } else {
        let order = BatchOrder {
            novel_id,
            scenes: Some(scenes.clone()),
            style: new.style,
        };
        let task = longhaul.submit::<BatchGenerateScene>(order);
        open.submit(longhaul, of_caller(caller, novel, task))
            .await?
            .id()
    };
    Ok((scenes, task_id.0.to_string()))
}

fn check(new: &NewScenes, known: usize) -> Result<(), ApiError> {
    let count = new.summaries.len();
    if !(1..=NEW_SCENES).contains(&count) {
        return Err(ApiError::unfit(
            "summaries",
            format!("has {count}"),
            format!("1 to {NEW_SCENES}"),
        ));
    }
    if known + count > SCENES {
        return Err(ApiError::unfit(
            "summaries",
            format!("are too many beside {known} scenes"),
            format!("{SCENES} in all"),
        ));
    }
    let unfit = new.summaries.iter().position(|text| {
        text.trim().is_empty() || text.len() > SUMMARY_BYTES || text.contains('\0')
    });
    match unfit {
        None => Ok(()),
        Some(at) => {
            let allowed = format!("1 to {SUMMARY_BYTES} bytes without NUL");
            Err(ApiError::unfit(
                format!("summaries[{at}]"),
                "is empty, too long or has a NUL",
                allowed,
            ))
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
    found.map_err(told)?.ok_or(ApiError::Missing("scene"))
}

/// A batch whose novel and scenes are there.
async fn order(
    application: &Application,
    caller: &Caller,
    novel: &str,
    batch: Batch,
) -> Result<BatchOrder, ApiError> {
    let known = application
        .library
        .scenes(caller.owner(), novel)
        .await
        .map_err(told)?;
    let known = known.ok_or(ApiError::Missing("novel"))?;
    if let Some(scenes) = &batch.scenes {
        if !(1..=SCENES).contains(&scenes.len()) {
            return Err(ApiError::unfit(
                "scenes",
                format!("has {}", scenes.len()),
                format!("1 to {SCENES} numbers"),
            ));
        }
        let numbers: std::collections::HashSet<i64> =
            known.iter().map(|scene| scene.number).collect();
        if let Some(unknown) = scenes.iter().find(|scene| !numbers.contains(*scene)) {
            let allowed = format!("numbers of this novel's {} scenes", known.len());
            return Err(ApiError::unfit(
                "scenes",
                format!("has {unknown}, which is not there"),
                allowed,
            ));
        }
    }
    Ok(BatchOrder {
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
    let handle = of_caller(caller, novel, task)
        .await
        .map_err(ApiError::from)?;
    Ok(Submitted {
        novel_id: novel,
        scenes: None,
        task_id: handle.id().0.to_string(),
    }
    .answer())
}
