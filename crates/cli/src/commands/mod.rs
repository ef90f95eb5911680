//! The commands, one per file.

pub mod bench;
pub mod cancel;
pub mod completions;
pub mod dev;
pub mod doctor;
pub mod get;
pub mod list;
pub mod migrate;
pub mod retry;
pub mod serve;
pub mod submit;
pub mod token;
pub mod top;
pub mod watch;
pub mod why;
pub mod worker;

mod config_file;
mod node;
