//! The [`Store`](longhaul_domain::contract::Store) contract on SQLite, PostgreSQL and MySQL/MariaDB.
//!
//! Every operation is written once, in `operations/`, and decides with the domain's lifecycle. A database is a
//! folder: its SQL, a file a statement with the same names in each, and a session that binds and reads. This
//! crate never decides what a task may do, and never talks to anything but a database.

#![cfg_attr(
    not(all(feature = "postgres", feature = "mysql")),
    expect(dead_code, reason = "what only the drivers use that were left out")
)]

mod store;

#[cfg(all(feature = "postgres", feature = "mysql"))]
mod plain;

mod batcher;
mod submitter;

mod ledger;
mod operations;
mod options;

mod bounds;
mod catalog;
mod chunks;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
mod database;
mod failure;
mod migrate;
mod portions;
mod random;
mod record;
mod row;
mod savepoint;
mod session;
mod system_clock;

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
