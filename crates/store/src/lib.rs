#![doc = include_str!("../README.md")]
#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql")),
    expect(dead_code, reason = "what only the drivers use that were left out")
)]

mod store;

#[cfg(all(feature = "postgres", feature = "mysql"))]
mod plain;

mod batcher;
mod submitter;

mod effects;
mod operations;
mod options;

mod bounds;
mod catalog;
mod chunks;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
mod database;

mod migrate;
mod random;
mod record;
mod row;
mod savepoint;
mod session;
mod split_by_bytes;
mod sql_error;
mod system_clock;
mod task_columns;

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;

pub use migrate::SchemaState;
pub use options::StoreOptions;
#[cfg(all(feature = "postgres", feature = "mysql"))]
pub use plain::{DatabaseKind, connect_mysql, connect_postgres, open_sqlite, statements};
pub use store::SqlStore;
pub use system_clock::SystemClock;
