//! The one place where sdk and node draw random numbers.

/// A random number from 0 to 1, for jitter.
pub fn unit() -> f64 {
    rand::RngExt::random(&mut rand::rng())
}

/// A random id that cannot be guessed.
pub fn id() -> uuid::Uuid {
    let mut bytes = [0; 16];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
