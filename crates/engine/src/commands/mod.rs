//! The use cases that change something: the store first, then whoever must hear of it.

mod cancel;
mod change;
pub mod finish;
mod retry;
mod submit;
