//! Another process on the server's store.

use longhaul::operating::{SqlStore, StoreOptions};
use longhaul_domain::NodeId;

use crate::server::Server;

impl Server {
    /// The store as another process has it: its changes are not published in this one.
    pub(crate) async fn store_of_another_process(&self) -> SqlStore {
        let options = StoreOptions {
            is_beside: true,
            ..StoreOptions::default()
        };
        SqlStore::connect(&self.database.url, options)
            .await
            .unwrap()
    }

    /// Registers a node of another process, which may run any type.
    pub(crate) async fn register_node_of_another_process(&self) {
        let other = NodeId(uuid::Uuid::from_u128(7));
        let leases = self.longhaul.engine().leases();
        leases
            .register_node(other, "other", "elsewhere", None)
            .await
            .unwrap();
    }
}
