//! The steps of a shutdown.

use tokio_util::sync::CancellationToken;

/// Three steps that follow each other. The loops look at the one that concerns them.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    /// The node claims nothing more. Running handlers may finish.
    pub(crate) draining: CancellationToken,
    /// Handlers that do not stop are dropped.
    pub(crate) dropping: CancellationToken,
    /// The remaining loops end.
    pub(crate) closing: CancellationToken,
}

impl Shutdown {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }
}
