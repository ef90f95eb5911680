//! Tests of the node with its neighbours: handlers, the engine, and the facade that starts it.

mod crashed_files;
mod handlers;
mod output;
