//! Longhaul behind its HTTP API.

use std::sync::Arc;

use longhaul_domain::Invalid;
use longhaul_server::{Api, IdentityMode, ListenerSettings, ServerError};
use longhaul_worker::WorkerIntake;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    Longhaul,
    mounting::{Application, mounts},
};

impl Longhaul {
    /// Serves the HTTP API and the applications that are mounted beside it until `closing`; then requests that are under way may end.
    pub fn serve(
        &self,
        listener: TcpListener,
        identity: IdentityMode,
        settings: ListenerSettings,
        closing: CancellationToken,
    ) -> impl Future<Output = Result<(), ServerError>> + Send + use<> {
        let (api, mounts) = (self.api(identity), self.mounts.clone());
        async move { longhaul_server::serve(listener, api?, mounts, settings, closing).await }
    }

    pub(crate) fn with_applications(
        mut self,
        applications: Vec<Application>,
    ) -> Result<Self, Invalid> {
        self.mounts = mounts(applications, &self)?;
        Ok(self)
    }

    fn api(&self, identity: IdentityMode) -> Result<Arc<Api>, ServerError> {
        let services = Arc::clone(self.services());
        let catalog = services.registry.catalog(&services.routing);
        let engine = Arc::clone(&services.engine);
        let (streams, files) = (Arc::clone(&services.streams), Arc::clone(&services.files));
        Api::new(
            engine,
            Arc::new(WorkerIntake(services)),
            streams,
            files,
            catalog,
            identity,
        )
    }
}
