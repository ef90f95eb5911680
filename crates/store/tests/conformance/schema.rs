//! Statements and migrations.

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask, NodeId, Status, StoreError, Task,
    contract::{
        Store,
        store::{ClaimRequest, Outcome, Report, Verdict},
    },
    event::OutboxPolicy,
};
use longhaul_store::SqlStore;
use longhaul_testkit::clock::TestClock;
use sqlx::{Connection as _, Executor as _};

use crate::{
    fresh::{Backend, FreshDatabase, options, random_id},
    trial,
};

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    let name = |sentence: &str| format!("{}::schema::{sentence}", backend.name());
    let mut trials = vec![
        trial(name("every_statement_is_prepared"), move || {
            every_statement_is_prepared(backend)
        }),
        trial(name("a_schema_that_is_newer_is_refused"), move || {
            a_schema_that_is_newer_is_refused(backend)
        }),
        trial(name("an_empty_database_asks_for_migrate"), move || {
            an_empty_database_asks_for_migrate(backend)
        }),
        trial(
            name("a_waiting_task_outside_every_lane_is_refused"),
            move || outside_every_lane(backend),
        ),
        trial(name("ids_of_nobody_are_null_in_the_views"), move || {
            ids_of_nobody(backend)
        }),
        trial(
            name("migrations_of_an_application_stand_beside_ours"),
            move || beside_an_applications(backend),
        ),
        trial(
            name("a_schema_whose_migrations_were_noted_elsewhere_is_taken_over"),
            move || noted_elsewhere(backend),
        ),
        trial(name("migrating_twice_changes_nothing"), move || {
            migrating_twice_changes_nothing(backend)
        }),
    ];
    let untouched = "what_was_not_migrated_cleanly_is_not_taken_over";
    trials.push(trial(name(untouched), move || not_taken_over(backend)));
    match backend {
        // A file has one process.
        Backend::Sqlite => {
            let sentence = "programs_of_before_see_that_the_schema_has_gone_on_without_them";
            trials.push(trial(name(sentence), gone_on_without_them));
        }
        Backend::Postgres | Backend::MySql => {
            trials.push(trial(
                name("several_processes_may_migrate_at_once"),
                move || migrating_at_once(backend),
            ));
        }
    }
    if matches!(backend, Backend::Postgres) {
        trials.push(trial(
            name("a_refusal_of_the_lanes_index_is_told_as_a_constraints"),
            refused_like_a_constraint,
        ));
        trials.push(trial(
            name("migrations_9_and_10_keep_tasks_and_counts"),
            migrations_9_and_10,
        ));
    }
    if matches!(backend, Backend::MySql) {
        trials.push(trial(
            name("tasks_from_before_migration_12_are_claimed_and_ended"),
            migration_12,
        ));
    }
    trials
}

async fn every_statement_is_prepared(backend: Backend) {
    let (store, _, _database) = backend.store(OutboxPolicy::default()).await;
    assert_eq!(
        store.refused_statements().await.unwrap(),
        Vec::<String>::new()
    );
}

async fn a_schema_that_is_newer_is_refused(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute(
            "INSERT INTO longhaul_migrations (version, description, success, checksum, execution_time) \
             VALUES (9000, 'from the future', true, 'x', 1)",
        )
        .await;
    let known = match backend {
        Backend::Sqlite => 11,
        Backend::Postgres => 10,
        Backend::MySql => 12,
    };
    let refusals = [store.migrate().await, store.check_schema().await];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error, StoreError::SchemaTooNew { found: 9000, known });
        assert!(
            error.to_string().contains("newer than this program"),
            "{error}"
        );
    }
}

async fn an_empty_database_asks_for_migrate(backend: Backend) {
    let database = FreshDatabase::make(backend).await;
    let store = SqlStore::connect(
        &database.url,
        options(&TestClock::new(), OutboxPolicy::default()),
    )
    .await
    .unwrap();
    let error = store.check_schema().await.unwrap_err();
    assert!(
        error.to_string().contains("run `longhaul migrate`"),
        "{error}"
    );
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
}

async fn migrating_twice_changes_nothing(backend: Backend) {
    let (store, _, _database) = backend.store(OutboxPolicy::default()).await;
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
}

