//! A worker process: Longhaul as its users have it, with short times, the torture's task types and a journal.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

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
    door::{self, Answer, Numbered, Request},
    journal::Journal,
    settings, tasks,
};

/// Answers that may wait to be written.
const ANSWERS: usize = 1_024;
/// What stands before the names of everything in Redis.
const REDIS_NAMESPACE: &str = "torture";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The database.
    #[arg(long)]
    url: String,
    /// Where the journal goes.
    #[arg(long)]
    dir: PathBuf,
    /// Which node this is, and which of its lives: `2.7` is the seventh process of the second node.
    #[arg(long)]
    id: String,
    /// Tasks that run at once.
    #[arg(long)]
    slots: usize,
    /// RabbitMQ, in a fleet.
    #[arg(long)]
    broker: Option<String>,
    /// Redis, in a fleet.
    #[arg(long)]
    redis: Option<String>,
    /// Answers the HTTP API on this port of the machine, and runs no tasks.
    #[arg(long)]
    api: Option<u16>,
}

/// The name of a process's journal.
pub(crate) fn journal_name(incarnation: &str) -> String {
    format!("worker-{incarnation}.jsonl")
}

/// Works until its input ends, which it does when the conductor says so or dies.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .init();
    let journal = Journal::create(&options.dir.join(journal_name(&options.id)))?;
    let site = Arc::new(tasks::Site {
        incarnation: options.id.clone(),
        journal,
        store: OnceLock::new(),
    });
    let store_options = StoreOptions {
        operation_wait: settings::OPERATION_WAIT,
        ..StoreOptions::default()
    };
    let store = SqlStore::open(&options.url, store_options).await?;
    let builder = Longhaul::on(store)
        .await?
        .artifacts(options.dir.join("artifacts"));
    let builder = builder
        .worker(settings::worker(&options.id, options.slots))
        .duties(settings::duties());
    let builder = tasks::register(fleet(builder, &options), &site);
    if let Some(port) = options.api {
        let longhaul = builder.without_worker()?;
        longhaul.declare_topology(&[]).await?;
        return serve(longhaul, port).await;
    }
    let longhaul = Arc::new(builder.start().await?);
    // Set by nobody else.
    let _ = site.store.set(Arc::clone(&longhaul.engine().store));
    answer_requests(&longhaul).await?;
    if let Ok(longhaul) = Arc::try_unwrap(longhaul) {
        longhaul.stop().await;
    }
    Ok(())
}

/// With what a node of a fleet has besides the database.
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
    let until_told = async {
        // Nothing is asked over the pipe of such a node; it ends when the conductor says so or dies.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        closing.cancel();
    };
    let (served, ()) = tokio::join!(served, until_told);
    served?;
    longhaul.stop().await;
    Ok(())
}

/// Answers what comes in, many at once, until nothing comes any more.
async fn answer_requests(longhaul: &Arc<Longhaul>) -> anyhow::Result<()> {
    let (answers, to_write) = mpsc::channel(ANSWERS);
    tokio::spawn(write_answers(to_write));
    let mut answering = JoinSet::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let Numbered { number, what } = serde_json::from_str::<Numbered<Request>>(&line)?;
        let (longhaul, answers) = (Arc::clone(longhaul), answers.clone());
        answering.spawn(async move {
            let what = door::answer(&longhaul, what).await;
            // Without a writer the conductor is gone, and the end of the input follows.
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
