//! One command a file.

pub(crate) mod dev;