/// Such a row could never be claimed. The schema itself refuses it, whoever writes it.
async fn outside_every_lane(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    let task = NewTask::new("u-1", "t", "q", Json::parse("parameters", "{}").unwrap());
    store.submit_task(task).await.unwrap();
    for change in ["lane = NULL", "status = 'COMPLETED'", "status = 'RUNNING'"] {
        let refused = database
            .try_execute(&format!("UPDATE tasks SET {change}"))
            .await
            .unwrap_err();
        assert!(
            refused.to_lowercase().contains("constraint"),
            "{change}: {refused}"
        );
    }
    let id = match backend {
        Backend::Sqlite => "randomblob(16)",
        Backend::Postgres => "gen_random_uuid()",
        Backend::MySql => "RANDOM_BYTES(16)",
    };
    for (status, lane, is_taken) in [
        ("'QUEUED'", "NULL", false),
        ("'COMPLETED'", "lane", false),
        ("status", "lane", true),
    ] {
        let copy = format!(
            "INSERT INTO tasks (id, created_at, updated_at, due_at, owner, task_type, queue, parameters, status, lane) \
             SELECT {id}, created_at, updated_at, due_at, owner, task_type, queue, parameters, {status}, {lane} FROM tasks"
        );
        let told = database.try_execute(&copy).await;
        assert_eq!(told.is_ok(), is_taken, "{status}, {lane}: {told:?}");
        assert!(
            told.is_ok()
                || told
                    .as_ref()
                    .unwrap_err()
                    .to_lowercase()
                    .contains("constraint"),
            "{told:?}"
        );
    }
}

/// What sqlx makes for the migrations of whoever uses it, with one that has a number of ours, and one of a later day.
async fn note_an_applications(backend: Backend, database: &FreshDatabase) {
    let bytes = match backend {
        Backend::Sqlite | Backend::MySql => "BLOB",
        Backend::Postgres => "BYTEA",
    };
    let table = format!(
        "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
         installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum {bytes} NOT NULL, \
         execution_time BIGINT NOT NULL)"
    );
    database.execute(&table).await;
    for version in ["1", "20261118093000"] {
        let note = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) VALUES";
        database
            .execute(&format!("{note} ({version}, 'books', true, 'x', 1)"))
            .await;
    }
}

async fn beside_an_applications(backend: Backend) {
    let database = FreshDatabase::make(backend).await;
    let store = SqlStore::connect(
        &database.url,
        options(&TestClock::new(), OutboxPolicy::default()),
    )
    .await
    .unwrap();
    note_an_applications(backend, &database).await;
    let before = store.schema().await.unwrap();
    assert_eq!(
        (before.found, before.pending.len() > 1),
        (0, true),
        "{before:?}"
    );
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
    store
        .submit_task(NewTask::new(
            "u-1",
            "t",
            "q",
            Json::parse("parameters", "{}").unwrap(),
        ))
        .await
        .unwrap();
    assert_eq!(
        database
            .count("SELECT count(*) FROM _sqlx_migrations")
            .await,
        2,
        "they are the application's"
    );
}

/// A database of before our migrations had a table of their own, at the newest but so many.
async fn of_before(backend: Backend, without: i64) -> (SqlStore, FreshDatabase, i64) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    store
        .submit_task(NewTask::new(
            "u-1",
            "t",
            "q",
            Json::parse("parameters", "{}").unwrap(),
        ))
        .await
        .unwrap();
    let known = store.schema().await.unwrap().known;
    database
        .execute("ALTER TABLE longhaul_migrations RENAME TO _sqlx_migrations")
        .await;
    database
        .execute(&format!(
            "DELETE FROM _sqlx_migrations WHERE version > {}",
            known - without
        ))
        .await;
    (store, database, known)
}

async fn noted_elsewhere(backend: Backend) {
    let (store, database, known) = of_before(backend, 0).await;
    assert_eq!(store.schema().await.unwrap().pending, Vec::<String>::new());
    store.check_schema().await.unwrap();
    let noted = database
        .count("SELECT count(*) FROM _sqlx_migrations")
        .await;
    for _ in 0..2 {
        store.migrate().await.unwrap();
        assert_eq!(
            database
                .count("SELECT count(*) FROM longhaul_migrations")
                .await,
            noted
        );
        assert_eq!(
            database
                .count("SELECT max(version) FROM longhaul_migrations")
                .await,
            known
        );
    }
    // The application takes its table, and ours are still known.
    database.execute("DELETE FROM _sqlx_migrations").await;
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
    assert_eq!(
        database
            .count("SELECT count(*) FROM _sqlx_migrations")
            .await,
        0
    );
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);
}

/// SQLite's newest migration makes its views anew, so it can be left to be done again.
async fn gone_on_without_them() {
    let (store, database, known) = of_before(Backend::Sqlite, 1).await;
    assert_eq!(store.schema().await.unwrap().pending.len(), 1);
    store.migrate().await.unwrap();
    assert_eq!(
        database
            .count("SELECT max(version) FROM longhaul_migrations")
            .await,
        known
    );
    assert_eq!(
        database
            .count("SELECT max(version) FROM _sqlx_migrations")
            .await,
        known,
        "programs of before look there"
    );
}

async fn not_taken_over(backend: Backend) {
    let (store, database, known) = of_before(backend, 0).await;
    database
        .execute(&format!(
            "UPDATE _sqlx_migrations SET success = false WHERE version = {known}"
        ))
        .await;
    let error = store.migrate().await.unwrap_err();
    assert!(error.to_string().contains("partially applied"), "{error}");
    database
        .execute("UPDATE _sqlx_migrations SET success = true")
        .await;
    database
        .execute(&format!(
            "UPDATE _sqlx_migrations SET checksum = 'x' WHERE version = {known}"
        ))
        .await;
    let error = store.migrate().await.unwrap_err();
    assert!(error.to_string().contains("never edited"), "{error}");
    assert!(store.check_schema().await.is_err());
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);
}

