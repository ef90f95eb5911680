//! The read side: questions whose answer is put together from what the store keeps.

pub mod census;
mod live_progress;
mod scrape;
pub mod statistics;
pub mod why;
