//! `longhaul migrate`: brings the schema up to date, or only tells.

use std::path::Path;

use anyhow::{Context as _, bail};
use longhaul::{
    StoreError,
    operating::{SchemaState, SqlStore},
};

use super::{config_file::ConfigFile, node::make_folder};
use crate::{
    client::Screen,
    config::{self, Config},
};

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
    let url = &config.store.url;
    if migrate.check && config.store_file().is_some_and(|file| !file.exists()) {
        bail!("{url} is not there yet: longhaul migrate makes it");
    }
    let before = look(&config, migrate.check).await.with_context(|| format!("{url} cannot be migrated"))?;
    if before.found > before.known {
        return Err(StoreError::SchemaTooNew { found: before.found, known: before.known }.into());
    }
    if before.pending.is_empty() {
        return Ok(screen.line(format_args!("the schema is current: migration {:04}", before.known))?);
    }
    for name in &before.pending {
        screen.line(format_args!("{} {name}", if migrate.check { "pending" } else { "done" }))?;
    }
    if migrate.check {
        bail!("the schema is at migration {:04} and this program needs {:04}", before.found, before.known);
    }
    Ok(screen.line(format_args!("the schema is current: migration {:04}", before.known))?)
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
