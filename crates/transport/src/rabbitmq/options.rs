//! How the broker is set up.

use longhaul_domain::{Invalid, bounds};

/// The kind of RabbitMQ queue that carries hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// A classic queue with nine priorities: an urgent hint overtakes.
    #[default]
    Classic,
    /// A quorum queue, replicated on several servers. Depending on the server's version, priorities
    /// have little or no effect.
    Quorum,
}

/// How Longhaul uses a RabbitMQ server.
#[derive(Debug, Clone, Default)]
pub struct RabbitOptions {
    /// Precedes all names, followed by a dot, so that several systems can share a virtual host. An
    /// empty namespace adds nothing.
    pub namespace: String,
    pub queue_kind: QueueKind,
}

/// The longest namespace. With it the longest queue name is well below the 255 bytes of AMQP.
const NAMESPACE_BYTES: usize = 50;

impl RabbitOptions {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        if self.namespace.is_empty() {
            return Ok(());
        }

        bounds::check_label("broker.namespace", &self.namespace)?;
        if self.namespace.len() > NAMESPACE_BYTES {
            return Err(Invalid::new(
                "broker.namespace",
                format!("has {} bytes", self.namespace.len()),
                format!("at most {NAMESPACE_BYTES} bytes"),
            ));
        }

        Ok(())
    }
}
