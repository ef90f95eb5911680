//! For users' own tests.
