//! Statements and migrations.

use libtest_mimic::Trial;
use longhaul_domain::{Json, NewTask, StoreError, contract::Store, event::OutboxPolicy};
use longhaul_store::SqlStore;
use longhaul_testkit::clock::TestClock;

use crate::{
    fresh::{Backend, FreshDatabase, options},
    trial,
};

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    let name = |sentence: &str| format!("{}::schema::{sentence}", backend.name());
    vec![
        trial(name("every_statement_is_prepared"), move || every_statement_is_prepared(backend)),
        trial(name("a_schema_that_is_newer_is_refused"), move || a_schema_that_is_newer_is_refused(backend)),
        trial(name("an_empty_database_asks_for_migrate"), move || an_empty_database_asks_for_migrate(backend)),
        trial(name("a_waiting_task_outside_every_lane_is_refused"), move || outside_every_lane(backend)),
        trial(name("migrating_twice_changes_nothing"), move || migrating_twice_changes_nothing(backend)),
    ]
}

async fn every_statement_is_prepared(backend: Backend) {
    let (store, _, _database) = backend.store(OutboxPolicy::default()).await;
    assert_eq!(store.refused_statements().await.unwrap(), Vec::<String>::new());
}

async fn a_schema_that_is_newer_is_refused(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (9000, 'from the future', true, 'x', 1)",
        )
        .await;
    let refusals = [store.migrate().await, store.check_schema().await];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert_eq!(error, StoreError::SchemaTooNew { found: 9000, known: 8 });
        assert!(error.to_string().contains("newer than this program"), "{error}");
    }
}

async fn an_empty_database_asks_for_migrate(backend: Backend) {
    let database = FreshDatabase::make(backend).await;
    let store = SqlStore::connect(&database.url, options(&TestClock::new(), OutboxPolicy::default())).await.unwrap();
    let error = store.check_schema().await.unwrap_err();
    assert!(error.to_string().contains("run `longhaul migrate`"), "{error}");
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
        let refused = database.try_execute(&format!("UPDATE tasks SET {change}")).await.unwrap_err();
        assert!(refused.to_lowercase().contains("constraint"), "{change}: {refused}");
    }
}
