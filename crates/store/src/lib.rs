//! The [`Store`](longhaul_domain::contract::Store) contract on SQLite, PostgreSQL and MySQL/MariaDB.
//!
//! Every operation is written once, in `operations/`, and decides with the domain's lifecycle. A database is a
//! folder: its SQL, a file a statement with the same names in each, and a session that binds and reads. This
//! crate never decides what a task may do, and never talks to anything but a database.

mod store;

mod plain;

mod batcher;
mod submitter;

mod ledger;
mod operations;
mod options;

mod bounds;
mod catalog;
mod chunks;
mod connections;
mod database;
mod failure;
mod migrate;
mod portions;
mod random;
mod record;
mod row;
mod session;
mod system_clock;

mod mysql;
mod postgres;
mod sqlite;

pub use migrate::SchemaState;
pub use options::StoreOptions;
pub use plain::{DatabaseKind, connect_mysql, connect_postgres, open_sqlite, statements};
pub use store::SqlStore;
pub use system_clock::SystemClock;
