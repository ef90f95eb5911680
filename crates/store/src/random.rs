//! The one place where this crate draws random numbers.

/// A random number, for the gaps between ids.
pub(crate) fn next_u64() -> u64 {
    rand::Rng::next_u64(&mut rand::rng())
}

/// A random lease token, or the seed of several.
pub(crate) fn token() -> uuid::Uuid {
    uuid::Uuid::from_u64_pair(next_u64(), next_u64())
}

/// A random number from 0 to 1, for jitter.
pub(crate) fn unit() -> f64 {
    rand::RngExt::random(&mut rand::rng())
}
