//! One command a file.

pub mod bench;
pub mod cancel;
pub mod completions;
pub mod dev;
pub mod get;
pub mod list;
pub mod retry;
pub mod submit;
pub mod top;
pub mod watch;
pub mod why;
