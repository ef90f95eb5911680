//! Migrations: forward only, from empty, and a refusal to touch a schema that is newer than the program.

use std::sync::LazyLock;

use longhaul_domain::StoreError;
use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator};

/// Where it is noted which migrations have run. sqlx's own table is left to the application, whose migrations may be noted there.
const NOTED: &str = "longhaul_migrations";
/// Where ours were noted at first. They are known by their sums.
const NOTED_AT_FIRST: &str = "_sqlx_migrations";

/// Those of every database, then those that one has alone; their numbers are nobody else's.
macro_rules! migrations {
    ($folder:literal $(, ($number:literal, $name:literal, $file:literal))*) => {
        LazyLock::new(|| {
            migrator([
                (1, "foundation", include_str!(concat!("../migrations/", $folder, "/0001_foundation.sql"))),
                (2, "views", include_str!(concat!("../migrations/", $folder, "/0002_views.sql"))),
                (3, "submit by sql", include_str!(concat!("../migrations/", $folder, "/0003_submit_by_sql.sql"))),
                (4, "task logs", include_str!(concat!("../migrations/", $folder, "/0004_task_logs.sql"))),
                (5, "tokens", include_str!(concat!("../migrations/", $folder, "/0005_tokens.sql"))),
                (6, "artifacts", include_str!(concat!("../migrations/", $folder, "/0006_artifacts.sql"))),
                (7, "waiting", include_str!(concat!("../migrations/", $folder, "/0007_waiting.sql"))),
                (8, "served", include_str!(concat!("../migrations/", $folder, "/0008_served.sql"))),
                $(($number, $name, include_str!(concat!("../migrations/", $folder, "/", $file))),)*
            ])
        })
    };
}

pub(crate) static SQLITE: LazyLock<Migrator> = migrations!("sqlite", (11, "ids of nobody", "0011_ids_of_nobody.sql"));
#[cfg(feature = "postgres")]
pub(crate) static POSTGRES: LazyLock<Migrator> = migrations!(
    "postgres",
    (9, "lane by index", "0009_lane_by_index.sql"),
    (10, "lean writes", "0010_lean_writes.sql")
);
#[cfg(feature = "mysql")]
pub(crate) static MYSQL: LazyLock<Migrator> = migrations!("mysql");

fn migrator<const N: usize>(files: [(i64, &'static str, &'static str); N]) -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        let text = sqlx::SqlSafeStr::into_sql_str(sql);
        Migration::new(version, name.into(), MigrationType::Simple, text, false)
    };
    let mut migrator = Migrator::with_migrations(files.into_iter().map(migration).collect());
    migrator.dangerous_set_table_name(NOTED);
    migrator
}

/// Brings the schema up to this program's. A failure leaves the connection with the migration lock, so the
/// connection must not be used for anything else.
pub(crate) async fn run(connection: &mut impl Migrate, migrator: &Migrator) -> Result<(), StoreError> {
    take_over(connection, migrator).await.map_err(failed)?;
    match migrator.run_direct(None, connection, false).await {
        Ok(()) => Ok(()),
        Err(MigrateError::VersionMissing(found)) => Err(too_new(found, migrator)),
        Err(MigrateError::VersionMismatch(version)) => Err(StoreError::Internal(format!(
            "migration {version} in the database differs from this program's; migrations are never edited"
        ))),
        Err(error) => Err(failed(error)),
    }
}

/// Notes in our own table what was noted elsewhere at first.
async fn take_over(connection: &mut impl Migrate, migrator: &Migrator) -> Result<(), MigrateError> {
    connection.lock().await?;
    let noted = noted(connection).await;
    for migration in noted_elsewhere(connection, migrator, &noted).await {
        connection.ensure_migrations_table(NOTED).await?;
        connection.skip(NOTED, migration).await?;
    }
    connection.unlock().await
}

/// The numbers of the migrations that our table has.
async fn noted(connection: &mut impl Migrate) -> Vec<i64> {
    let applied = connection.list_applied_migrations(NOTED).await.unwrap_or_default();
    applied.into_iter().map(|migration| migration.version).collect()
}

/// Those of our migrations that only the other table has.
async fn noted_elsewhere<'m>(
    connection: &mut impl Migrate,
    migrator: &'m Migrator,
    noted: &[i64],
) -> Vec<&'m Migration> {
    let missing: Vec<_> = migrator.iter().filter(|migration| !noted.contains(&migration.version)).collect();
    if missing.is_empty() {
        return missing;
    }
    let others = connection.list_applied_migrations(NOTED_AT_FIRST).await.unwrap_or_default();
    let is_ours = |migration: &&Migration| {
        others.iter().any(|other| other.version == migration.version && other.checksum == migration.checksum)
    };
    missing.into_iter().filter(is_ours).collect()
}

/// The newest migration that the database has; 0 when it has none.
async fn found(connection: &mut impl Migrate, migrator: &Migrator) -> i64 {
    let noted = noted(connection).await;
    let elsewhere = noted_elsewhere(connection, migrator, &noted).await;
    noted.into_iter().chain(elsewhere.into_iter().map(|migration| migration.version)).max().unwrap_or(0)
}

/// How far a schema is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaState {
    /// The newest migration that the database has; 0 when it has none.
    pub found: i64,
    /// The newest that this program has.
    pub known: i64,
    /// What would be done, oldest first.
    pub pending: Vec<String>,
}

/// Tells how far the schema is and changes nothing.
pub(crate) async fn state(connection: &mut impl Migrate, migrator: &Migrator) -> SchemaState {
    let found = found(connection, migrator).await;
    let pending = migrator.iter().filter(|migration| migration.version > found);
    let named = |migration: &Migration| format!("{:04} {}", migration.version, migration.description);
    SchemaState { found, known: newest(migrator), pending: pending.map(named).collect() }
}

/// Refuses a schema that is not this program's: older asks for `longhaul migrate`, newer for a newer program.
pub(crate) async fn check(connection: &mut impl Migrate, migrator: &Migrator) -> Result<(), StoreError> {
    let found = found(connection, migrator).await;
    let known = newest(migrator);
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(too_new(found, migrator)),
        std::cmp::Ordering::Less => Err(StoreError::Unavailable(format!(
            "the database schema is at migration {found} and this program needs {known}; run `longhaul migrate`"
        ))),
    }
}

fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

fn too_new(found: i64, migrator: &Migrator) -> StoreError {
    StoreError::SchemaTooNew { found, known: newest(migrator) }
}

/// A database that could not be asked.
pub(crate) fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("the schema could not be migrated or read: {error}"))
}