async fn migrating_at_once(backend: Backend) {
    let database = FreshDatabase::make(backend).await;
    let migrating = (0..4).map(|_| async {
        let options = options(&TestClock::new(), OutboxPolicy::default());
        let store = SqlStore::connect(&database.url, options).await.unwrap();
        store.migrate().await.unwrap();
        store.check_schema().await.unwrap();
    });
    futures::future::join_all(migrating).await;
}

async fn ids_of_nobody(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    store
        .submit_task(NewTask::new(
            "u-1",
            "t",
            "q",
            Json::parse("parameters", "{}").unwrap(),
        ))
        .await
        .unwrap();
    let nobody = "SELECT count(*) FROM v_tasks WHERE parent_task_id IS NULL AND node_id IS NULL";
    assert_eq!(database.count(nobody).await, 1);
}

async fn refused_like_a_constraint() {
    let (store, _, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    store
        .submit_task(NewTask::new(
            "u-1",
            "t",
            "q",
            Json::parse("parameters", "{}").unwrap(),
        ))
        .await
        .unwrap();
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let refused = connection
        .execute("UPDATE tasks SET status = 'COMPLETED'")
        .await
        .unwrap_err();
    let refused = refused.as_database_error().unwrap();
    assert_eq!(
        (refused.code().as_deref(), refused.constraint()),
        (Some("23514"), Some("tasks_lane"))
    );
    assert!(
        refused.message().contains("COMPLETED with the lane"),
        "{refused}"
    );
}

/// What migrations 9 and 10 found: a CHECK, and lines of counts with ids.
const AS_BEFORE: &str = "
    DROP INDEX tasks_lane;
    DROP FUNCTION longhaul_refuse_lane;
    ALTER TABLE tasks ADD CONSTRAINT tasks_lane CHECK ((lane IS NOT NULL) = (status IN ('QUEUED', 'RETRYING')));
    ALTER TABLE tally_deltas ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY;
    ALTER TABLE tally_deltas REPLICA IDENTITY DEFAULT;
    DELETE FROM longhaul_migrations WHERE version IN (9, 10)";

async fn migrations_9_and_10() {
    let (store, _, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let task = || NewTask::new("u-1", "t", "q", Json::parse("parameters", "{}").unwrap());
    store
        .submit_tasks((0..20).map(|_| task()).collect())
        .await
        .unwrap();
    store.fold_tallies(1_000).await.unwrap();
    for _ in 0..3 {
        store.submit_task(task()).await.unwrap();
    }
    database.execute(AS_BEFORE).await;
    assert!(
        store.check_schema().await.is_err(),
        "it is the schema of the version before"
    );
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
    store.submit_task(task()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            database
                .count("SELECT tasks FROM v_counts WHERE status = 'QUEUED'")
                .await,
            24
        );
        store.fold_tallies(1_000).await.unwrap();
    }
    assert_eq!(database.count("SELECT count(*) FROM tally_deltas").await, 0);
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 24);
    assert!(
        database
            .try_execute("UPDATE tasks SET lane = NULL")
            .await
            .is_err()
    );
}

async fn migration_12() {
    let (store, _, database) = Backend::MySql.store(OutboxPolicy::default()).await;
    let task = || NewTask::new("u-1", "t", "q", Json::parse("parameters", "{}").unwrap());
    database
        .execute("ALTER TABLE tasks DROP COLUMN reserve")
        .await;
    database
        .execute("DELETE FROM longhaul_migrations WHERE version = 12")
        .await;
    store.submit_tasks(vec![task(), task()]).await.unwrap();
    assert!(
        store.check_schema().await.is_err(),
        "it is the schema of the version before"
    );
    store.migrate().await.unwrap();
    store.submit_task(task()).await.unwrap();
    let without = "SELECT COUNT(*) FROM tasks WHERE reserve IS NULL";
    assert_eq!(
        database.count(without).await,
        2,
        "what was there before has none to give back"
    );
    let node_id = NodeId(random_id());
    store.register_node(node_id, "n", "h", None).await.unwrap();
    let (queues, task_types) = (vec!["q".to_owned()], vec!["t".to_owned()]);
    let request = ClaimRequest {
        node_id,
        host: "h".to_owned(),
        queues,
        task_types,
        limit: 9,
    };
    let claimed = store.claim_tasks(&request).await.unwrap();
    let outcome = Outcome::Completed {
        result: None,
        result_url: None,
    };
    let reports = claimed.iter().filter_map(Task::lease).map(|lease| Report {
        lease,
        outcome: outcome.clone(),
    });
    let verdicts = store
        .finish_tasks(&reports.collect::<Vec<_>>())
        .await
        .unwrap();
    assert_eq!(verdicts, [Verdict::Applied(Status::Completed); 3]);
    assert_eq!(database.count(without).await, 3);
}
