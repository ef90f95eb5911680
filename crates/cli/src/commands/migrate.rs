//! `longhaul migrate`: migrates the schema and declares the broker's queues, or only checks them.

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
const DEADLINE: Duration = Duration::from_secs(5);

/// Options of `longhaul migrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longhaul migrate
  longhaul migrate --check || echo 'the schema is not current'")]
pub struct Migrate {
    #[command(flatten)]
    config: ConfigFile,
    /// Change nothing, and fail if there is something to do.
    #[arg(long)]
    check: bool,
}

pub async fn run(migrate: Migrate) -> anyhow::Result<()> {
    let config = config::load(&migrate.config.sources())?;
    let screen = Screen::new(true);

    migrate_schema(&config, &screen, migrate.check).await?;
    declare_queues(&config, &screen, migrate.check).await
}

async fn migrate_schema(config: &Config, screen: &Screen, is_check: bool) -> anyhow::Result<()> {
    let url = &config.store.url;
    if is_check && config.store_file().is_some_and(|file| !file.exists()) {
        bail!("{url} does not exist yet: longhaul migrate makes it");
    }

    let schema = read_and_migrate(config, is_check)
        .await
        .with_context(|| format!("{url} cannot be migrated"))?;
    if schema.found > schema.known {
        return Err(StoreError::SchemaTooNew {
            found: schema.found,
            known: schema.known,
        }
        .into());
    }

    let state = if is_check { "pending" } else { "done" };
    for name in &schema.pending {
        screen.line(format_args!("{state} {name}"))?;
    }

    if is_check && !schema.pending.is_empty() {
        bail!(
            "the schema is at migration {:04} and this program needs {:04}",
            schema.found,
            schema.known
        );
    }

    let current = schema.known;
    Ok(screen.line(format_args!(
        "the schema is current: migration {current:04}"
    ))?)
}

/// The schema as it was. Migrates it unless this is only a check.
async fn read_and_migrate(config: &Config, is_check: bool) -> anyhow::Result<SchemaState> {
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

/// Declares exchanges and queues, or checks that the queues exist.
async fn declare_queues(config: &Config, screen: &Screen, is_check: bool) -> anyhow::Result<()> {
    let Some((url, options)) = config.rabbitmq() else {
        return Ok(());
    };
    let queues = config.queues();
    let broker = RabbitBroker::connect(url, options)?;

    let done = if is_check {
        check_queues(&broker, &queues).await
    } else {
        declare(&*broker, &queues).await.map_err(Into::into)
    };
    broker.close().await;

    let shown = &config.broker.url;
    done.with_context(|| {
        if is_check {
            format!("{shown} is not set up: longhaul migrate does it")
        } else {
            format!("{shown} cannot be set up")
        }
    })?;

    let count = queues.len();
    Ok(screen.line(format_args!("the broker is set up: {count} task queues"))?)
}

async fn check_queues(broker: &RabbitBroker, queues: &[String]) -> anyhow::Result<()> {
    until_up(broker, DEADLINE)
        .await
        .map_err(anyhow::Error::msg)?;

    for queue in queues {
        ensure!(
            broker.existing_depth(queue).await?.is_some(),
            "the broker has no queue for the task queue {queue}"
        );
    }

    Ok(())
}
