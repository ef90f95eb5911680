//! One command a file.

pub mod dev;
pub mod doctor;
pub mod migrate;
pub mod serve;
pub mod token;
pub mod worker;

mod config_file;
mod node;
mod stop_signal;
