//! The one place where this program draws random numbers.

/// A byte that nobody can guess.
pub(crate) fn byte() -> u8 {
    let mut bytes = [0; 1];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    bytes[0]
}
