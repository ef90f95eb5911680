//! What Longhaul asks of the outside world: one trait for each boundary, one conformance suite for each trait.

pub mod store;

pub use store::Store;
