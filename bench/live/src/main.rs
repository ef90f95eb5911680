//! The cost of idle live clients. `bench-live [clients] [path]` starts a server process, opens that
//! many streams of server-sent events, and prints the growth of the server's memory and the latency
//! of progress reports. `bench-live hostile [clients]` does the same for clients that never finish
//! their request.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod clients;
mod hostile;
mod server;

use anyhow::{Context as _, Result};

/// The default number of idle clients.
const CLIENTS: usize = 5_000;
/// The default number of hostile clients.
const HOSTILE: usize = 2_000;

#[tokio::main]
async fn main() -> Result<()> {
    raise_file_limit()?;
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("serve") => server::run(arguments.next().context("a folder is missing")?.into()).await,
        Some("hostile") => {
            let count = arguments
                .next()
                .map_or(Ok(HOSTILE), |count| count.parse())?;
            hostile::measure(count).await
        }
        Some(clients) => clients::measure(clients.parse()?, arguments.next()).await,
        None => clients::measure(CLIENTS, None).await,
    }
}

/// Each client needs an open file on both sides.
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
