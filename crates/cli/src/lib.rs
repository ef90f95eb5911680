#![doc = include_str!("../README.md")]

pub mod client;
pub mod commands;
pub mod config;
pub mod samples;
pub mod telemetry;
