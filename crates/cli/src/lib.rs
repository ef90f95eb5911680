//! The program `longhaul`: its commands and the sample types. The library of its own is for its tests.

pub mod client;
pub mod commands;
pub mod config;
mod random;
pub mod samples;
pub mod telemetry;
