//! The one place where this crate draws random numbers.

/// A fresh number from 0 to 1, for jitter.
pub(crate) fn unit() -> f64 {
    (rand::Rng::next_u64(&mut rand::rng()) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A fresh identity that nobody can guess.
pub(crate) fn id() -> uuid::Uuid {
    let mut bytes = [0; 16];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
