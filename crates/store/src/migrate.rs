//! Forward-only migrations. A schema of another program version is refused.

use std::cmp::Ordering;
use std::sync::LazyLock;

use longhaul_domain::StoreError;
use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migration, MigrationType, Migrator};

/// The table of applied migrations. sqlx's default table is left to the application, which may
/// migrate its own tables in the same database.
const TABLE: &str = "longhaul_migrations";

/// The migrations of one database. All databases have the same numbers and names.
macro_rules! migrations {
    ($folder:literal) => {
        LazyLock::new(|| {
            migrator(&[(
                1,
                "initial",
                include_str!(concat!("../migrations/", $folder, "/0001_initial.sql")),
            )])
        })
    };
}

pub(crate) static SQLITE: LazyLock<Migrator> = migrations!("sqlite");
#[cfg(feature = "postgres")]
pub(crate) static POSTGRES: LazyLock<Migrator> = migrations!("postgres");
#[cfg(feature = "mysql")]
pub(crate) static MYSQL: LazyLock<Migrator> = migrations!("mysql");

fn migrator(files: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migrations = files.iter().map(|(version, name, sql)| {
        let text = sqlx::SqlSafeStr::into_sql_str(*sql);
        Migration::new(*version, (*name).into(), MigrationType::Simple, text, false)
    });

    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(TABLE);
    migrator
}

/// Migrates the schema to this program's version. After a failure the connection still holds the
/// migration lock and must not be reused.
pub(crate) async fn run(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<(), StoreError> {
    applied(connection, migrator).await?;

    match migrator.run_direct(None, connection, false).await {
        Ok(()) => Ok(()),
        Err(MigrateError::VersionMissing(found)) => Err(too_new(found, migrator)),
        Err(MigrateError::VersionMismatch(version)) => Err(another_schema(version)),
        Err(MigrateError::Dirty(version)) => Err(failed(format!(
            "migration {version} is partially applied: restore a backup, or complete it by hand \
             and delete its row from {TABLE}"
        ))),
        Err(error) => Err(failed(error)),
    }
}

/// The migrations that the database has. A changed checksum is an error.
async fn applied(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<Vec<AppliedMigration>, StoreError> {
    let applied = match connection.list_applied_migrations(TABLE).await {
        Err(error) if is_missing_table(&error) => Vec::new(),
        listed => listed.map_err(failed)?,
    };

    for migration in migrator.iter() {
        let is_another = |one: &AppliedMigration| {
            one.version == migration.version && one.checksum != migration.checksum
        };
        if applied.iter().any(is_another) {
            return Err(another_schema(migration.version));
        }
    }

    Ok(applied)
}

/// Whether the error of any of the three databases means a missing table.
fn is_missing_table(error: &MigrateError) -> bool {
    let MigrateError::Execute(sqlx::Error::Database(error)) = error else {
        return false;
    };
    matches!(error.code().as_deref(), Some("42P01" | "42S02"))
        || error.message().starts_with("no such table")
}

/// The version of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaState {
    /// The newest migration that the database has; 0 when it has none.
    pub found: i64,
    /// The newest migration that this program has.
    pub known: i64,
    /// The migrations still to run, oldest first.
    pub pending: Vec<String>,
}

/// Reads the version of the schema and changes nothing.
pub(crate) async fn state(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<SchemaState, StoreError> {
    let applied = applied(connection, migrator).await?;
    let found = applied.iter().map(|one| one.version).max().unwrap_or(0);

    let pending = migrator.iter().filter(|one| one.version > found);
    let names = pending.map(|one| format!("{:04} {}", one.version, one.description));

    Ok(SchemaState {
        found,
        known: newest(migrator),
        pending: names.collect(),
    })
}

/// Refuses a schema of another version. An older one needs `longhaul migrate`, a newer one a newer
/// program.
pub(crate) async fn check(
    connection: &mut impl Migrate,
    migrator: &Migrator,
) -> Result<(), StoreError> {
    let SchemaState { found, known, .. } = state(connection, migrator).await?;
    match found.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(too_new(found, migrator)),
        Ordering::Less => Err(StoreError::Unavailable(format!(
            "the database schema is at migration {found} and this program needs {known}; \
             run `longhaul migrate`"
        ))),
    }
}

fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|one| one.version).max().unwrap_or(0)
}

fn too_new(found: i64, migrator: &Migrator) -> StoreError {
    let known = newest(migrator);
    StoreError::SchemaTooNew { found, known }
}

