//! The one place where this crate draws random numbers.

use uuid::Uuid;

/// A fresh identity that nobody can guess.
pub(crate) fn uuid() -> Uuid {
    let mut bytes = [0; 16];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// A number below `end`, for rests that nodes must not take in step.
pub(crate) fn below(end: u64) -> u64 {
    rand::RngExt::random_range(&mut rand::rng(), 0..end.max(1))
}

/// Between a half and all of it, so that those who were told to wait alike do not come alike.
pub(crate) fn part_of(rest: std::time::Duration) -> std::time::Duration {
    rest.mul_f64(rand::RngExt::random_range(&mut rand::rng(), 0.5..=1.0))
}
