//! How the broker is set up.

use longhaul_domain::{Invalid, bounds};

/// What a lane is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneKind {
    /// A classic queue with nine priorities: an urgent bell overtakes.
    #[default]
    Classic,
    /// A quorum queue: kept by several servers. Priorities count for little or nothing, by the version of the server.
    Quorum,
}

/// How Longhaul uses a RabbitMQ server.
#[derive(Debug, Clone, Default)]
pub struct RabbitOptions {
    /// Stands before all names, with a dot: several systems can share a virtual host. Empty: nothing stands there.
    pub namespace: String,
    pub lanes: LaneKind,
}

/// With it the longest name of a lane is still well below the 255 bytes that AMQP allows.
const NAMESPACE_BYTES: usize = 50;

impl RabbitOptions {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        if self.namespace.is_empty() {
            return Ok(());
        }
        bounds::check_label("broker.namespace", &self.namespace)?;
        if self.namespace.len() > NAMESPACE_BYTES {
            let allowed = format!("at most {NAMESPACE_BYTES} bytes");
            return Err(Invalid::new(
                "broker.namespace",
                format!("has {} bytes", self.namespace.len()),
                allowed,
            ));
        }
        Ok(())
    }
}