fn another_schema(version: i64) -> StoreError {
    StoreError::Internal(format!(
        "migration {version} in the database is not this program's: a development version of \
         Longhaul made this database, and it cannot be upgraded; delete it or use an empty one, \
         and run `longhaul migrate`"
    ))
}

/// A failure to migrate or read the schema.
pub(crate) fn failed(error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("the schema could not be migrated or read: {error}"))
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, Executor as _, SqliteConnection};

    use super::*;

    const BOXES: (i64, &str, &str) = (
        1,
        "boxes",
        include_str!("../tests/migrations/0001_boxes.sql"),
    );
    const LABELS: (i64, &str, &str) = (
        2,
        "labels",
        include_str!("../tests/migrations/0002_labels.sql"),
    );
    const BROKEN: (i64, &str, &str) = (
        3,
        "broken",
        include_str!("../tests/migrations/0003_broken.sql"),
    );

    async fn empty_database() -> SqliteConnection {
        SqliteConnection::connect("sqlite::memory:").await.unwrap()
    }

    async fn count(connection: &mut SqliteConnection, query: &'static str) -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(connection)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_schema_is_migrated_and_its_rows_stay() {
        let mut database = empty_database().await;
        let before = migrator(&[BOXES]);
        let after = migrator(&[BOXES, LABELS]);
        run(&mut database, &before).await.unwrap();
        database
            .execute("INSERT INTO boxes (id) VALUES (7)")
            .await
            .unwrap();

        let found = state(&mut database, &after).await.unwrap();
        assert_eq!(found.pending, ["0002 labels"]);
        let error = check(&mut database, &after).await.unwrap_err().to_string();
        assert!(error.contains("run `longhaul migrate`"), "{error}");

        run(&mut database, &after).await.unwrap();
        check(&mut database, &after).await.unwrap();
        let labelled = "SELECT count(*) FROM boxes WHERE id = 7 AND label = 'none'";
        assert_eq!(count(&mut database, labelled).await, 1);
    }

    #[tokio::test]
    async fn migrating_again_changes_nothing() {
        let mut database = empty_database().await;
        let all = migrator(&[BOXES, LABELS]);

        for _ in 0..2 {
            run(&mut database, &all).await.unwrap();
            let noted = "SELECT count(*) FROM longhaul_migrations";
            assert_eq!(count(&mut database, noted).await, 2);
        }
    }

    #[tokio::test]
    async fn a_program_that_is_older_than_the_schema_is_refused() {
        let mut database = empty_database().await;
        run(&mut database, &migrator(&[BOXES, LABELS]))
            .await
            .unwrap();

        let older = migrator(&[BOXES]);
        let too_new = StoreError::SchemaTooNew { found: 2, known: 1 };
        let migrated = run(&mut database, &older).await;
        assert_eq!(migrated, Err(too_new.clone()));
        assert_eq!(check(&mut database, &older).await, Err(too_new));
    }

    #[tokio::test]
    async fn a_partially_applied_migration_stops_the_later_ones() {
        let mut database = empty_database().await;
        run(&mut database, &migrator(&[BOXES])).await.unwrap();
        database
            .execute("UPDATE longhaul_migrations SET success = false")
            .await
            .unwrap();

        let error = run(&mut database, &migrator(&[BOXES, LABELS]))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("partially applied"), "{error}");
        let noted = "SELECT count(*) FROM longhaul_migrations";
        assert_eq!(count(&mut database, noted).await, 1);
    }

    #[tokio::test]
    async fn a_migration_that_fails_leaves_nothing_behind() {
        let mut database = empty_database().await;
        let error = run(&mut database, &migrator(&[BOXES, LABELS, BROKEN]))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("could not be migrated"), "{error}");

        let found = state(&mut database, &migrator(&[BOXES, LABELS, BROKEN])).await;
        assert_eq!(found.unwrap().found, 2);
        let half = "SELECT count(*) FROM sqlite_schema WHERE name = 'lids'";
        assert_eq!(count(&mut database, half).await, 0);
    }

    #[tokio::test]
    async fn a_migration_that_was_edited_is_refused() {
        let mut database = empty_database().await;
        run(&mut database, &migrator(&[BOXES])).await.unwrap();

        let edited = migrator(&[(1, "boxes", "CREATE TABLE crates (id integer)"), LABELS]);
        let error = run(&mut database, &edited).await.unwrap_err().to_string();
        assert!(
            error.contains("migration 1 in the database is not"),
            "{error}"
        );
        let untouched = "SELECT count(*) FROM longhaul_migrations";
        assert_eq!(count(&mut database, untouched).await, 1);
    }
}
