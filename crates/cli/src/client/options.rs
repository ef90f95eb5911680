//! Which server, and who calls.

use std::ffi::OsString;

use longhaul_api::client::{Client, ClientError, Identity, TaskId};

use super::Screen;

/// What every command takes that talks to a server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// The address of the server.
    #[arg(long, env = "LONGHAUL_URL", default_value = "http://127.0.0.1:7080")]
    url: String,
    /// The token to call with. `dev` needs none.
    #[arg(long, env = "LONGHAUL_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Whose tasks this is about, where the server takes one's word for it: `dev`, or behind a gateway.
    #[arg(long)]
    user: Option<String>,
    /// Print the server's JSON as it is, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
    /// Any value turns colours off: the habit of <https://no-color.org>.
    #[arg(long, hide = true, env = "NO_COLOR")]
    no_color: Option<OsString>,
}

impl ServerOptions {
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        // What a variable holds that was set to nothing is nobody's token.
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
        Screen::new(
            self.no_color
                .as_ref()
                .is_some_and(|value| !value.is_empty()),
        )
    }
}

/// An id as it is typed.
pub(crate) fn task_id(text: &str) -> Result<TaskId, String> {
    let id = uuid::Uuid::try_parse(text.trim());
    id.map(TaskId)
        .map_err(|_| "it is not the id of a task; `longhaul list` shows them".to_owned())
}
