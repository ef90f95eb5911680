//! One command a file.

pub mod dev;
