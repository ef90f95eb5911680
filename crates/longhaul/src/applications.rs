//! Applications that a program mounts beside the HTTP API.

// Without the feature there is no HTTP API to mount them beside.
#[cfg_attr(feature = "server", path = "applications/mounted.rs")]
#[cfg_attr(not(feature = "server"), path = "applications/no_server.rs")]
mod mounted;

pub(crate) use mounted::Applications;
