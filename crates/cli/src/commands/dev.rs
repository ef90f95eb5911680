//! `longhaul dev`: everything in one process, for one machine.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use longhaul::{
    Longhaul, WorkerSettings,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::samples;

/// What `dev` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul dev --listen 127.0.0.1:7080 --data ./longhaul-data")]
pub struct Dev {
    /// Where the HTTP API listens. Only this machine may call.
    #[arg(long, default_value = "127.0.0.1:7080")]
    listen: SocketAddr,
    /// The folder for the store and the files that tasks make. It is made when it is missing.
    #[arg(long, default_value = "./longhaul-data")]
    data: PathBuf,
}

pub async fn run(dev: Dev) -> anyhow::Result<()> {
    anyhow::ensure!(
        dev.listen.ip().is_loopback(),
        "dev asks for no token and listens only on this machine: use --listen 127.0.0.1:{}",
        dev.listen.port()
    );
    let listener = TcpListener::bind(dev.listen)
        .await
        .with_context(|| format!("{} cannot be listened on; --listen takes another address", dev.listen))?;
    let address = listener.local_addr()?;
    std::fs::create_dir_all(&dev.data).with_context(|| format!("{} cannot be made", dev.data.display()))?;
    let url = format!("sqlite://{}", dev.data.join("longhaul.db").display());
    let builder = Longhaul::open(&url).await.with_context(|| format!("{url} cannot be opened"))?;
    let worker = WorkerSettings { name: "dev".to_owned(), ..WorkerSettings::default() };
    let builder = samples::register(builder.worker(worker));
    let longhaul = longhaul_novel::install(builder, &url, &novel_settings()?).await?.start().await?;
    let mut stop = StopSignal::new()?;
    let closing = CancellationToken::new();
    let serving = longhaul.serve(listener, IdentityMode::Dev, ListenerSettings::default(), closing.clone());
    let mut serving = std::pin::pin!(serving);
    greet(address);
    tokio::select! {
        ended = serving.as_mut() => return Ok(ended?),
        () = stop.heard() => {}
    }
    tracing::info!("stopping: what runs may finish within 30 seconds; a second signal ends it now");
    closing.cancel();
    tokio::select! {
        () = async {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the server did not stop cleanly");
            }
            longhaul.stop().await;
        } => {}
        () = stop.heard() => tracing::warn!("stopped at once; what ran is taken up again at the next start"),
    }
    Ok(())
}

/// What the environment says of the novel application: who writes, and how fast.
#[expect(clippy::disallowed_methods, reason = "the one place where the program reads these variables")]
fn novel_settings() -> Result<longhaul_novel::Settings, longhaul_novel::SettingsError> {
    longhaul_novel::Settings::from_environment(|name| std::env::var(name).ok())
}

/// Ctrl-C, or what a supervisor sends.
struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[expect(clippy::print_stdout, reason = "what a person who starts this wants to know")]
fn greet(address: SocketAddr) {
    let api = format!("http://{address}/api");
    let novels = format!("http://{address}{}/api/novels", longhaul_novel::PREFIX);
    println!(
        "Longhaul is running.

  open   http://{address}                 what runs now, live
         http://{address}/docs            the API to read and try
         {api}/tasks            your tasks
         {api}/types            what can be submitted, with schemas
         {api}/openapi.json     the whole API

  try    longhaul submit sample.progress '{{\"steps\":50,\"stepMs\":200}}' --watch
         longhaul top
         curl -s {api}/tasks -H 'content-type: application/json' \\
           -d '{{\"taskType\":\"sample.progress\",\"parameters\":{{\"steps\":50,\"stepMs\":200}}}}'
         curl -N {api}/events                     # live
         curl -s '{api}/tasks?status=RUNNING'
         curl -s {api}/tasks/ID/why
         curl -X DELETE {api}/tasks/ID            # cancel

  novel  curl -sX POST {novels}/sample        # a novel, and a summary of each of its scenes
         curl -s {novels}/NOVEL_ID            # the summaries, as they come

  Ctrl-C stops it; tasks go on where they were at the next start."
    );
}
