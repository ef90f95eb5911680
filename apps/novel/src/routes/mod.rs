//! The HTTP API of the application, mounted beside Longhaul's: who calls is known, and what they see is their own.

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
    /// A hand on Longhaul.
    pub longhaul: Longhaul,
}

/// The routes, below the prefix that they are mounted at.
pub fn router(application: Arc<Application>) -> Router {
    Router::new()
        .route("/api/novels", get(novels::list).post(novels::import))
        .route("/api/novels/sample", post(novels::import_sample))
        .route(
            "/api/novels/{novel}",
            get(novels::read).delete(novels::delete),
        )
        .route("/api/novels/{novel}/scenes", post(scenes::add))
        .route("/api/novels/{novel}/scenes/{scene}", get(scenes::read))
        .route(
            "/api/novels/{novel}/scenes/{scene}/summary",
            post(scenes::summarize),
        )
        .route(
            "/api/novels/{novel}/scenes/{scene}/text",
            post(scenes::tell),
        )
        .route(
            "/api/novels/{novel}/summaries",
            post(scenes::many::<BatchGenerateSummary>),
        )
        .route(
            "/api/novels/{novel}/texts",
            post(scenes::many::<BatchGenerateScene>),
        )
        .with_state(application)
}

/// A task that was submitted, and where to look at it.
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

/// A task of the caller's, about this novel: theirs is the name that it runs in, and the tier that decides its queue.
fn of_caller<T: Task>(caller: &Caller, novel: &str, task: Submission<T>) -> Submission<T> {
    let task = task.owner(caller.owner()).key(&format!("novel/{novel}"));
    match caller.tier() {
        Some(tier) => task.tier(tier),
        None => task,
    }
}

/// A novel in the path. What is no id is no novel.
struct NovelPath(String);

/// A scene in the path.
struct ScenePath {
    novel: String,
    scene: i64,
}

impl<S: Send + Sync> FromRequestParts<S> for NovelPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(novel_id(&path.map_err(|_| ApiError::NoRoute)?.0)?))
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
            allowed: "what docs/novel.md says of this call".to_owned(),
        };
        query.map(|query| Self(query.0)).map_err(refused)
    }
}

/// The id as the tables have it.
fn novel_id(text: &str) -> Result<String, ApiError> {
    uuid::Uuid::try_parse(text)
        .map(|id| id.to_string())
        .map_err(|_| ApiError::Missing("novel"))
}

/// What a caller is told when the tables could not be asked.
fn told(error: LibraryError) -> ApiError {
    if error.is_passing() {
        return StoreError::Unavailable(error.to_string()).into();
    }
    match error {
        LibraryError::Longhaul(error) => error.into(),
        LibraryError::Database(_) | LibraryError::Migration(_) | LibraryError::UnknownDatabase => {
            ApiError::Failed(error.to_string())
        }
    }
}
