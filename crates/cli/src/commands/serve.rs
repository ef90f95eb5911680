//! `longhaul serve`: a node with one role or several.

use std::net::SocketAddr;

use super::{
    config_file::ConfigFile,
    node::{Node, Role},
};
use crate::config::{self, Config};

/// Options of `longhaul serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longhaul serve        all roles in one node, configured by longhaul.toml and variables
  LONGHAUL_STORE=postgres://longhaul@db/longhaul longhaul serve --roles api
  longhaul serve --roles worker,maintenance --samples

Callers need a token:
  longhaul token create --owner u-1 --scopes tasks:read,tasks:write --name laptop")]
pub struct Serve {
    #[command(flatten)]
    config: ConfigFile,
    /// The roles of this node, separated by commas.
    #[arg(
        long, value_delimiter = ',',
        default_values_t = [Role::Api, Role::Worker, Role::Maintenance]
    )]
    roles: Vec<Role>,
    /// Register the sample task types and the novel application.
    #[arg(long)]
    samples: bool,
    /// Where the HTTP API listens, instead of http.listen of the configuration.
    #[arg(long)]
    listen: Option<SocketAddr>,
}

impl Serve {
    /// The configuration of the node.
    pub fn config(&self) -> anyhow::Result<Config> {
        config::load(&self.config.sources().flag("http.listen", self.listen))
    }
}

pub async fn run(serve: Serve, config: Config) -> anyhow::Result<()> {
    Node {
        config,
        roles: serve.roles,
        samples: serve.samples,
        greet,
    }
    .run()
    .await
}

pub(super) fn greet(address: Option<SocketAddr>, roles: &[Role]) -> String {
    let roles: Vec<String> = roles.iter().map(Role::to_string).collect();
    let roles = roles.join(", ");

    match address {
        Some(address) => format!("Longhaul is running at http://{address} ({roles})"),
        None => format!("Longhaul is running ({roles})"),
    }
}
