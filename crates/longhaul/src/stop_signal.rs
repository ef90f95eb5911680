//! How a process is told to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Longhaul;

/// Ctrl-C, or SIGTERM, which a supervisor sends.
#[derive(Debug)]
pub struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Listens from now on: neither ends the process by itself any more. Within a runtime of tokio's, as all of Longhaul.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns at the next one.
    pub async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Longhaul {
    /// Goes on until the process is told to end, by SIGTERM or Ctrl-C, and then stops as [`Self::stop`] does. Whoever tells it a
    /// second time does not want to wait: what still runs is then taken up again as after a crash, by another process or the next.
    pub async fn stop_at_signal(self) -> io::Result<()> {
        let mut signal = StopSignal::new()?;
        signal.heard().await;
        tracing::info!("stopping: what runs may finish; a second signal does not wait");
        tokio::select! {
            () = self.stop() => {}
            () = signal.heard() => tracing::warn!("stopped without waiting; what ran is taken up again as after a crash"),
        }
        Ok(())
    }
}
