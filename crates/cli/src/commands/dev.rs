//! `longhaul dev`: everything in one process, for one machine. A node with a configuration that is made for trying.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::node::{Node, Role};
use crate::config::{Config, IdentityKind, SecretUrl};

/// Where the client commands look when nothing is said.
const DEFAULT_PORT: u16 = 7080;

/// What `dev` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul dev --listen 127.0.0.1:7080 --data ./longhaul-data")]
pub struct Dev {
    /// Where the HTTP API listens. Only this machine may call.
    #[arg(long, default_value_t = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)))]
    listen: SocketAddr,
    /// The folder for the store and the files that tasks make. It is made when it is missing.
    #[arg(long, default_value = "./longhaul-data")]
    data: PathBuf,
}

pub async fn run(dev: Dev) -> anyhow::Result<()> {
    anyhow::ensure!(
        dev.listen.ip().is_loopback(),
        "dev asks for no token and listens only on this machine: use --listen 127.0.0.1:{}",
        dev.listen.port()
    );
    let mut config = Config::default();
    config.store.url = SecretUrl::new(&format!("sqlite://{}", dev.data.join("longhaul.db").display()));
    config.http.listen = dev.listen;
    config.identity.mode = IdentityKind::Dev;
    config.worker.name = Some("dev".to_owned());
    let roles = vec![Role::Api, Role::Worker, Role::Duties];
    Node { config, roles, samples: true, greet }.run().await
}

/// What a person types to call this program again: `make run` starts one that is not on the path.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "longhaul".to_owned())
}

#[expect(clippy::print_stdout, reason = "what a person who starts this wants to know")]
fn greet(address: Option<SocketAddr>, _: &[Role]) {
    let Some(address) = address else { return };
    let (api, program) = (format!("http://{address}/api"), program());
    let novels = format!("http://{address}{}/api/novels", longhaul_novel::PREFIX);
    // Whoever chose the address has to name it.
    let at = if address.port() == DEFAULT_PORT { String::new() } else { format!(" --url http://{address}") };
    println!(
        "Longhaul is running.

  open   http://{address}                     what runs now, live
         http://{address}/docs                the API to read and try
         {api}/tasks           your tasks
         {api}/types           what can be submitted, with schemas
         {api}/openapi.json    the whole API

  try    {program} submit sample.progress '{{\"steps\":50,\"stepMs\":200}}' --watch{at}
         {program} top{at}
         curl -s {api}/tasks -H 'content-type: application/json' \\
           -d '{{\"taskType\":\"sample.progress\",\"parameters\":{{\"steps\":50,\"stepMs\":200}}}}'
         curl -N {api}/events                     # live
         curl -s '{api}/tasks?status=RUNNING'
         curl -s {api}/tasks/ID/why
         curl -X DELETE {api}/tasks/ID            # cancel

  novel  curl -sX POST {novels}/sample        # a novel, and a summary of each of its scenes
         curl -s {novels}/NOVEL_ID            # the summaries, as they come

  Ctrl-C stops it; tasks go on where they were at the next start."
    );
}
