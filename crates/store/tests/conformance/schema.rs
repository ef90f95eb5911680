//! Statements and migrations.

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask, NodeId, Status, StoreError, TaskRecord,
    contract::store::{AttemptEnd, AttemptReport, ClaimRequest, Leases, TaskCommands, Verdict},
    event::OutboxPolicy,
};
use longhaul_store::SqlStore;
use longhaul_testkit::{clock::TestClock, names::queue_name};
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
            newer_schema(backend)
        }),
        trial(
            name("a_database_of_a_development_version_is_refused"),
            move || development_database(backend),
        ),
        trial(
            name("a_partially_applied_migration_is_refused"),
            move || partial_migration(backend),
        ),
        trial(name("an_empty_database_asks_for_migrate"), move || {
            empty_database(backend)
        }),
        trial(
            name("a_waiting_task_outside_every_lane_is_refused"),
            move || outside_every_lane(backend),
        ),
        trial(
            name("ids_that_are_not_set_are_null_in_the_views"),
            move || ids_that_are_not_set(backend),
        ),
        trial(
            name("migrations_of_an_application_stand_beside_ours"),
            move || beside_an_applications(backend),
        ),
        trial(name("migrating_twice_changes_nothing"), move || {
            migrating_twice(backend)
        }),
    ];

    // A SQLite file has one process.
    if backend != Backend::Sqlite {
        trials.push(trial(
            name("several_processes_may_migrate_at_once"),
            move || migrating_at_once(backend),
        ));
    }

    if backend == Backend::Postgres {
        trials.push(trial(
            name("the_lanes_index_refuses_like_a_constraint"),
            refused_like_a_constraint,
        ));
    }

    if backend == Backend::MySql {
        trials.push(trial(
            name("a_row_without_padding_is_claimed_and_ended"),
            row_without_padding,
        ));
    }

    trials
}

fn task() -> NewTask {
    NewTask::new(
        "u-1",
        "t",
        queue_name("q"),
        Json::parse("parameters", "{}").unwrap(),
    )
}

async fn every_statement_is_prepared(backend: Backend) {
    let (store, _, _database) = backend.store(OutboxPolicy::default()).await;
    assert_eq!(
        store.refused_statements().await.unwrap(),
        Vec::<String>::new()
    );
}

async fn newer_schema(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute(
            "INSERT INTO longhaul_migrations (version, description, success, checksum, execution_time) \
             VALUES (9000, 'from the future', true, 'x', 1)",
        )
        .await;

    let refusals = [store.migrate().await, store.check_schema().await];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        let too_new = StoreError::SchemaTooNew {
            found: 9000,
            known: 1,
        };
        assert_eq!(error, too_new);
        assert!(
            error.to_string().contains("newer than this program"),
            "{error}"
        );
    }
}

/// Development versions numbered their migrations from 1, too, and had more of them.
async fn development_database(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();
    database
        .execute("UPDATE longhaul_migrations SET description = 'foundation', checksum = 'x'")
        .await;
    database
        .execute(
            "INSERT INTO longhaul_migrations (version, description, success, checksum, execution_time) \
             VALUES (2, 'views', true, 'x', 1), (8, 'served', true, 'x', 1)",
        )
        .await;

    let refusals = [
        store.migrate().await,
        store.check_schema().await,
        store.schema().await.map(drop),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err().to_string();
        assert!(
            error.contains("a development version of Longhaul"),
            "{error}"
        );
        assert!(error.contains("delete it or use an empty one"), "{error}");
    }

    let noted = "SELECT count(*) FROM longhaul_migrations";
    assert_eq!(database.count(noted).await, 3);
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);
}

async fn partial_migration(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();
    database
        .execute("UPDATE longhaul_migrations SET success = false")
        .await;

    let error = store.migrate().await.unwrap_err().to_string();
    assert!(error.contains("partially applied"), "{error}");
    assert!(error.contains("longhaul_migrations"), "{error}");
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);
}

async fn empty_database(backend: Backend) {
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

async fn migrating_twice(backend: Backend) {
    let (store, _, _database) = backend.store(OutboxPolicy::default()).await;
    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
}

/// Such a row could never be claimed. The schema refuses it from every program.
async fn outside_every_lane(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();

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

/// sqlx's own table for the migrations of an application, with one that has a number of ours and
/// one of a later day.
async fn note_an_applications(backend: Backend, database: &FreshDatabase) {
    let bytes = match backend {
        Backend::Sqlite | Backend::MySql => "BLOB",
        Backend::Postgres => "BYTEA",
    };
    let table = format!(
        "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, \
         installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, \
         checksum {bytes} NOT NULL, execution_time BIGINT NOT NULL)"
    );

    database.execute(&table).await;
    for version in ["1", "20261118093000"] {
        let note = "INSERT INTO _sqlx_migrations (version, description, success, checksum, \
             execution_time) VALUES";
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
    assert_eq!(before.found, 0, "{before:?}");
    assert_eq!(before.pending, ["0001 initial"]);

    store.migrate().await.unwrap();
    store.check_schema().await.unwrap();
    store.submit_task(task()).await.unwrap();
    assert_eq!(
        database
            .count("SELECT count(*) FROM _sqlx_migrations")
            .await,
        2,
        "they are the application's"
    );
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

async fn ids_that_are_not_set(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();

    let nobody = "SELECT count(*) FROM v_tasks WHERE parent_task_id IS NULL AND node_id IS NULL";
    assert_eq!(database.count(nobody).await, 1);
}

async fn refused_like_a_constraint() {
    let (store, _, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();

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

async fn row_without_padding() {
    let (store, _, database) = Backend::MySql.store(OutboxPolicy::default()).await;
    store.submit_tasks(vec![task(), task()]).await.unwrap();
    database.execute("UPDATE tasks SET reserve = NULL").await;
    store.submit_task(task()).await.unwrap();

    let without = "SELECT COUNT(*) FROM tasks WHERE reserve IS NULL";
    assert_eq!(database.count(without).await, 2);
    let node_id = NodeId(random_id());

    store.register_node(node_id, "n", "h", None).await.unwrap();
    let queues = vec![queue_name("q")];
    let task_types = vec!["t".to_owned()];
    let request = ClaimRequest {
        node_id,
        host: "h".to_owned(),
        queues,
        task_types,
        limit: 9,
    };

    let claimed = store.claim_tasks(&request).await.unwrap();
    let outcome = AttemptEnd::Completed {
        result: None,
        result_url: None,
    };
    let reports = claimed
        .iter()
        .filter_map(TaskRecord::lease)
        .map(|lease| AttemptReport {
            lease,
            end: outcome.clone(),
        });

    let verdicts = store
        .finish_tasks(&reports.collect::<Vec<_>>())
        .await
        .unwrap();
    assert_eq!(verdicts, [Verdict::Applied(Status::Completed); 3]);
    assert_eq!(database.count(without).await, 3);
}
