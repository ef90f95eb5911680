//! How a store reports its operations to what measures them.

use std::fmt::Debug;
use std::time::Duration;

use crate::error::StoreError;

/// An operation of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOperation {
    /// The method's name.
    pub name: &'static str,
    /// Whether it changes something.
    pub is_update: bool,
}

/// Sees the end of every operation of a store.
pub trait StoreObserver: Debug + Send + Sync {
    fn observed(&self, operation: StoreOperation, took: Duration, error: Option<&StoreError>);
}
