//! What people do with plain SQL: submit from any language (R10) and read the views (R28), as
//! `docs/sql.md` says.

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, LogLevel, LogLine, NodeId, RetryPolicy, Status, TaskRecord,
    contract::{
        Store,
        store::{
            Access, AttemptData, AttemptEnd, AttemptReport, ClaimRequest, Failure, Leases,
            Maintenance, QueueCommands, Queues, RescueRequest, TaskCommands, TaskReads,
        },
    },
    event::OutboxPolicy,
    filter::Retention,
    statistics::CountFilter,
};
use longhaul_testkit::names::queue_name;

use crate::{
    fresh::{Backend, FreshDatabase, random_id},
    trial,
};

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    let name = |sentence: &str| format!("{}::plain_sql::{sentence}", backend.name());
    vec![
        trial(name("one_statement_submits_a_task_that_runs"), move || {
            submit_and_run(backend)
        }),
        trial(
            name("a_statement_that_does_not_fit_is_refused_by_field"),
            move || refusals(backend),
        ),
        trial(name("the_views_show_what_happened"), move || views(backend)),
        trial(
            name("a_row_that_was_spoilt_by_hand_holds_up_nobody"),
            move || spoilt_rows(backend),
        ),
        trial(
            name("a_row_whose_numbers_and_texts_are_none_holds_up_nobody"),
            move || spoilt_types(backend),
        ),
        trial(
            name("a_row_that_somebody_said_to_be_running_is_rescued_with_the_others"),
            move || said_to_run(backend),
        ),
        trial(
            name("log_lines_are_read_and_go_with_their_task"),
            move || logs(backend),
        ),
    ]
}

/// The documented statement of each database.
fn submit_statement(
    backend: Backend,
    kind: &str,
    parameters: &str,
    owner: &str,
    priority: &str,
) -> String {
    match backend {
        Backend::Sqlite => format!(
            "INSERT INTO submit_task (task_type, parameters, owner, priority) \
             VALUES ('{kind}', '{parameters}', '{owner}', {priority})"
        ),
        Backend::Postgres => format!(
            "SELECT longhaul_submit(task_type => '{kind}', parameters => '{parameters}', owner => '{owner}', \
             priority => {priority})"
        ),
        Backend::MySql => format!(
            "CALL longhaul_submit('{kind}', '{parameters}', '{owner}', NULL, {priority}, NULL, \
             NULL, NULL, NULL)"
        ),
    }
}

async fn claim_all(store: &dyn Store) -> Vec<TaskRecord> {
    let node_id = NodeId(random_id());
    store.register_node(node_id, "n", "h", None).await.unwrap();
    let request = ClaimRequest {
        node_id,
        host: "h".to_owned(),
        queues: vec![queue_name("free_default")],
        task_types: vec!["send_mail".to_owned()],
        limit: 50,
    };

    store.claim_tasks(&request).await.unwrap()
}

