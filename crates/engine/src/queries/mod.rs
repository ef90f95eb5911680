//! The read side: questions that the store's records answer together.

mod live_progress;
pub mod queue_counts;
mod scrape;
pub mod statistics;
pub mod why;
