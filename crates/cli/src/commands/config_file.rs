//! Where a command's configuration comes from.

use std::path::PathBuf;

use crate::config::Sources;

#[derive(Debug, clap::Args)]
pub(super) struct ConfigFile {
    /// The configuration, TOML; without it longhaul.toml of this folder, if it is there. See docs/configuration.md.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    pub(super) fn sources(&self) -> Sources {
        Sources::of_process(self.config.clone())
    }
}
