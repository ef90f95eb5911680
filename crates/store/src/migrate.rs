//! Migrations: forward only, from empty, and a refusal to touch a schema that is newer than the program.

use std::sync::LazyLock;

use longhaul_domain::StoreError;
use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migration, MigrationType, Migrator};

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

pub(crate) static SQLITE: LazyLock<Migrator> =
    migrations!("sqlite", (11, "ids of nobody", "0011_ids_of_nobody.sql"));
#[cfg(feature = "postgres")]
pub(crate) static POSTGRES: LazyLock<Migrator> = migrations!(
    "postgres",
    (9, "lane by index", "0009_lane_by_index.sql"),
    (10, "lean writes", "0010_lean_writes.sql")
);
#[cfg(feature = "mysql")]
pub(crate) static MYSQL: LazyLock<Migrator> =
    migrations!("mysql", (12, "room to grow", "0012_room_to_grow.sql"));

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
pub(crate) async fn run(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<(), StoreError> {
    match migrate(connection, migrator).await {
        Ok(()) => Ok(()),
        Err(MigrateError::VersionMissing(found)) => Err(too_new(found, migrator)),
        Err(MigrateError::VersionMismatch(version)) => Err(StoreError::Internal(format!(
            "migration {version} in the database differs from this program's; migrations are never edited"
        ))),
        Err(MigrateError::Dirty(version)) => Err(failed(format!(
            "migration {version} is partially applied: restore a backup, or complete it by hand and delete its row from \
             {NOTED} (or {NOTED_AT_FIRST}, if it is noted there)"
        ))),
        Err(error) => Err(failed(error)),
    }
}

async fn migrate(connection: &mut impl Migrate, migrator: &Migrator) -> Result<(), MigrateError> {
    connection.lock().await?;
    let at_first = noted_at_first(connection, migrator).await?;
    if !at_first.is_empty() {
        take_over(connection, &at_first).await?;
    }
    migrator.run_direct(None, connection, false).await?;
    if !at_first.is_empty() {
        // Programs from before look there alone, and are to see that the schema has gone on without them.
        for migration in migrator
            .iter()
            .filter(|migration| !has(&at_first, migration.version))
        {
            connection.skip(NOTED_AT_FIRST, migration).await?;
        }
    }
    connection.unlock().await
}

/// Notes in our own table what was noted elsewhere at first. One that failed in the middle stays a person's to look at.
async fn take_over(
    connection: &mut impl Migrate,
    at_first: &[&Migration],
) -> Result<(), MigrateError> {
    if let Some(version) = connection
        .dirty_version(NOTED_AT_FIRST)
        .await?
        .filter(|version| has(at_first, *version))
    {
        return Err(MigrateError::Dirty(version));
    }
    connection.ensure_migrations_table(NOTED).await?;
    let noted = connection.list_applied_migrations(NOTED).await?;
    for migration in at_first {
        if noted.iter().all(|noted| noted.version != migration.version) {
            connection.skip(NOTED, migration).await?;
        }
    }
    Ok(())
}

fn has(migrations: &[&Migration], version: i64) -> bool {
    migrations
        .iter()
        .any(|migration| migration.version == version)
}

/// Those of our migrations that sqlx's own table has. If it has one of them, a number of ours with another sum is one that was
/// changed; if it has none, all that it has is the application's.
async fn noted_at_first<'m>(
    connection: &mut impl Migrate,
    migrator: &'m Migrator,
) -> Result<Vec<&'m Migration>, MigrateError> {
    let others = listed(connection, NOTED_AT_FIRST).await?;
    let noted = |migration: &&Migration| {
        others
            .iter()
            .any(|other| other.version == migration.version)
    };
    let (ours, changed): (Vec<_>, Vec<_>) = migrator.iter().filter(noted).partition(|migration| {
        others
            .iter()
            .any(|other| other.version == migration.version && other.checksum == migration.checksum)
    });
    match changed.first().filter(|_| !ours.is_empty()) {
        Some(migration) => Err(MigrateError::VersionMismatch(migration.version)),
        None => Ok(ours),
    }
}

/// What a table has noted; nothing if there is none that we may read.
async fn listed(
    connection: &mut impl Migrate,
    table: &str,
) -> Result<Vec<AppliedMigration>, MigrateError> {
    match connection.list_applied_migrations(table).await {
        Err(error) if is_not_there(&error) => Ok(Vec::new()),
        listed => listed,
    }
}

/// No such table, as the three say it, or one of somebody else's, as PostgreSQL says it.
fn is_not_there(error: &MigrateError) -> bool {
    let MigrateError::Execute(sqlx::Error::Database(error)) = error else {
        return false;
    };
    matches!(error.code().as_deref(), Some("42P01" | "42S02" | "42501"))
        || error.message().starts_with("no such table")
}

/// The newest migration that the database has; 0 when it has none.
async fn found(connection: &mut impl Migrate, migrator: &Migrator) -> Result<i64, StoreError> {
    let noted = listed(connection, NOTED).await.map_err(failed)?;
    if let Some(newest) = noted.iter().map(|migration| migration.version).max() {
        return Ok(newest);
    }
    let at_first = noted_at_first(connection, migrator).await.map_err(failed)?;
    Ok(at_first
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0))
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
pub(crate) async fn state(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<SchemaState, StoreError> {
    let found = found(connection, migrator).await?;
    let pending = migrator
        .iter()
        .filter(|migration| migration.version > found);
    let named =
        |migration: &Migration| format!("{:04} {}", migration.version, migration.description);
    Ok(SchemaState {
        found,
        known: newest(migrator),
        pending: pending.map(named).collect(),
    })
}

/// Refuses a schema that is not this program's: older asks for `longhaul migrate`, newer for a newer program.
pub(crate) async fn check(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<(), StoreError> {
    let found = found(connection, migrator).await?;
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
    migrator
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

fn too_new(found: i64, migrator: &Migrator) -> StoreError {
    StoreError::SchemaTooNew {
        found,
        known: newest(migrator),
    }
}

/// A database that could not be asked.
pub(crate) fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("the schema could not be migrated or read: {error}"))
}
