//! `longhaul serve`: a node with one role or several.

use std::net::SocketAddr;

use super::{
    config_file::ConfigFile,
    node::{Node, Role},
};
use crate::config::{self, Config};

/// What `serve` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longhaul serve                                 everything in one node, by longhaul.toml and variables
  LONGHAUL_STORE=postgres://longhaul@db/longhaul longhaul serve --roles api --listen 127.0.0.1:7080
  longhaul serve --roles worker,duties --samples

Callers need a token: longhaul token create --owner u-1 --scopes tasks:read,tasks:write --name laptop")]
pub struct Serve {
    #[command(flatten)]
    config: ConfigFile,
    /// What this node does, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [Role::Api, Role::Worker, Role::Duties])]
    roles: Vec<Role>,
    /// Knows the sample types and the novel application, too.
    #[arg(long)]
    samples: bool,
    /// Where the HTTP API listens; http.listen of the configuration otherwise.
    #[arg(long)]
    listen: Option<SocketAddr>,
}

impl Serve {
    /// The configuration that it is to run with.
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
    let place = address.map_or(String::new(), |address| format!(" at http://{address}"));
    format!("Longhaul is running{place} ({})", roles.join(", "))
}
