//! `longhaul migrate`: brings the schema up to date and declares what the broker needs, or only tells.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use longhaul::{
    StoreError,
    operating::{Broker as _, RabbitBroker, SchemaState, SqlStore, declare, until_up},
};

use super::{config_file::ConfigFile, node::make_folder};
use crate::{
    client::Screen,
    config::{self, Config},
};

/// How long the broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What `migrate` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longhaul migrate
  longhaul migrate --check || echo 'the schema is not current'")]
pub struct Migrate {
    #[command(flatten)]
    config: ConfigFile,
    /// Changes nothing, and ends with an error when something is to be done.
    #[arg(long)]
    check: bool,
}

pub async fn run(migrate: Migrate) -> anyhow::Result<()> {
    let (config, screen) = (config::load(&migrate.config.sources())?, Screen::new(true));
    bring_schema(&config, &screen, migrate.check).await?;
    bring_topology(&config, &screen, migrate.check).await
}

async fn bring_schema(config: &Config, screen: &Screen, is_check: bool) -> anyhow::Result<()> {
    let url = &config.store.url;
    if is_check && config.store_file().is_some_and(|file| !file.exists()) {
        bail!("{url} is not there yet: longhaul migrate makes it");
    }
    let before = look(config, is_check)
        .await
        .with_context(|| format!("{url} cannot be migrated"))?;
    if before.found > before.known {
        return Err(StoreError::SchemaTooNew {
            found: before.found,
            known: before.known,
        }
        .into());
    }
    for name in &before.pending {
        screen.line(format_args!(
            "{} {name}",
            if is_check { "pending" } else { "done" }
        ))?;
    }
    if is_check && !before.pending.is_empty() {
        bail!(
            "the schema is at migration {:04} and this program needs {:04}",
            before.found,
            before.known
        );
    }
    Ok(screen.line(format_args!(
        "the schema is current: migration {:04}",
        before.known
    ))?)
}

/// Declares exchanges and queues, or looks whether the queues are there.
async fn bring_topology(config: &Config, screen: &Screen, is_check: bool) -> anyhow::Result<()> {
    let Some((url, options)) = config.rabbitmq() else {
        return Ok(());
    };
    let (shown, queues) = (&config.broker.url, config.queues());
    let broker = RabbitBroker::connect(url, options)?;
    let done = match is_check {
        true => are_there(&broker, &queues).await,
        false => declare(&*broker, &queues).await.map_err(Into::into),
    };
    broker.close().await;
    done.with_context(|| match is_check {
        true => format!("{shown} is not set up: longhaul migrate does it"),
        false => format!("{shown} cannot be set up"),
    })?;
    Ok(screen.line(format_args!(
        "the broker is set up: {} queues of tasks",
        queues.len()
    ))?)
}

async fn are_there(broker: &RabbitBroker, queues: &[String]) -> anyhow::Result<()> {
    until_up(broker, PATIENCE)
        .await
        .map_err(anyhow::Error::msg)?;
    for queue in queues {
        ensure!(
            broker.look(queue).await?.is_some(),
            "the queue of tasks {queue} has no queue there"
        );
    }
    Ok(())
}

/// What the schema was, and unless this is only a check, brings it up to date.
async fn look(config: &Config, is_check: bool) -> anyhow::Result<SchemaState> {
    if let Some(folder) = config.store_file().as_deref().and_then(Path::parent) {
        make_folder(folder)?;
    }
    let mut options = config.store_options();
    options.is_beside = is_check;
    let store = SqlStore::connect(config.store.url.reveal(), options).await?;
    let before = store.schema().await?;
    if !is_check && before.found <= before.known {
        store.migrate().await?;
    }
    store.close().await;
    Ok(before)
}
