#![doc = include_str!("../README.md")]

mod builder;
mod engine;
mod events;
mod hints;
mod log;
mod store_health;
mod wakeups;

pub mod commands;
pub mod queries;

pub mod catalog;
pub mod dependency;
mod direct_dispatch;
mod fair_order;
pub mod files;
pub mod local_node;
pub mod metrics;
pub mod output;
pub mod progress;
pub mod routing;
mod signals;
pub mod store_time;
pub mod submissions;
pub mod tiers;
pub mod trace;

pub use builder::EngineBuilder;
pub use catalog::Catalog;
pub use engine::Engine;
pub use files::Files;
pub use local_node::LocalNode;
pub use longhaul_domain::TaskInfo;
pub use metrics::Metrics;
pub use store_health::StoreFault;
pub use submissions::Submissions;
pub use wakeups::Wakeups;