async fn submit_and_run(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    for parameters in [r#"{"to":"a@b.c"}"#, "[1, 2.50]"] {
        database
            .execute(&submit_statement(
                backend,
                "send_mail",
                parameters,
                "u-1",
                "7",
            ))
            .await;
    }

    let claimed = claim_all(&store).await;
    assert_eq!(claimed.len(), 2);
    for task in &claimed {
        assert_eq!(
            (
                task.owner.as_str(),
                task.priority,
                task.attempt,
                task.max_attempts
            ),
            ("u-1", 7, 1, 5)
        );

        assert_eq!(task.id.0.get_version_num(), 7);
        assert_eq!(task.id.0.get_variant(), uuid::Variant::RFC4122);
        let made_ms = (task.id.0.as_u128() >> 80) as i64;
        assert!(
            (task.created_at.as_micros() / 1_000 - made_ms).abs() <= 1_000,
            "the id tells the time"
        );
    }

    let mut parameters: Vec<&str> = claimed
        .iter()
        .map(|task| task.parameters.as_str())
        .collect();
    parameters.sort_unstable();
    assert_eq!(parameters, ["[1, 2.50]", r#"{"to":"a@b.c"}"#]);
    let counts = store
        .read_task_counts(&CountFilter::default())
        .await
        .unwrap();

    assert_eq!(
        counts
            .iter()
            .map(|line| (line.key.label.as_str(), line.n))
            .collect::<Vec<_>>(),
        [("RUNNING", 2)]
    );
}

async fn refusals(backend: Backend) {
    let (_store, _, database) = backend.store(OutboxPolicy::default()).await;
    let cases = [
        (
            "type",
            submit_statement(backend, "no spaces", "1", "u", "1"),
        ),
        ("type", submit_statement(backend, "", "1", "u", "1")),
        ("parameters", submit_statement(backend, "t", "{", "u", "1")),
        ("owner", submit_statement(backend, "t", "1", "", "1")),
        ("priority", submit_statement(backend, "t", "1", "u", "0")),
        ("priority", submit_statement(backend, "t", "1", "u", "10")),
    ];

    for (field, statement) in cases {
        let refusal = database
            .try_execute(&statement)
            .await
            .expect_err(&statement);
        let named = refusal.contains(field) || refusal.contains("json");

        assert!(
            named,
            "{statement} was refused without naming {field}: {refusal}"
        );
    }

    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 0);
    assert_eq!(database.count("SELECT count(*) FROM count_deltas").await, 0);
}

async fn views(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute(&submit_statement(backend, "send_mail", "{}", "u-1", "1"))
        .await;
    database
        .execute(&submit_statement(backend, "send_mail", "{}", "u-2", "1"))
        .await;
    let claimed = claim_all(&store).await;
    let done = AttemptEnd::Completed {
        result: Some(Json::parse("result", "42").unwrap()),
        result_url: None,
    };

    let failed = AttemptEnd::Failed {
        failure: Failure {
            class: "fatal".to_owned(),
            message: "no such address".to_owned(),
            detail: None,
        },
        retry_in_ms: None,
    };

    let outcomes = [done, failed];
    let reports: Vec<AttemptReport> = claimed
        .iter()
        .zip(outcomes)
        .map(|(task, outcome)| AttemptReport {
            lease: task.lease().unwrap(),
            end: outcome,
        })
        .collect();

    store.finish_tasks(&reports).await.unwrap();

    let id = claimed[0].id.to_string();
    let text = |sql: &str| sql.replace("{id}", &id);
    let count = "SELECT count(*) FROM v_tasks WHERE task_id = '{id}' AND status = 'COMPLETED' \
         AND result = '42'";
    assert_eq!(database.count(&text(count)).await, 1);
    let attempts =
        "SELECT count(*) FROM v_attempts WHERE task_id = '{id}' AND outcome = 'completed'";

    assert_eq!(database.count(&text(attempts)).await, 1);
    let dead = "SELECT count(*) FROM v_dead_letters WHERE error LIKE '%no such address%'";
    assert_eq!(database.count(dead).await, 1);
    let counted =
        "SELECT count(*) FROM v_counts WHERE status IN ('COMPLETED', 'FAILED') AND tasks = 1";

    assert_eq!(database.count(counted).await, 2);
    let ended =
        "SELECT count(*) FROM v_statistics WHERE measure = 'ended' AND bucket = 1 AND tasks = 1";
    assert_eq!(database.count(ended).await, 2);
    let years = "SELECT count(*) FROM v_tasks WHERE CAST(created_at AS CHAR(4)) >= '2020'";

    assert_eq!(database.count(years).await, 2);
    let status = store
        .get_task(&Access::All, claimed[1].id)
        .await
        .unwrap()
        .status;

    assert_eq!(status, Status::Failed);
}

/// Tasks of the owners `u-0` and on, each changed by hand, and a sound one behind them.
async fn submit_spoilt(database: &FreshDatabase, spoils: &[&str]) {
    for (place, spoil) in spoils.iter().enumerate() {
        let owner = format!("u-{place}");
        database
            .execute(&submit_statement(
                database.backend,
                "send_mail",
                "{}",
                &owner,
                "7",
            ))
            .await;

        database
            .execute(&format!("UPDATE tasks SET {spoil} WHERE owner = '{owner}'"))
            .await;
    }

    database
        .execute(&submit_statement(
            database.backend,
            "send_mail",
            "{}",
            "u-well",
            "1",
        ))
        .await;
}

/// What people write into the table themselves, or a program of another version did.
#[expect(clippy::too_many_lines, reason = "one scenario in its order")]
async fn spoilt_rows(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    let spoils = [
        "retry_policy = 'twice'",
        "retry_policy = '{\"initialMs\":5,\"fromTheFuture\":true}'",
        "retry_policy = '{\"initialMs\":18446744073709551615}'",
        "error = 'I stopped it'",
        "error = '{\"class\":\"fatal\",\"message\":\"I stopped it\"}'",
        "parameters = '{\"to\":'",
        "priority = -1, retry_count = -1",
        "priority = 300, crash_count = 2147483647",
        "timeout_ms = -1",
        "children_completed = 2",
        "max_attempts = -1",
    ];

    submit_spoilt(&database, &spoils).await;
    assert_eq!(
        store
            .list_due(&queue_name("free_default"), 100)
            .await
            .unwrap()
            .len(),
        spoils.len() + 1
    );
    store
        .promote_tasks(&queue_name("free_default"), 0, 1)
        .await
        .unwrap();

    let claimed = claim_all(&store).await;
    let task = |place: usize| {
        claimed
            .iter()
            .find(|task| task.owner == format!("u-{place}"))
            .unwrap()
    };

    let error = |place: usize| {
        task(place)
            .error
            .as_ref()
            .map(|error| (error.class.as_str(), error.message.as_str()))
    };

    assert_eq!(
        claimed.len(),
        spoils.len() + 1,
        "the spoilt ones and the one behind them"
    );
    assert_eq!(
        (task(0).retry, task(2).retry),
        (RetryPolicy::default(), RetryPolicy::default())
    );

    assert_eq!(
        task(1).retry,
        RetryPolicy {
            initial_ms: 5,
            ..RetryPolicy::default()
        }
    );

    assert_eq!(
        (error(3), error(4)),
        (
            Some(("unknown", "I stopped it")),
            Some(("fatal", "I stopped it"))
        )
    );

    assert_eq!(task(5).parameters.as_str(), "{\"to\":");
    assert_eq!((task(6).priority, task(7).priority), (1, 9));
    assert_eq!(
        (
            task(8).timeout_ms,
            task(9).children.open(),
            task(10).max_attempts
        ),
        (None, 0, 0)
    );

    let failure = Failure {
        class: "retryable".to_owned(),
        message: "busy".to_owned(),
        detail: None,
    };

    let outcome = |task: &TaskRecord| match task.owner.as_str() {
        "u-9" => AttemptEnd::Completed {
            result: None,
            result_url: None,
        },
        _ => AttemptEnd::Failed {
            failure: failure.clone(),
            retry_in_ms: Some(0),
        },
    };

    let report = |task: &TaskRecord| AttemptReport {
        lease: task.lease().unwrap(),
        end: outcome(task),
    };
    store
        .finish_tasks(&claimed.iter().map(report).collect::<Vec<_>>())
        .await
        .unwrap();

    for before in &claimed {
        let after = store.get_task(&Access::All, before.id).await.unwrap();
        let wanted = match before.owner.as_str() {
            "u-9" => Status::Completed,
            "u-10" => Status::DeadLetter,
            _ => Status::Retrying,
        };
        assert_eq!(after.status, wanted, "{}", before.owner);
    }

    claim_all(&store).await;
    database
        .execute("UPDATE attempts SET error = 'forgotten'")
        .await;
    let attempts = store
        .list_attempts(&Access::All, task(0).id, 0, 10)
        .await
        .unwrap();
    let errors = attempts.iter().filter_map(|attempt| attempt.error.as_ref());

    assert_eq!(
        errors.map(|error| error.message.as_str()).next(),
        Some("forgotten")
    );
}

/// What writes are guarded by, and what only SQLite lets into a column.
async fn spoilt_types(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    let mut spoils = vec![
        "attempt = -5",
        "attempt = 2147483647",
        "version = -5",
        "version = 9223372036854775807",
    ];

    if backend == Backend::Sqlite {
        spoils.extend([
            "priority = 'high'",
            "max_attempts = 'x'",
            "retry_count = 1.5",
            "attempt = 9999999999999",
            "attempt = 1.5",
            "attempt = '12abc'",
            "version = 'v'",
            "created_at = 'yesterday'",
            "updated_at = 'today'",
            "due_at = 1.5",
            "deadline_at = 'tomorrow'",
            "parameters = CAST(parameters AS blob)",
            "tier = x'ff', trace_context = x'ff', retry_policy = x'ff'",
            "parent_id = x'01', host = 5",
            "children_total = 'many'",
        ]);
    }

    submit_spoilt(&database, &spoils).await;
    assert_eq!(
        store
            .list_due(&queue_name("free_default"), 100)
            .await
            .unwrap()
            .len(),
        spoils.len() + 1
    );
    let claimed = claim_all(&store).await;

    assert_eq!(claimed.len(), spoils.len() + 1);
    assert!(
        claimed.iter().all(|task| task.parameters.as_str() == "{}"),
        "bytes are text, too"
    );
    let done = || AttemptEnd::Completed {
        result: None,
        result_url: None,
    };

    let report = |task: &TaskRecord| AttemptReport {
        lease: task.lease().unwrap(),
        end: done(),
    };
    store
        .finish_tasks(&claimed.iter().map(report).collect::<Vec<_>>())
        .await
        .unwrap();

    for task in &claimed {
        let after = store.get_task(&Access::All, task.id).await.unwrap();
        assert_eq!(after.status, Status::Completed, "{}", task.owner);
    }
}

async fn said_to_run(backend: Backend) {
    let (store, clock, database) = backend.store(OutboxPolicy::default()).await;
    for owner in ["u-said", "u-on-a-node", "u-well"] {
        database
            .execute(&submit_statement(backend, "send_mail", "{}", owner, "1"))
            .await;
    }

    let say = "UPDATE tasks SET status = 'RUNNING', lane = NULL";
    database
        .execute(&format!("{say} WHERE owner <> 'u-well'"))
        .await;
    let claimed = claim_all(&store).await;
    let [well] = &claimed[..] else {
        panic!("{claimed:?}")
    };

    database
        .execute("UPDATE tasks SET node_id = (SELECT id FROM nodes) WHERE owner = 'u-on-a-node'")
        .await;
    let top = "last_attempt_at = 0, attempt = 2147483647, version = 9223372036854775807";
    database
        .execute(&format!(
            "UPDATE tasks SET {top} WHERE owner = 'u-on-a-node'"
        ))
        .await;

    // What guards a write may be spoilt as well, and on SQLite the name of the node.
    database
        .execute("UPDATE tasks SET attempt = -5, version = -5 WHERE owner = 'u-said'")
        .await;
    if backend == Backend::Sqlite {
        database
            .execute("UPDATE tasks SET node_id = x'01' WHERE owner = 'u-said'")
            .await;
    }

    let node = well.node_id.unwrap();
    let strays = store
        .hand_back_strays(node, &[well.lease().unwrap()], 1_000)
        .await
        .unwrap();

    assert!(
        strays.is_empty(),
        "without a lease nothing can be handed back"
    );
    let request = RescueRequest {
        asker: None,
        lease_ms: 30_000,
        max_crashes: 3,
        limit: 10,
        host_affinity_ms: 0,
    };

    assert_eq!(
        store.rescue_tasks(&request).await.unwrap().requeued.len(),
        2,
        "nobody runs them, though the node lives"
    );
    database
        .execute(&format!("{say} WHERE owner = 'u-said'"))
        .await;
    clock.advance_ms(60_000);

    let rescued = store.rescue_tasks(&request).await.unwrap();
    assert_eq!(
        (rescued.requeued.len(), rescued.quarantined.len()),
        (2, 0),
        "with that of a dead node"
    );
    assert_eq!(claim_all(&store).await.len(), 3);
}

async fn logs(backend: Backend) {
    let (store, clock, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute(&submit_statement(backend, "send_mail", "{}", "u-1", "1"))
        .await;
    let lease = claim_all(&store).await[0].lease().unwrap();
    let line = |level, message: &str| LogLine {
        lease,
        level,
        message: message.to_owned(),
    };

    let lines = [
        line(LogLevel::Info, "sent to a@b.c"),
        line(LogLevel::Error, "it came back, ü"),
    ];
    store.append_logs(&lines).await.unwrap();

    let text = |sql: &str| sql.replace("{id}", &lease.task_id.to_string());
    let all = "SELECT count(*) FROM v_logs WHERE task_id = '{id}' AND attempt = 1 AND \
         CAST(logged_at AS CHAR(4)) >= '2020'";
    assert_eq!(database.count(&text(all)).await, 2);
    let error = "SELECT count(*) FROM v_logs WHERE level = 'error' AND message = 'it came back, ü'";
    assert_eq!(database.count(error).await, 1);
    let entries = store
        .list_logs(&Access::All, lease.task_id, None, 10)
        .await
        .unwrap()
        .items;

    let last = database.count("SELECT max(number) FROM v_logs").await;
    assert_eq!(
        entries[1].number,
        u64::try_from(last).unwrap(),
        "the view shows the numbers that the store tells"
    );

    let done = AttemptEnd::Completed {
        result: None,
        result_url: None,
    };
    store
        .finish_tasks(&[AttemptReport { lease, end: done }])
        .await
        .unwrap();

    clock.advance_ms(1_000);
    let keep = Retention {
        ended_ms: 1_000,
        dead_letter_ms: 1_000,
    };

    assert_eq!(store.prune_tasks(&keep, &[lease.task_id]).await.unwrap(), 1);
    assert_eq!(database.count("SELECT count(*) FROM task_logs").await, 0);
}
