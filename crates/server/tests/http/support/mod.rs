//! What tests of the server and of the program `longhaul` share: a fresh database, a server in this
//! process, and a client that shows the raw text. Both suites import these modules at their root.

pub(crate) mod client;
pub(crate) mod database;
pub(crate) mod server;
pub(crate) mod trial;
mod types;
