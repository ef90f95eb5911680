//! The option that names the configuration file.

use std::path::PathBuf;

use crate::config::Sources;

#[derive(Debug, clap::Args)]
pub(super) struct ConfigFile {
    /// The configuration file, TOML. Without it, longhaul.toml in this folder is read if it exists.
    /// See docs/configuration.md.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    pub(super) fn sources(&self) -> Sources {
        Sources::of_process(self.config.clone())
    }
}
