//! The file of the embedded store: who may open it, what it may contain, and what happens when it
//! is deleted or replaced while it is open.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask, StoreError,
    contract::store::{Queues, TaskCommands},
    event::OutboxPolicy,
};
use longhaul_store::{SqlStore, StoreOptions};
use longhaul_testkit::names::queue_name;

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
};

/// How long an idle store may take to notice that its file is gone.
const NOTICES: Duration = Duration::from_secs(5);

macro_rules! trials {
    ($($case:ident),* $(,)?) => {
        vec![$(trial(concat!("sqlite::store_file::", stringify!($case)).to_owned(), $case)),*]
    };
}

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        no_submit_is_accepted_after_the_file_was_deleted,
        no_submit_is_accepted_after_the_file_was_replaced,
        no_submit_is_accepted_after_the_log_was_deleted,
        an_idle_store_notices_that_its_log_was_deleted,
        no_read_is_answered_from_a_deleted_file,
        a_file_that_was_lost_stays_lost,
        a_second_process_is_refused_after_the_file_was_replaced,
        a_second_process_is_refused_after_all_files_were_deleted,
        a_second_process_is_refused_behind_a_link,
        a_file_that_is_no_database_is_refused_and_unchanged,
        a_damaged_file_is_refused_with_advice,
        a_schema_without_one_of_its_tables_is_refused,
        a_file_with_an_applications_tables_is_used,
        a_foreign_table_with_one_of_our_names_is_refused,
        a_missing_file_whose_log_is_left_is_refused,
        an_empty_file_becomes_a_store,
        the_files_are_for_their_owner_only,
    ]
}

fn task() -> NewTask {
    let parameters = Json::parse("parameters", "{}").unwrap();
    NewTask::new("u-1", "t", queue_name("q"), parameters)
}

fn path_of(database: &FreshDatabase) -> PathBuf {
    PathBuf::from(database.url.strip_prefix("sqlite://").unwrap())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

async fn open(path: &Path) -> Result<SqlStore, StoreError> {
    let url = format!("sqlite://{}", path.display());
    SqlStore::open(&url, StoreOptions::default()).await
}

async fn refusal(path: &Path) -> String {
    match open(path).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

/// A store with one task, and its file.
async fn store_with_a_task() -> (SqlStore, FreshDatabase, PathBuf) {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();
    let path = path_of(&database);
    (store, database, path)
}

async fn refuses_submits(store: &SqlStore) {
    let single = store.submit_task(task()).await.unwrap_err();
    let batch = store.submit_tasks(vec![task()]).await.unwrap_err();
    for error in [single, batch] {
        assert!(
            matches!(&error, StoreError::Unavailable(why) if why.contains("was deleted or replaced")),
            "{error}"
        );
    }
}

/// Waits until `holds`.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(NOTICES, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what} in time"));
}

async fn no_submit_is_accepted_after_the_file_was_deleted() {
    let (store, _database, path) = store_with_a_task().await;
    fs::remove_file(&path).unwrap();
    refuses_submits(&store).await;
    assert!(!path.exists(), "no new file is made");
}

async fn no_submit_is_accepted_after_the_file_was_replaced() {
    let (store, _database, path) = store_with_a_task().await;
    let copy = beside(&path, ".copy");
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    refuses_submits(&store).await;
}

async fn no_submit_is_accepted_after_the_log_was_deleted() {
    let (store, database, path) = store_with_a_task().await;
    fs::remove_file(beside(&path, "-wal")).unwrap();
    refuses_submits(&store).await;
    drop(store);
    assert!(
        database.count("SELECT count(*) FROM tasks").await >= 1,
        "what was accepted before is in the database"
    );
}

async fn an_idle_store_notices_that_its_log_was_deleted() {
    let (store, database, path) = store_with_a_task().await;
    fs::remove_file(beside(&path, "-wal")).unwrap();
    until("the loss", async || store.list_queues().await.is_err()).await;
    drop(store);
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);
}

async fn no_read_is_answered_from_a_deleted_file() {
    let (store, _database, path) = store_with_a_task().await;
    assert_eq!(store.list_queues().await.unwrap().len(), 1);
    fs::remove_file(&path).unwrap();
    let error = store.list_queues().await.unwrap_err().to_string();
    assert!(error.contains("was deleted or replaced"), "{error}");
}

/// Another process may have written the file meanwhile, so a file that is put back is not used.
async fn a_file_that_was_lost_stays_lost() {
    let (store, _database, path) = store_with_a_task().await;
    let moved = beside(&path, ".moved");
    fs::rename(&path, &moved).unwrap();
    refuses_submits(&store).await;
    fs::rename(&moved, &path).unwrap();
    refuses_submits(&store).await;
}

