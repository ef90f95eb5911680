//! Generated files: `make generate` writes them, `make verify` and every test run compare them.

use std::path::PathBuf;

use libtest_mimic::Trial;
use longhaul_domain::event::OutboxPolicy;
use longhaul_testkit::lifecycle_document;
use sqlx::{Connection, Row};

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![trial(
        "generated::the_lifecycle_document_is_current".to_owned(),
        || async {
            compare("docs/lifecycle.md", &lifecycle_document::markdown());
        },
    )];
    for backend in Backend::ALL {
        let name = format!("generated::the_{}_schema_dump_is_current", backend.name());
        trials.push(trial(name, move || async move {
            let (_store, _, database) = backend.store(OutboxPolicy::default()).await;
            let path = format!("crates/store/schema/generated/{}.sql", backend.name());
            compare(&path, &dump(&database).await);
        }));
    }
    trials
}

/// Compares a file of the repository with what it should be, or writes it when asked to.
fn compare(path: &str, wanted: &str) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    let writes = std::env::var_os("LONGHAUL_GENERATE").is_some();
    if writes {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} is not what the code makes of it; run `make generate` and commit it"
    );
}

/// The schema as the database tells it, sorted by name.
async fn dump(database: &FreshDatabase) -> String {
    let statements = match database.backend {
        Backend::Sqlite => sqlite(&database.url).await,
        Backend::Postgres => postgres(&database.url).await,
        Backend::MySql => mysql(&database.url).await,
    };
    let head = "-- Made by `make generate` from a migrated database. Do not edit.\n\n";
    head.to_owned() + &statements.join("\n\n") + "\n"
}

async fn sqlite(url: &str) -> Vec<String> {
    let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
    let query = "SELECT sql FROM sqlite_schema \
                 WHERE sql IS NOT NULL AND name NOT LIKE '%longhaul_migrations%' \
                 AND name NOT LIKE 'sqlite_%' \
                 ORDER BY type = 'view', type = 'trigger', tbl_name, type DESC, name";
    let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
    rows.iter()
        .map(|row| row.get::<String, _>(0) + ";")
        .collect()
}

async fn postgres(url: &str) -> Vec<String> {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let query = "
        SELECT 'TABLE ' || c.relname || E' (\\n' || string_agg('    ' || a.attname || ' '
            || format_type(a.atttypid, a.atttypmod)
            || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
            || COALESCE(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), ''),
                E',\\n' ORDER BY a.attnum) || E'\\n)'
            || CASE c.relreplident WHEN 'f' THEN ' REPLICA IDENTITY FULL;' ELSE ';' END AS sql,
            1 AS part, c.relname::text AS name
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
            AND c.relname <> 'longhaul_migrations'
        GROUP BY c.relname, c.relreplident
        UNION ALL
        SELECT 'CONSTRAINT ' || conrelid::regclass || '.' || conname || ' '
            || pg_get_constraintdef(oid) || ';', 2, conname::text
        FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
            AND conrelid::regclass::text <> 'longhaul_migrations' AND conrelid <> 0
        UNION ALL
        SELECT indexdef || ';', 3, indexname::text FROM pg_indexes
        WHERE schemaname = 'public' AND tablename <> 'longhaul_migrations'
        UNION ALL
        SELECT 'VIEW ' || viewname || E' AS\\n' || definition, 4, viewname::text
        FROM pg_views WHERE schemaname = 'public'
        UNION ALL
        SELECT pg_get_functiondef(oid) || ';', 5, proname::text
        FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        ORDER BY part, name";
    let rows = sqlx::query(query).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect()
}

async fn mysql(url: &str) -> Vec<String> {
    let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
    let query = "SELECT CAST(table_name AS CHAR), CAST(table_type AS CHAR) \
                 FROM information_schema.tables \
                 WHERE table_schema = DATABASE() AND table_name <> 'longhaul_migrations' \
                 ORDER BY table_type, table_name";
    let mut statements = Vec::new();
    let database = url.rsplit('/').next().unwrap();
    for row in sqlx::query(query).fetch_all(&mut connection).await.unwrap() {
        let name: String = row.get(0);
        let kind: String = row.get(1);
        let show = format!(
            "SHOW CREATE {} {name}",
            if kind == "VIEW" { "VIEW" } else { "TABLE" }
        );
        let shown = sqlx::raw_sql(sqlx::AssertSqlSafe(show))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        let text: String = shown.get_unchecked(1);
        // The name of the test's database and of its user are no part of the schema.
        let text = text.replace(&format!("`{database}`."), "");
        let from = text.find(" DEFINER=").unwrap_or(0);
        let to = text.find(" SQL SECURITY").unwrap_or(from);
        statements.push(format!("{}{};", &text[..from], &text[to..]));
    }
    statements
}
