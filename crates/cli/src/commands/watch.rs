//! `longhaul watch`: follows a task until it has ended, however often the connection breaks.

mod view;

use std::time::Duration;

use longhaul_api::{
    TaskView,
    client::{About, Client, ClientError, Events, TaskId, Update},
};

use crate::client::{EXIT_CODES, Exit, Screen, ServerOptions, task_id};
use view::{View, WatchedTask};

/// Between two polls: of a server that went away when the task had just ended, and of a task
/// without events, which another process may run.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// Options of `longhaul watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!(
    "On a terminal it shows a progress bar, elsewhere a line for each change, and with --json the \
     events as JSON lines.\n\n\
     Examples:\n  longhaul watch ID\n  longhaul watch ID && echo completed\n  \
     longhaul watch ID --json | jq .status\n\n\
     {EXIT_CODES}"
))]
pub struct Watch {
    /// The task.
    #[arg(value_parser = task_id)]
    id: TaskId,
    #[command(flatten)]
    server: ServerOptions,
}

pub async fn run(watch: Watch) -> anyhow::Result<Exit> {
    let client = watch.server.client()?;
    let screen = watch.server.screen();
    follow(&client, screen, watch.id, watch.server.json).await
}

/// Shows the task until it has ended.
pub(crate) async fn follow(
    client: &Client,
    screen: Screen,
    id: TaskId,
    json: bool,
) -> anyhow::Result<Exit> {
    let mut events = client.events(About::Task(id)).await?;
    let view = View::new(screen, json);
    let mut watched = WatchedTask::default();

    while !watched.is_ended() {
        match next(client, &mut events, id, &watched).await {
            Ok(Update::State(task)) => {
                watched.replace(&task);
                view.show(&watched, &*task)?;
            }
            Ok(Update::Event(event)) => {
                if watched.update(&event) {
                    view.show(&watched, &*event)?;
                }
            }
            Ok(Update::States(_)) => {}
            Ok(Update::Lost(error)) => view.lost(&error)?,
            Err(error) => {
                view.close();
                return Err(error.into());
            }
        }
    }

    let task = record(client, &view, id).await;
    view.close();
    view.end(&task?)?;
    Ok(Exit::of(watched.status))
}

/// The next event of the task. Without events for a while, polls for a change.
async fn next(
    client: &Client,
    events: &mut Events,
    id: TaskId,
    watched: &WatchedTask,
) -> Result<Update, ClientError> {
    let mut event = std::pin::pin!(events.next());

    loop {
        // The same future is polled in each round: dropping it would lose what it has read.
        tokio::select! {
            event = event.as_mut() => return event,
            () = tokio::time::sleep(POLL_EVERY) => {}
        }

        // A failed poll is ignored: the stream reconnects by itself.
        if let Ok(answer) = client.get(id).await
            && watched.is_older_than(&answer.value.summary)
        {
            return Ok(Update::State(Box::new(answer.value.summary)));
        }
    }
}

/// The whole record, which has the result. Waits for a server that is down.
async fn record(client: &Client, view: &View, id: TaskId) -> anyhow::Result<TaskView> {
    loop {
        match client.get(id).await {
            Ok(answer) => return Ok(answer.value),
            Err(error) if ClientError::is_transient(&error) => {
                view.lost(&error)?;
                tokio::time::sleep(POLL_EVERY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
