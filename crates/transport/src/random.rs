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
