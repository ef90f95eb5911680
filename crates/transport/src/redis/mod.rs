//! For a fleet, in Redis: rate limits that all nodes share, and the newest progress of every task.
//!
//! Nothing in Redis is the truth. A server that is flushed, restarted or down costs no task:
//! `docs/redis.md` says what it does cost.

mod connection;
mod progress_cache;
mod rate_limiter;

pub use connection::{Redis, RedisState};
pub use progress_cache::RedisProgressCache;
pub use rate_limiter::{Booked, Fallback, RedisRateLimiter};
