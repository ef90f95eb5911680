//! Signals that stop the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Longhaul;

/// Ctrl-C, or SIGTERM from a supervisor.
#[derive(Debug)]
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Installs the handlers: from now on neither signal ends the process by itself. Needs a tokio
    /// runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns at the next signal.
    pub async fn received(&mut self) {
        // Both signals mean the same: stop.
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Longhaul {
    /// Runs until SIGTERM or Ctrl-C, then stops as [`Self::stop`] does. A second signal ends the
    /// wait: tasks that still run resume as after a crash, in another process or the next.
    pub async fn stop_at_signal(self) -> io::Result<()> {
        let mut signal = StopSignal::new()?;
        signal.received().await;
        tracing::info!("stopping; running tasks may finish; a second signal ends the wait");

        // A second signal ends a drain that takes too long.
        tokio::select! {
            () = self.stop() => {}
            () = signal.received() => tracing::warn!(
                "stopped without waiting; running tasks will resume as after a crash"
            ),
        }

        Ok(())
    }
}
