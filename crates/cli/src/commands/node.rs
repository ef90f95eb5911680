//! A node, from its configuration to its end. `dev`, `serve` and `worker` start one with different
//! options.

use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use longhaul::{Builder, Longhaul, StopSignal, operating::SqlStore, server::CancellationToken};
use tokio::net::TcpListener;

use crate::{client::short_duration, config::Config, samples};

/// The work of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// Serve the HTTP API.
    Api,
    /// Run tasks.
    Worker,
    /// Do the background work that one node does for all: rescue, expire, prune, count.
    Maintenance,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::Worker => "worker",
            Self::Maintenance => "maintenance",
        })
    }
}

/// A node to start.
pub(super) struct Node {
    pub(super) config: Config,
    pub(super) roles: Vec<Role>,
    /// Whether to register the sample types and the novel application.
    pub(super) samples: bool,
    /// Builds the line that says that the node runs and where its API is.
    pub(super) greet: fn(Option<SocketAddr>, &[Role]) -> String,
}

impl Node {
    /// Runs until a signal, then drains; a second signal ends it at once.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        if self.has(Role::Api) {
            raise_file_limit();
        }

        // Bind first: a node that cannot serve its API must not start to work.
        let listener = if self.has(Role::Api) {
            Some(self.listen().await?)
        } else {
            None
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut stop = StopSignal::new()?;

        // A signal also ends the wait for a store that does not answer.
        let longhaul = tokio::select! {
            started = self.start() => started?,
            () = stop.received() => {
                tracing::info!("stopped before it had started");
                return Ok(());
            }
        };

        let closing = CancellationToken::new();
        let mut serving = std::pin::pin!(self.serve(&longhaul, listener, closing.clone())?);

        // The node runs even if standard output is closed.
        let _ = writeln!(std::io::stdout(), "{}", (self.greet)(address, &self.roles));
        tokio::select! {
            ended = serving.as_mut() => return ended,
            () = stop.received() => {}
        }

        // A second signal drops the drain where it is.
        tokio::select! {
            () = self.drain(longhaul, serving, closing) => Ok(()),
            () = stop.received() => {
                tracing::warn!(
                    "stopped at once; running tasks are rescued when this node is found dead"
                );
                Ok(())
            }
        }
    }

    /// Lets requests and running tasks finish, within their times.
    async fn drain(
        &self,
        longhaul: Longhaul,
        serving: impl Future<Output = anyhow::Result<()>>,
        closing: CancellationToken,
    ) {
        let drain = short_duration(self.config.worker.drain.as_millis());
        tracing::info!(
            "stopping: running tasks may finish within {drain}; a second signal ends them now"
        );

        // Drain before the server closes, so that readiness says so while connections remain.
        longhaul.begin_drain();
        closing.cancel();
        if let Err(error) = serving.await {
            tracing::warn!("the server did not stop cleanly: {error:#}");
        }

        longhaul.stop().await;
        tracing::info!("stopped; unfinished tasks were handed back");
    }

    /// A future that serves the API until `closing`. Without a listener, it only waits for that.
    fn serve(
        &self,
        longhaul: &Longhaul,
        listener: Option<TcpListener>,
        closing: CancellationToken,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
        let identity = self.config.identity.settings()?;
        let settings = self.config.http.settings();
        let api =
            listener.map(|listener| longhaul.serve(listener, identity, settings, closing.clone()));

        Ok(async move {
            match api {
                Some(api) => api.await?,
                None => closing.cancelled().await,
            }
            Ok(())
        })
    }

    fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    async fn listen(&self) -> anyhow::Result<TcpListener> {
        self.config.check_listening()?;

        let address = self.config.http.listen;
        let bound = TcpListener::bind(address).await;
        bound.with_context(|| {
            format!("{address} cannot be listened on; --listen takes another address")
        })
    }

    async fn start(&self) -> anyhow::Result<Longhaul> {
        let url = &self.config.store.url;
        let store = open_store(&self.config)
            .await
            .with_context(|| format!("{url} cannot be opened"))?;
        let builder = self.register(Longhaul::on(store).await?).await?;

        if self.has(Role::Worker) {
            return Ok(builder.start().await?);
        }
        if self.has(Role::Maintenance) {
            return Ok(builder.start_maintenance().await?);
        }

        let longhaul = builder.without_worker()?;
        longhaul.declare_topology(&self.config.queues()).await?;
        Ok(longhaul)
    }

    async fn register(&self, builder: Builder) -> anyhow::Result<Builder> {
        let builder = self.configure(builder)?;

        if !self.samples {
            if self.has(Role::Api) || self.has(Role::Worker) {
                tracing::warn!(
                    "no task types are registered, so this node accepts and runs no tasks: start \
                     it with --samples, or build a program with your own types (docs/tasks.md)"
                );
            }
            return Ok(builder);
        }

        let url = self.config.store.url.reveal();
        let builder = samples::register(builder);
        let builder = longhaul_novel::install(builder, url, &novel_settings()?).await?;
        Ok(self.override_limits(builder))
    }

    fn configure(&self, builder: Builder) -> anyhow::Result<Builder> {
        let config = &self.config;
        let host = host_name();
        let worker = config.worker_settings(&host, self.has(Role::Maintenance));

        let mut builder = builder
            .worker(worker)
            .maintenance(config.maintenance.settings())
            .routing(config.routing()?)
            .limits(config.limit_rules())
            .artifacts(config.artifacts_folder())
            .file_life(config.artifacts.life())
            .nodes(config.redis.nodes)
            .external_events(config.external_events()?);

        if let Some((url, options)) = config.rabbitmq() {
            builder = builder.rabbitmq(url, options);
        }
        if let Some(url) = &config.redis.url {
            builder = builder.redis(url.reveal(), &config.redis.namespace);
        }
        if let Some(key) = config.artifacts.signing_key()? {
            builder = builder.artifact_key(key);
        }

        Ok(builder)
    }

    /// Sets the configured limits and resources again: they override those of an application.
    fn override_limits(&self, mut builder: Builder) -> Builder {
        for (key, limit) in self.config.limit_rules().limits {
            builder = builder.limit(&key, limit);
        }
        for (name, tasks) in &self.config.worker.resources {
            builder = builder.resource(name, *tasks);
        }

        builder
    }
}

/// The name of this machine.
fn host_name() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();

    if name.is_empty() {
        "localhost".to_owned()
    } else {
        name.into_owned()
    }
}

/// The settings of the novel application in the environment: who writes, and how fast.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the program reads these variables"
)]
fn novel_settings() -> Result<longhaul_novel::Settings, longhaul_novel::SettingsError> {
    longhaul_novel::Settings::from_environment(|name| std::env::var(name).ok())
}

/// Raises the limit of open files as far as allowed. Every connection is a file handle, and many
/// systems give a process only 1,024 unless it asks for more.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }

    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(?current, "the limit of open files could not be raised");
    }
}

/// Opens the store and, if the configuration says so, migrates its schema.
async fn open_store(config: &Config) -> anyhow::Result<SqlStore> {
    if let Some(folder) = config.store_file().as_deref().and_then(Path::parent) {
        make_folder(folder)?;
    }

    let store = SqlStore::connect(config.store.url.reveal(), config.store_options()).await?;
    if config.store.migrate {
        store.migrate().await?;
    }

    Ok(store)
}

/// Makes a folder that only its owner can read: the parameters of tasks are private.
pub(super) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }

    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    made.with_context(|| format!("the folder {} cannot be made", folder.display()))
}
