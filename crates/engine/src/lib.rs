//! What a node does, decided without a database.
//!
//! Commands and queries go through [`Engine`], which changes the store and then tells whoever listens. What a node
//! holds and what it may claim are plain values ([`Desk`], [`Slots`]) that a simulation can drive step by step.
//! Background duties share one skeleton ([`service`]). Nothing here knows SQL, HTTP or handlers.

mod bells;
pub mod catalog;
pub mod commands;
pub mod dependency;
pub mod desk;
mod direct_ring;
pub mod engine;
pub mod files;
mod hot;
pub mod intake;
pub mod local_node;
mod measured;
pub mod metrics;
pub mod output;
pub mod pace;
mod parts;
pub mod pending_progress;
mod progress_feed;
pub mod queries;
pub mod ringing;
pub mod routing;
pub mod service;
pub mod services;
mod signals;
pub mod signer;
pub mod slots;
pub mod store_time;
mod task_info;
pub mod tiers;
pub mod trace;
mod turns;

pub use catalog::Catalog;
pub use desk::Desk;
pub use engine::Engine;
pub use files::Files;
pub use intake::Intake;
pub use local_node::LocalNode;
pub use metrics::Metrics;
pub use parts::Parts;
pub use slots::Slots;
pub use task_info::TaskInfo;
