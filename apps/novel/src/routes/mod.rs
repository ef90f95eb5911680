//! The HTTP API of the application, mounted beside Longhaul's. Callers are authenticated and see
//! only their own novels.

mod novels;
mod scenes;

use std::sync::Arc;

use axum::{
    Router,
    extract::FromRequestParts,
    http::request::Parts,
    response::Response,
    routing::{get, post},
};
use longhaul::{
    Longhaul, StoreError, Submission, Task,
    server::{ApiError, Caller, accepted},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    library::{Library, LibraryError},
    tasks::{BatchGenerateScene, BatchGenerateSummary},
};

/// What the routes share.
#[derive(Debug)]
pub struct Application {
    /// The application's tables.
    pub library: Library,
    /// Submits the tasks.
    pub longhaul: Longhaul,
}

/// The routes, below the prefix that they are mounted at.
pub fn router(application: Arc<Application>) -> Router {
    let novels = Router::new()
        .route("/api/novels", get(novels::list).post(novels::import))
        .route("/api/novels/sample", post(novels::import_sample))
        .route(
            "/api/novels/{novel}",
            get(novels::read).delete(novels::delete),
        );

    let scenes = Router::new()
        .route("/api/novels/{novel}/scenes", post(scenes::add))
        .route("/api/novels/{novel}/scenes/{scene}", get(scenes::read))
        .route(
            "/api/novels/{novel}/scenes/{scene}/summary",
            post(scenes::summarize),
        )
        .route(
            "/api/novels/{novel}/scenes/{scene}/text",
            post(scenes::write),
        )
        .route(
            "/api/novels/{novel}/summaries",
            post(scenes::batch::<BatchGenerateSummary>),
        )
        .route(
            "/api/novels/{novel}/texts",
            post(scenes::batch::<BatchGenerateScene>),
        );

    novels.merge(scenes).with_state(application)
}

/// The answer after a task was submitted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Submitted<'s> {
    novel_id: &'s str,
    #[serde(skip_serializing_if = "Option::is_none")]
    scenes: Option<&'s [i64]>,
    task_id: String,
}

impl Submitted<'_> {
    fn answer(&self) -> Response {
        accepted(&format!("/api/tasks/{}", self.task_id), self)
    }
}

/// Gives a task about this novel to the caller. The caller's tier decides its queue.
fn for_caller<T: Task>(caller: &Caller, novel: &str, task: Submission<T>) -> Submission<T> {
    let task = task.owner(caller.owner()).key(&format!("novel/{novel}"));
    match caller.tier() {
        Some(tier) => task.tier(tier),
        None => task,
    }
}

/// The novel in the path. An invalid id is a 404.
struct NovelPath(String);

/// The scene in the path. An invalid number is a 404.
struct ScenePath {
    novel: String,
    scene: i64,
}

impl<S: Send + Sync> FromRequestParts<S> for NovelPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        let path = path.map_err(|_| ApiError::NoRoute)?;
        Ok(Self(novel_id(&path.0)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for ScenePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<(String, String)>::from_request_parts(parts, state).await;
        let (novel, scene) = path.map_err(|_| ApiError::NoRoute)?.0;
        let scene = scene.parse().map_err(|_| ApiError::Missing("scene"))?;
        Ok(Self {
            novel: novel_id(&novel)?,
            scene,
        })
    }
}

/// The query of a request.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let refused = |error: axum::extract::rejection::QueryRejection| ApiError::BadFilter {
            field: "query".to_owned(),
            problem: error.body_text(),
            allowed: "the parameters in docs/novel.md".to_owned(),
        };
        query.map(|query| Self(query.0)).map_err(refused)
    }
}

/// The id, as it is written in the tables.
fn novel_id(text: &str) -> Result<String, ApiError> {
    uuid::Uuid::try_parse(text)
        .map(|id| id.to_string())
        .map_err(|_| ApiError::Missing("novel"))
}

/// The answer to an error of the tables.
fn api_error(error: LibraryError) -> ApiError {
    if error.is_transient() {
        return StoreError::Unavailable(error.to_string()).into();
    }

    match error {
        LibraryError::Longhaul(error) => error.into(),
        LibraryError::Database(_) | LibraryError::Migration(_) | LibraryError::UnknownDatabase => {
            ApiError::Failed(error.to_string())
        }
    }
}