async fn a_second_process_is_refused_after_the_file_was_replaced() {
    let (store, _database, path) = store_with_a_task().await;
    let copy = beside(&path, ".copy");
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    let why = refusal(&path).await;
    assert!(why.contains("open in another process"), "{why}");
    refuses_submits(&store).await;
}

/// The lock file was deleted with the others, so the store makes it again.
async fn a_second_process_is_refused_after_all_files_were_deleted() {
    let (store, _database, path) = store_with_a_task().await;
    let lock = beside(&path, ".lock");
    for suffix in ["", "-wal", "-shm", ".lock"] {
        fs::remove_file(beside(&path, suffix)).unwrap();
    }

    until("the lock file", async || lock.exists()).await;
    let why = refusal(&path).await;
    assert!(why.contains("open in another process"), "{why}");
    refuses_submits(&store).await;
}

async fn a_second_process_is_refused_behind_a_link() {
    let (_store, _database, path) = store_with_a_task().await;
    let link = path.with_file_name("link.db");
    symlink(&path, &link).unwrap();
    let why = refusal(&link).await;
    assert!(why.contains("open in another process"), "{why}");
}

async fn a_file_that_is_no_database_is_refused_and_unchanged() {
    let database = FreshDatabase::make(Backend::Sqlite).await;
    let path = path_of(&database);
    for content in ["a text", &"a longer text\n".repeat(1_000)] {
        fs::write(&path, content).unwrap();
        let why = refusal(&path).await;
        assert!(
            why.contains("tasks.db is not a SQLite database") && why.contains("store.url"),
            "{why}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
}

/// The first page has the schema; its header stays as it is.
async fn a_damaged_file_is_refused_with_advice() {
    let (store, _database, path) = store_with_a_task().await;
    store.close().await;
    let mut content = fs::read(&path).unwrap();
    content[100..4_096].fill(0xa5);
    fs::write(&path, &content).unwrap();

    let why = refusal(&path).await;
    assert!(
        why.contains("tasks.db is damaged: restore a backup"),
        "{why}"
    );
    assert!(fs::read(&path).unwrap() == content, "it is unchanged");
}

async fn a_schema_without_one_of_its_tables_is_refused() {
    let (store, database, path) = store_with_a_task().await;
    store.close().await;
    database.execute("DROP TABLE outbox").await;
    let why = refusal(&path).await;
    assert!(
        why.contains("no such table: outbox") && why.contains("restore a backup"),
        "{why}"
    );
}

async fn a_file_with_an_applications_tables_is_used() {
    let database = FreshDatabase::make(Backend::Sqlite).await;
    let path = path_of(&database);
    fs::write(&path, "").unwrap();
    database.execute("CREATE TABLE novels (n integer)").await;
    database.execute("INSERT INTO novels VALUES (7)").await;

    let store = open(&path).await.unwrap();
    store.submit_task(task()).await.unwrap();
    assert_eq!(database.count("SELECT n FROM novels").await, 7);
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);
}

async fn a_foreign_table_with_one_of_our_names_is_refused() {
    let database = FreshDatabase::make(Backend::Sqlite).await;
    let path = path_of(&database);
    fs::write(&path, "").unwrap();
    database.execute("CREATE TABLE tasks (n integer)").await;

    let why = refusal(&path).await;
    assert!(why.contains("table tasks already exists"), "{why}");
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name IN ('outbox', 'attempts')";
    assert_eq!(database.count(tables).await, 0, "nothing was made");
}

/// SQLite would delete the log, with the commits that are only there.
async fn a_missing_file_whose_log_is_left_is_refused() {
    let (store, _database, path) = store_with_a_task().await;
    let log = beside(&path, "-wal");
    let commits = fs::read(&log).unwrap();
    store.close().await;

    fs::write(&log, &commits).unwrap();
    for is_missing in [false, true] {
        fs::write(&path, "").unwrap();
        if is_missing {
            fs::remove_file(&path).unwrap();
        }
        let why = refusal(&path).await;
        assert!(why.contains("tasks.db-wal"), "{why}");
        assert!(fs::read(&log).unwrap() == commits, "the log is unchanged");
    }
}

async fn an_empty_file_becomes_a_store() {
    let database = FreshDatabase::make(Backend::Sqlite).await;
    let path = path_of(&database);
    fs::write(&path, "").unwrap();
    let store = open(&path).await.unwrap();
    store.submit_task(task()).await.unwrap();
}

async fn the_files_are_for_their_owner_only() {
    let (_store, _database, path) = store_with_a_task().await;
    for suffix in ["", "-wal", "-shm", ".lock"] {
        let file = beside(&path, suffix);
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
}
