//! A worker process: Longhaul as users run it, with short times, the torture's task types and a
//! journal.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul::{
    Builder, Longhaul, RabbitOptions,
    operating::{SqlStore, StoreOptions},
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::{
    gateway::{self, Answer, Numbered, Request},
    journal::Journal,
    settings, tasks,
};

/// The most answers waiting to be written.
const ANSWERS: usize = 1_024;
/// The prefix of all keys in Redis.
const REDIS_NAMESPACE: &str = "torture";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The database.
    #[arg(long)]
    url: String,
    /// The folder of the journal.
    #[arg(long)]
    dir: PathBuf,
    /// Node and process: `2.7` is the seventh process of the second node.
    #[arg(long)]
    id: String,
    /// The number of tasks that run at once.
    #[arg(long)]
    slots: usize,
    /// RabbitMQ, in a fleet.
    #[arg(long)]
    broker: Option<String>,
    /// Redis, in a fleet.
    #[arg(long)]
    redis: Option<String>,
    /// Serves the HTTP API on this local port, and runs no tasks.
    #[arg(long)]
    api: Option<u16>,
}

/// The name of a process's journal.
pub(crate) fn journal_name(incarnation: &str) -> String {
    format!("worker-{incarnation}.jsonl")
}

/// Runs until its standard input is closed by `torture run`.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .init();

    let journal = Journal::create(&options.dir.join(journal_name(&options.id)))?;
    let store_options = StoreOptions {
        operation_wait: settings::OPERATION_WAIT,
        ..StoreOptions::default()
    };
    let store = SqlStore::open(&options.url, store_options).await?;
    let shared = Arc::new(tasks::Shared {
        incarnation: options.id.clone(),
        journal,
        store: store.clone(),
    });

    let builder = Longhaul::on(store)
        .await?
        .artifacts(options.dir.join("artifacts"));
    let builder = builder
        .worker(settings::worker(&options.id, options.slots))
        .maintenance(settings::maintenance());

    let builder = tasks::register(fleet(builder, &options), &shared);
    if let Some(port) = options.api {
        let longhaul = builder.without_worker()?;
        longhaul.declare_topology(&[]).await?;
        return serve(longhaul, port).await;
    }

    let longhaul = Arc::new(builder.start().await?);
    answer_requests(&longhaul).await?;
    if let Ok(longhaul) = Arc::try_unwrap(longhaul) {
        longhaul.stop().await;
    }

    Ok(())
}

/// Adds the broker and Redis of a fleet's node.
fn fleet(mut builder: Builder, options: &Options) -> Builder {
    if let Some(url) = &options.broker {
        builder = builder.rabbitmq(url, RabbitOptions::default());
    }
    if let Some(url) = &options.redis {
        builder = builder.redis(url, REDIS_NAMESPACE);
    }
    builder
}

/// Answers the HTTP API until the input ends.
async fn serve(longhaul: Longhaul, port: u16) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let closing = CancellationToken::new();
    let served = longhaul.serve(
        listener,
        IdentityMode::Dev,
        ListenerSettings::default(),
        closing.clone(),
    );

    let until_closed = async {
        // An API node gets no requests over its pipe. The end of the pipe stops it.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        closing.cancel();
    };

    let (served, ()) = tokio::join!(served, until_closed);
    served?;
    longhaul.stop().await;
    Ok(())
}

/// Answers requests concurrently until the input ends.
async fn answer_requests(longhaul: &Arc<Longhaul>) -> anyhow::Result<()> {
    let (answers, to_write) = mpsc::channel(ANSWERS);
    // One writer, so that answers do not mix within a line.
    tokio::spawn(write_answers(to_write));
    let mut answering = JoinSet::new();
    let mut requests = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = requests.next_line().await? {
        let Numbered { number, what } = serde_json::from_str::<Numbered<Request>>(&line)?;
        let longhaul = Arc::clone(longhaul);
        let answers = answers.clone();

        // A slow request must not hold up the others.
        answering.spawn(async move {
            let what = gateway::answer(&longhaul, what).await;
            // Without a writer `torture run` is gone, and the input ends soon.
            let _ = answers.send(Numbered { number, what }).await;
        });

        while answering.try_join_next().is_some() {}
    }

    answering.join_all().await;
    Ok(())
}

async fn write_answers(mut answers: mpsc::Receiver<Numbered<Answer>>) {
    let mut stdout = tokio::io::stdout();
    while let Some(answer) = answers.recv().await {
        let Ok(mut line) = serde_json::to_string(&answer) else {
            continue;
        };
        line.push('\n');
        if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}
