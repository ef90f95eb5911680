#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(feature = "fleet"),
    expect(dead_code, reason = "what only the servers' clients use")
)]

pub mod artifact;
pub mod local;
#[cfg(feature = "fleet")]
pub mod rabbitmq;
#[cfg(feature = "fleet")]
pub mod redis;

mod names;
mod random;
