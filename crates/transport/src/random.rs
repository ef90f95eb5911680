//! The only place in this crate that draws random numbers.

use std::time::Duration;

use rand::{Rng as _, RngExt as _};
use uuid::Uuid;

/// A new id that cannot be guessed.
pub(crate) fn uuid() -> Uuid {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// A number below `end`. It spreads the pauses of nodes that would otherwise act in step.
pub(crate) fn below(end: u64) -> u64 {
    rand::rng().random_range(0..end.max(1))
}

/// Between half of the pause and all of it, so that clients with the same pause do not return
/// together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.5..=1.0))
}
