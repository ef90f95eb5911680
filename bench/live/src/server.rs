//! The measured server: everything in one process, as in `longhaul dev`.

use std::path::PathBuf;

use anyhow::Result;
use longhaul::{
    Longhaul,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use longhaul_cli::samples;
use tokio::net::TcpListener;

pub(crate) async fn run(folder: PathBuf) -> Result<()> {
    let url = format!("sqlite://{}", folder.join("tasks.db").display());
    let longhaul = samples::register(Longhaul::open(&url).await?)
        .start()
        .await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;

    println!("{}", listener.local_addr()?);
    let settings = ListenerSettings {
        connections: 100_000,
        connections_per_address: 100_000,
        streams_per_owner: 100_000,
        ..ListenerSettings::default()
    };

    longhaul
        .serve(
            listener,
            IdentityMode::Dev,
            settings,
            CancellationToken::new(),
        )
        .await?;

    Ok(())
}
