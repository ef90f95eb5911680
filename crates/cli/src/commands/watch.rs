//! `longhaul watch`: a task until it has ended, however often the connection breaks.

mod view;

use std::time::Duration;

use longhaul_api::{
    TaskView,
    client::{About, Client, ClientError, Events, TaskId, Told},
};

use crate::client::{EXIT_CODES, Ending, Screen, ServerOptions, task_id};
use view::{Standing, View};

/// Between two questions: to a server that went away just when the task had ended, and about a task of which no news
/// come, because another process runs it.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What `watch` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "A progress bar on a terminal, a line for each change elsewhere, the events as JSON lines with --json.\n\n\
     Examples:\n  longhaul watch ID\n  longhaul watch ID && echo completed\n  longhaul watch ID --json | jq .status\n\n\
     {EXIT_CODES}"
))]
pub struct Watch {
    /// The task.
    #[arg(value_parser = task_id)]
    id: TaskId,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(watch: Watch) -> anyhow::Result<Ending> {
    let (client, screen) = (watch.server.client()?, watch.server.screen());
    follow(&client, screen, watch.id, watch.server.json).await
}

/// Shows the task until it has ended.
pub(crate) async fn follow(
    client: &Client,
    screen: Screen,
    id: TaskId,
    json: bool,
) -> anyhow::Result<Ending> {
    let mut events = client.events(About::Task(id)).await?;
    let view = View::new(screen, json);
    let mut standing = Standing::default();
    while !standing.is_ended() {
        match next(client, &mut events, id, &standing).await {
            Ok(Told::State(task)) => {
                standing.see(&task);
                view.show(&standing, &*task)?;
            }
            Ok(Told::News(news)) => {
                if standing.hear(&news) {
                    view.show(&standing, &*news)?;
                }
            }
            Ok(Told::States(_)) => {}
            Ok(Told::Lost(error)) => view.lost(&error)?,
            Err(error) => {
                view.close();
                return Err(error.into());
            }
        }
    }
    let task = record(client, &view, id).await;
    view.close();
    view.end(&task?)?;
    Ok(Ending::of(standing.status))
}

/// The next word about the task: news, or what has changed when there were none for a while.
async fn next(
    client: &Client,
    events: &mut Events,
    id: TaskId,
    standing: &Standing,
) -> Result<Told, ClientError> {
    let mut news = std::pin::pin!(events.next());
    loop {
        tokio::select! {
            told = news.as_mut() => return told,
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
        // A server that does not answer is the business of the stream, which opens itself again.
        if let Ok(answer) = client.get(id).await
            && standing.is_before(&answer.value.summary)
        {
            return Ok(Told::State(Box::new(answer.value.summary)));
        }
    }
}

/// The whole record, which has the result. A server that is away is waited for, as it was before.
async fn record(client: &Client, view: &View, id: TaskId) -> anyhow::Result<TaskView> {
    loop {
        match client.get(id).await {
            Ok(answer) => return Ok(answer.value),
            Err(error) if ClientError::is_transient(&error) => {
                view.lost(&error)?;
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
