//! What idle live clients cost: `bench-live [clients] [path]` starts a server in a process of its own, opens so many
//! streams of server-sent events, waits until each has its state, and tells what the server's memory has grown by. Then
//! it reports how long a handler's report of progress takes to be seen. `bench-live hostile [clients]` does the same for clients
//! that never finish their request.

#![expect(clippy::print_stdout, reason = "a program that reports")]

mod clients;
mod hostile;
mod server;

use anyhow::{Context as _, Result};

/// What figure 13 asks for.
const CLIENTS: usize = 5_000;
/// What figure 14 asks for.
const HOSTILE: usize = 2_000;

#[tokio::main]
async fn main() -> Result<()> {
    raise_file_limit()?;
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("serve") => server::run(words.next().context("a folder is missing")?.into()).await,
        Some("hostile") => {
            let count = words.next().map_or(Ok(HOSTILE), |count| count.parse())?;
            hostile::measure(count).await
        }
        Some(clients) => clients::measure(clients.parse()?, words.next()).await,
        None => clients::measure(CLIENTS, None).await,
    }
}

/// Each client is an open file on both sides.
fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    )
    .context("the limit of open files")
}
