//! `longhaul dev`: everything in one process, for one machine. A node with a configuration that is made for trying.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::node::{Node, Role};
use crate::config::{Config, IdentityKind, SecretUrl};

/// What `dev` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul dev --listen 127.0.0.1:7080 --data ./longhaul-data")]
pub struct Dev {
    /// Where the HTTP API listens. Only this machine may call.
    #[arg(long, default_value_t = Self::USUAL)]
    listen: SocketAddr,
    /// The folder for the store and the files that tasks make. It is made when it is missing.
    #[arg(long, default_value = "./longhaul-data")]
    data: PathBuf,
}

impl Dev {
    /// Where it listens when nothing is said, and where the client commands look.
    const USUAL: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7080);
}

pub async fn run(dev: Dev) -> anyhow::Result<()> {
    anyhow::ensure!(
        dev.listen.ip().is_loopback(),
        "dev asks for no token and listens only on this machine: use --listen 127.0.0.1:{}",
        dev.listen.port()
    );
    let mut config = Config::default();
    config.store.url = SecretUrl::new(&format!(
        "sqlite://{}",
        dev.data.join("longhaul.db").display()
    ));
    config.http.listen = dev.listen;
    config.identity.mode = IdentityKind::Dev;
    config.worker.name = Some("dev".to_owned());
    let roles = vec![Role::Api, Role::Worker, Role::Duties];
    Node {
        config,
        roles,
        samples: true,
        greet,
    }
    .run()
    .await
}

fn greet(address: Option<SocketAddr>, _: &[Role]) -> String {
    address.map_or(String::new(), |address| greeting(address, &program()))
}

/// How this program was called, so that what is told to try can be pasted.
fn program() -> String {
    std::env::args_os()
        .next()
        .map_or("longhaul".to_owned(), |name| {
            name.to_string_lossy().into_owned()
        })
}

fn greeting(address: SocketAddr, program: &str) -> String {
    let (site, api) = (format!("http://{address}"), format!("http://{address}/api"));
    let novels = format!("{site}{}/api/novels", longhaul_novel::PREFIX);
    // The client commands find the usual address by themselves.
    let url = if address == Dev::USUAL {
        String::new()
    } else {
        format!(" --url {site}")
    };
    let open = [
        (site.clone(), "what runs now, live"),
        (format!("{site}/docs"), "the API to read and try"),
        (format!("{api}/tasks"), "your tasks"),
        (
            format!("{api}/types"),
            "what can be submitted, with schemas",
        ),
        (format!("{api}/openapi.json"), "the whole API"),
    ];
    let open = open
        .map(|(place, what)| format!("{place:42}  {what}"))
        .join("\n         ");
    format!(
        "Longhaul is running.

  open   {open}

  try    {program} submit sample.progress '{{\"steps\":50,\"stepMs\":200}}' --watch{url}
         {program} top{url}
         curl -s {api}/tasks -H 'content-type: application/json' \\
           -d '{{\"taskType\":\"sample.progress\",\"parameters\":{{\"steps\":50,\"stepMs\":200}}}}'
         curl -N {api}/events    # live
         curl -s '{api}/tasks?status=RUNNING'
         curl -s {api}/tasks/ID/why
         curl -X DELETE {api}/tasks/ID    # cancel

  novel  curl -sX POST {novels}/sample    # a novel, and a summary of each of its scenes
         curl -s {novels}/NOVEL_ID    # the summaries, as they come

  Ctrl-C stops it; tasks go on where they were at the next start."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_to_try_finds_the_server() {
        let usual = greeting(Dev::USUAL, "longhaul");
        assert!(
            usual.contains("longhaul top\n") && !usual.contains("--url"),
            "{usual}"
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
