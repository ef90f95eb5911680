//! For a fleet: rate limits that all nodes share, and the newest progress wherever a task runs, in Redis.
//!
//! Nothing here is the truth. A server that is flushed, restarted or away costs no task: see `docs/redis.md` for what
//! it does cost.

mod connection;
mod progress_cache;
mod rate_limiter;

pub use connection::{Redis, RedisState};
pub use progress_cache::RedisProgressCache;
pub use rate_limiter::{Booked, Fallback, RedisRateLimiter};
