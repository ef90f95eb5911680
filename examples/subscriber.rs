//! A subscriber to external events: another program that receives events of tasks over RabbitMQ.
//!
//! `subscribe` and `print_events` use only what `docs/events.md` says. The rest produces events.
//! Run it with `LONGHAUL_BROKER=amqp://127.0.0.1 cargo run -p longhaul --features fleet
//! --example subscriber`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]
#![expect(
    clippy::disallowed_methods,
    reason = "the address of the server is in the environment"
)]

use std::collections::HashSet;

use anyhow::Context as _;
use futures::StreamExt as _;
use lapin::{
    Connection, ConnectionProperties, Consumer,
    options::{BasicAckOptions, BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};
use longhaul::{Context, EventKind, EventRule, Longhaul, Outcome, RabbitOptions, Stop, Task};
use serde_json::Value;

/// Subscribes to the events of an exchange with these routing keys.
async fn subscribe(
    connection: &Connection,
    exchange: &str,
    keys: &[&str],
) -> lapin::Result<Consumer> {
    let channel = connection.create_channel().await?;

    // A subscriber that must not miss events needs a durable named queue. This queue is deleted
    // with its program.
    let options = QueueDeclareOptions {
        exclusive: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel
        .queue_declare("".into(), options, FieldTable::default())
        .await?;
    let queue = declared.name().clone();

    for key in keys {
        let options = QueueBindOptions::default();
        channel
            .queue_bind(
                queue.clone(),
                exchange.into(),
                (*key).into(),
                options,
                FieldTable::default(),
            )
            .await?;
    }

    channel
        .basic_consume(
            queue,
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await
}

/// Prints each event once, until this many were received.
async fn print_events(mut events: Consumer, most: usize) -> anyhow::Result<()> {
    let mut seen = HashSet::new();
    while seen.len() < most {
        let delivery = events.next().await;
        let delivery = delivery.context("the broker has ended the subscription")??;
        let event: Value = serde_json::from_slice(&delivery.data)?;

        // An event is delivered at least once. Its id identifies repetitions.
        if seen.insert(event["id"].to_string()) {
            let kind = text(&event["type"]);
            let data = &event["data"];
            println!(
                "{kind} of {} {}",
                text(&data["taskType"]),
                text(&data["error"]["message"])
            );
        }

        delivery.ack(BasicAckOptions::default()).await?;
    }

    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

struct Fetch;

impl Task for Fetch {
    const TYPE: &'static str = "fetch";
    type Params = String;
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        match ctx.params.as_str() {
            "missing" => Err(Stop::fatal("there is no such page")),
            page => Ok(format!("the page {page}")),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker =
        std::env::var("LONGHAUL_BROKER").context("set LONGHAUL_BROKER to a RabbitMQ server")?;
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let options = RabbitOptions {
        namespace: "example".to_owned(),
        ..RabbitOptions::default()
    };

    // The events to publish. In a configuration file this is `events.external`.
    let rule = EventRule {
        task_types: vec!["fetch".to_owned()],
        events: vec![EventKind::Completed, EventKind::Failed],
    };
    let builder = Longhaul::open(&url)
        .await?
        .rabbitmq(&broker, options)
        .external_events(vec![rule]);

    let longhaul = builder.register(Fetch).start().await?;

    let connection = Connection::connect(&broker, ConnectionProperties::default()).await?;
    let keys = ["task.completed.#", "task.*.fetch"];
    let events = subscribe(&connection, "example.tasks.events.exchange", &keys).await?;
    for page in ["home", "missing"] {
        longhaul.submit::<Fetch>(page.to_owned()).await?;
    }

    print_events(events, 2).await?;
    longhaul.stop().await;
    println!("both events were received");
    Ok(())
}
