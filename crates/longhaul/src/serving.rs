//! Longhaul behind its HTTP API.

use std::sync::Arc;

use longhaul_engine::Submissions;
use longhaul_sdk::Client;
use longhaul_server::{Api, IdentityMode, ListenerSettings, ServerError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Longhaul;

impl Longhaul {
    /// Serves the HTTP API and the mounted applications until `closing`. Requests in progress may
    /// then finish.
    pub fn serve(
        &self,
        listener: TcpListener,
        identity: IdentityMode,
        settings: ListenerSettings,
        closing: CancellationToken,
    ) -> impl Future<Output = Result<(), ServerError>> + Send + use<> {
        let api = self.api(identity, &settings);
        let mounts = self.mounts.clone();
        async move { longhaul_server::serve(listener, api?, mounts, settings, closing).await }
    }

    fn api(
        &self,
        identity: IdentityMode,
        settings: &ListenerSettings,
    ) -> Result<Arc<Api>, ServerError> {
        let client = &self.client;
        let submissions: Arc<dyn Submissions> = Arc::<Client>::clone(client);

        Api::new(
            Arc::clone(&client.engine),
            submissions,
            Arc::clone(&client.streams),
            Arc::clone(&client.files),
            client.engine.catalog().clone(),
            identity,
            settings,
        )
    }
}
