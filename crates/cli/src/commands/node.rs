//! A node, from its configuration to its last breath. `dev`, `serve` and `worker` are this with different words.

use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use longhaul::{Builder, Longhaul, StopSignal, operating::SqlStore, server::CancellationToken};
use tokio::net::TcpListener;

use crate::{client::short_duration, config::Config, samples};

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// Answers the HTTP API.
    Api,
    /// Runs tasks.
    Worker,
    /// Does for all nodes what one must do: rescue, expire, prune, count.
    Duties,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Api => "api",
            Self::Worker => "worker",
            Self::Duties => "duties",
        })
    }
}

/// What is to be started.
pub(super) struct Node {
    pub(super) config: Config,
    pub(super) roles: Vec<Role>,
    /// Whether the sample types and the novel application are known.
    pub(super) samples: bool,
    /// What people and scripts are told: that it runs, and where the API is.
    pub(super) greet: fn(Option<SocketAddr>, &[Role]) -> String,
}

impl Node {
    /// Runs until a signal, then drains; a second signal ends it at once.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        if self.has(Role::Api) {
            raise_file_limit();
        }
        // Before anything is touched: what cannot be served must not start to work.
        let listener = if self.has(Role::Api) {
            Some(self.listen().await?)
        } else {
            None
        };
        let address = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let mut stop = StopSignal::new()?;
        // A store that does not answer must not keep the program from being stopped.
        let longhaul = tokio::select! {
            started = self.start() => started?,
            () = stop.heard() => {
                tracing::info!("stopped before it had started");
                return Ok(());
            }
        };
        let closing = CancellationToken::new();
        let (identity, settings) = (
            self.config.identity_mode()?,
            self.config.listener_settings(),
        );
        let api =
            listener.map(|listener| longhaul.serve(listener, identity, settings, closing.clone()));
        let mut serving = std::pin::pin!(async {
            match api {
                Some(api) => api.await?,
                None => closing.cancelled().await,
            }
            anyhow::Ok(())
        });
        // A node works whether or not somebody reads this.
        let _ = writeln!(std::io::stdout(), "{}", (self.greet)(address, &self.roles));
        tokio::select! {
            ended = serving.as_mut() => return ended,
            () = stop.heard() => {}
        }
        let patience = short_duration(self.config.worker.drain.as_millis());
        tracing::info!(
            "stopping: what runs may finish within {patience}; a second signal ends it now"
        );
        longhaul.begin_drain();
        closing.cancel();
        let served = tokio::select! {
            served = serving => served,
            () = stop.heard() => return at_once(),
        };
        if let Err(error) = served {
            tracing::warn!("the server did not stop cleanly: {error:#}");
        }
        tokio::select! {
            () = longhaul.stop() => {
                tracing::info!("stopped; what did not finish was handed back");
                Ok(())
            }
            () = stop.heard() => at_once(),
        }
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
        let started = match (self.has(Role::Worker), self.has(Role::Duties)) {
            (true, _) => builder.start().await,
            (false, true) => builder.start_duties().await,
            (false, false) => {
                let longhaul = builder.without_worker()?;
                longhaul
                    .declare_topology(&self.config.queues())
                    .await
                    .map(|()| longhaul)
            }
        };
        Ok(started?)
    }

    async fn register(&self, builder: Builder) -> anyhow::Result<Builder> {
        let name = rustix::system::uname();
        let host = name.nodename().to_string_lossy();
        let host = if host.is_empty() { "localhost" } else { &*host };
        let mut builder = builder
            .worker(self.config.worker_settings(host, self.has(Role::Duties)))
            .duties(self.config.duty_settings())
            .routing(self.config.routing())
            .limits(self.config.limit_rules())
            .artifacts(self.config.artifacts_folder())
            .file_life(self.config.file_life())
            .nodes(self.config.redis.nodes)
            .external_events(self.config.external_events()?);
        if let Some((url, options)) = self.config.rabbitmq() {
            builder = builder.rabbitmq(url, options);
        }
        if let Some(url) = &self.config.redis.url {
            builder = builder.redis(url.reveal(), &self.config.redis.namespace);
        }
        if let Some(key) = self.config.artifact_key()? {
            builder = builder.artifact_key(key);
        }
        if !self.samples {
            if self.has(Role::Api) || self.has(Role::Worker) {
                tracing::warn!(
                    "this node knows no task type, so it takes and runs no task: start it with --samples, or build a \
                     program with types of your own (docs/tasks.md)"
                );
            }
            return Ok(builder);
        }
        let url = self.config.store.url.reveal();
        let builder =
            longhaul_novel::install(samples::register(builder), url, &novel_settings()?).await?;
        Ok(self.insist(builder))
    }

    /// What the operator says of limits and resources counts, whatever an application has brought along.
    fn insist(&self, builder: Builder) -> Builder {
        let limits = self.config.limit_rules().limits;
        let builder = limits
            .into_iter()
            .fold(builder, |builder, (key, limit)| builder.limit(&key, limit));
        let resources = &self.config.worker.resources;
        resources.iter().fold(builder, |builder, (name, tasks)| {
            builder.resource(name, *tasks)
        })
    }
}

/// What the environment says of the novel application: who writes, and how fast.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the program reads these variables"
)]
fn novel_settings() -> Result<longhaul_novel::Settings, longhaul_novel::SettingsError> {
    longhaul_novel::Settings::from_environment(|name| std::env::var(name).ok())
}

fn at_once() -> anyhow::Result<()> {
    tracing::warn!("stopped at once; what ran is taken up again when its node is found dead");
    Ok(())
}

/// Every connection is a file handle, and many systems give a process only 1,024 unless it asks for what it may have.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )
        .is_err()
    {
        tracing::warn!(?current, "the limit of open files could not be raised");
    }
}

/// The store with a schema that is this program's.
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

/// Makes a folder that only its owner may look into: what tasks are given is nobody else's business.
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
