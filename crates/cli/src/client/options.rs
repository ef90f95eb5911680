//! The server to call, and the caller.

use std::ffi::OsString;

use longhaul_api::client::{Client, ClientError, Identity, TaskId};

use super::Screen;

/// Options of every command that calls a server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// The address of the server.
    #[arg(long, env = "LONGHAUL_URL", default_value = "http://127.0.0.1:7080")]
    url: String,
    /// The token that identifies the caller. `longhaul dev` needs none.
    #[arg(long, env = "LONGHAUL_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The user to act for, if the server trusts this header: `longhaul dev`, or behind a gateway.
    #[arg(long)]
    user: Option<String>,
    /// Print the server's JSON unchanged, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
    /// Any value turns colours off, as <https://no-color.org> says.
    #[arg(long, hide = true, env = "NO_COLOR")]
    no_color: Option<OsString>,
}

impl ServerOptions {
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        // An empty variable is as good as none.
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Client::new(
            &self.url,
            Identity {
                token: given(&self.token),
                user: given(&self.user),
            },
        )
    }

    pub(crate) fn screen(&self) -> Screen {
        let no_color = self.no_color.as_ref();
        Screen::new(no_color.is_some_and(|value| !value.is_empty()))
    }
}

/// Parses the id of a task.
pub(crate) fn task_id(text: &str) -> Result<TaskId, String> {
    match uuid::Uuid::try_parse(text.trim()) {
        Ok(id) => Ok(TaskId(id)),
        Err(_) => Err("it is not the id of a task; `longhaul list` shows them".to_owned()),
    }
}
