//! Longhaul with its HTTP API in this process.

use std::net::SocketAddr;

use longhaul::{
    Builder, Context, Longhaul, Outcome, Task,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The parameters of a task of about 200 bytes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Payload {
    pub(crate) id: usize,
    pub(crate) pad: String,
}

pub(crate) fn payload(id: usize) -> Payload {
    Payload {
        id,
        pad: "x".repeat(160),
    }
}

/// A type that no worker runs here.
#[derive(Debug)]
pub(crate) struct Noop;

impl Task for Noop {
    const TYPE: &'static str = "noop";
    type Params = Payload;
    type Output = bool;

    async fn run(&self, _: Context<Self>) -> Outcome<bool> {
        Ok(true)
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) longhaul: Longhaul,
    pub(crate) address: SocketAddr,
    closing: CancellationToken,
    serving: JoinHandle<()>,
}

impl Served {
    /// Serves the API without a worker.
    pub(crate) async fn idle(builder: Builder) -> anyhow::Result<Self> {
        Self::start(builder.register(Noop).without_worker()?).await
    }

    pub(crate) async fn start(longhaul: Longhaul) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let closing = CancellationToken::new();
        let serving = longhaul.serve(
            listener,
            IdentityMode::Dev,
            ListenerSettings::default(),
            closing.clone(),
        );

        // The server runs beside the clients of this process.
        let serving = tokio::spawn(async {
            if let Err(error) = serving.await {
                eprintln!("the server stopped: {error}");
            }
        });

        Ok(Self {
            longhaul,
            address,
            closing,
            serving,
        })
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.closing.cancel();
        self.serving.await?;
        self.longhaul.stop().await;
        Ok(())
    }
}
