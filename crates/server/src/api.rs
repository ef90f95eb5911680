//! The state that all handlers share, and the parameters of paths.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::{body::Bytes, extract::FromRequestParts, http::request::Parts};
use longhaul_domain::{TaskId, contract::StreamLog};
use longhaul_engine::{Catalog, Engine, Files, Submissions};
use tokio_util::sync::CancellationToken;

use crate::{
    body::BodyBudget, identity::IdentityMode, listener::ListenerSettings,
    live::missed_changes::PeerPresence, observe::HttpMetrics, openapi, problem::ApiError,
    schemas::Schemas, stream_limits::StreamLimits, tokens::Tokens,
};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the schema of the parameters of {task_type:?} is not a JSON Schema: {problem}")]
    Schema { task_type: String, problem: String },
    #[error("the OpenAPI document could not be written: {0}")]
    Document(String),
    #[error(
        "without tokens the server must listen on a loopback address: {0} is not one; \
         use 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    #[error("the address of the listener is unknown: {0}")]
    Address(#[from] std::io::Error),
}

/// The state of the server.
#[derive(Debug)]
pub struct Api {
    pub(crate) engine: Arc<Engine>,
    pub(crate) submissions: Arc<dyn Submissions>,
    /// The output of tasks.
    pub(crate) streams: Arc<dyn StreamLog>,
    /// The files that tasks made.
    pub(crate) files: Arc<Files>,
    pub(crate) catalog: Catalog,
    pub(crate) schemas: Schemas,
    pub(crate) identity: IdentityMode,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) stream_limits: Arc<StreamLimits>,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) document: Bytes,
    pub(crate) http: HttpMetrics,
    pub(crate) peers: PeerPresence,
    /// Cancelled at shutdown, so that live streams end at once.
    pub(crate) closing: CancellationToken,
}

impl Api {
    /// Compiles the schemas and writes the OpenAPI document.
    pub fn new(
        engine: Arc<Engine>,
        submissions: Arc<dyn Submissions>,
        streams: Arc<dyn StreamLog>,
        files: Arc<Files>,
        catalog: Catalog,
        identity: IdentityMode,
        settings: &ListenerSettings,
    ) -> Result<Arc<Self>, ServerError> {
        let schemas = Schemas::compile(&catalog)?;
        let document = openapi::document(&identity)
            .to_json()
            .map_err(|error| ServerError::Document(error.to_string()))?;
        let document = Bytes::from(document);
        let closing = CancellationToken::new();
        let http = HttpMetrics::new(engine.metrics());
        let tokens = Arc::new(Tokens::new(Arc::clone(&engine)));

        Ok(Arc::new(Self {
            http,
            peers: PeerPresence::default(),
            engine,
            submissions,
            streams,
            files,
            catalog,
            schemas,
            identity,
            tokens,
            body_budget: Arc::new(BodyBudget::new(settings)),
            stream_limits: Arc::new(StreamLimits::new(settings)),
            document,
            closing,
        }))
    }
}

/// The id of a task in the path. An invalid id is a 404.
pub(crate) struct PathId(pub(crate) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let PathText(text) = PathText::from_request_parts(parts, state).await?;
        let id = uuid::Uuid::try_parse(&text).map_err(|_| longhaul_domain::StoreError::NotFound)?;
        Ok(Self(TaskId(id)))
    }
}

/// The only parameter of a path, as text.
pub(crate) struct PathText(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathText {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        read.map(|path| Self(path.0)).map_err(|_| ApiError::NoRoute)
    }
}
