//! `longhaul dev`: everything in one process, for development on one machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::node::{Node, Role};
use crate::config::{Config, IdentityKind, SecretUrl};

/// Options of `longhaul dev`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul dev --listen 127.0.0.1:7080 --data ./longhaul-data")]
pub struct Dev {
    /// Where the HTTP API listens. Only this machine may call.
    #[arg(long, default_value_t = Self::DEFAULT_ADDRESS)]
    listen: SocketAddr,
    /// The folder for the store and the files that tasks make. It is made if it is missing.
    #[arg(long, default_value = "./longhaul-data")]
    data: PathBuf,
}

impl Dev {
    /// Also the address that the client commands call by default.
    const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7080);
}

pub async fn run(dev: Dev) -> anyhow::Result<()> {
    anyhow::ensure!(
        dev.listen.ip().is_loopback(),
        "dev asks for no token and listens only on this machine: use --listen 127.0.0.1:{}",
        dev.listen.port()
    );

    let file = dev.data.join("longhaul.db");
    let mut config = Config::default();
    config.store.url = SecretUrl::new(&format!("sqlite://{}", file.display()));
    config.http.listen = dev.listen;
    config.identity.mode = IdentityKind::Dev;
    config.worker.name = Some("dev".to_owned());

    let node = Node {
        config,
        roles: vec![Role::Api, Role::Worker, Role::Maintenance],
        samples: true,
        greet,
    };
    node.run().await
}

fn greet(address: Option<SocketAddr>, _: &[Role]) -> String {
    address.map_or(String::new(), |address| greeting(address, &program()))
}

/// How this program was called, so that the commands of the greeting can be pasted.
fn program() -> String {
    match std::env::args_os().next() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => "longhaul".to_owned(),
    }
}

fn greeting(address: SocketAddr, program: &str) -> String {
    let site = format!("http://{address}");
    let api = format!("{site}/api");
    let novels = format!("{site}{}/api/novels", longhaul_novel::PREFIX);

    // The client commands find the default address by themselves.
    let url = if address == Dev::DEFAULT_ADDRESS {
        String::new()
    } else {
        format!(" --url {site}")
    };

    let pages = [
        (site.clone(), "running tasks, live"),
        (format!("{site}/docs"), "read and try the API"),
        (format!("{api}/tasks"), "your tasks"),
        (format!("{api}/types"), "all task types, with schemas"),
        (format!("{api}/openapi.json"), "the OpenAPI document"),
    ];
    let pages = pages
        .map(|(url, what)| format!("{url:42}  {what}"))
        .join("\n         ");

    format!(
        "Longhaul is running.

  open   {pages}

  try    {program} submit sample.progress '{{\"steps\":50,\"stepMs\":200}}' --watch{url}
         {program} top{url}
         curl -s {api}/tasks -H 'content-type: application/json' \\
           -d '{{\"taskType\":\"sample.progress\",\"parameters\":{{\"steps\":50,\"stepMs\":200}}}}'
         curl -N {api}/events    # live
         curl -s '{api}/tasks?status=RUNNING'
         curl -s {api}/tasks/ID/why
         curl -X DELETE {api}/tasks/ID    # cancel

  novel  curl -sX POST {novels}/sample    # a novel, and a summary of each of its scenes
         curl -s {novels}/NOVEL_ID    # the summaries so far

  Ctrl-C stops it; the next start continues the tasks where they were."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_the_greeting_name_the_server() {
        let default = greeting(Dev::DEFAULT_ADDRESS, "longhaul");
        assert!(
            default.contains("longhaul top\n") && !default.contains("--url"),
            "{default}"
        );

        let other = greeting(
            SocketAddr::from(([127, 0, 0, 1], 7081)),
            "target/debug/longhaul",
        );
        assert!(
            other.contains("target/debug/longhaul top --url http://127.0.0.1:7081\n"),
            "{other}"
        );
    }
}
