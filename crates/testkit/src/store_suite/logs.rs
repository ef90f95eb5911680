//! Log lines: stored in order, fenced like every write of an attempt, bounded, removed with the
//! task.

use std::sync::Arc;

use longhaul_domain::{
    Lease, LogEntry, LogLevel, LogLine, NewTask, Status, StoreError, TaskId, bounds,
    contract::store::{Access, Verdict},
    filter::Retention,
};

use super::{
    case::{Case, cases},
    races::{Racer, at_once},
    recipes::{Recipe, build},
    strange_input::STRANGE,
    support::{
        HOUR_MS, MANY, OWNER, completed, forged, lease_of, new_task, random_uuid, refused_field,
        retryable,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        lines_are_stored_in_order_with_level_attempt_and_time,
        a_task_without_lines_has_an_empty_log,
        lines_of_many_tasks_in_one_call_stay_separate,
        lines_need_a_running_attempt_and_change_no_task,
        lines_of_a_stale_attempt_are_refused,
        pages_of_a_log_continue_without_gaps,
        numbers_grow_over_attempts_and_removals,
        strange_messages_are_stored_unchanged,
        unstorable_messages_are_repaired_and_never_refused,
        the_largest_batch_of_lines_is_stored,
        a_long_log_loses_its_oldest_lines,
        a_log_is_removed_with_its_task,
        the_log_of_another_owner_is_not_found,
        invalid_log_requests_are_refused_by_field,
        lines_written_concurrently_are_all_stored_and_read,
        a_line_that_races_with_the_end_is_stored_or_refused,
    ]
}

const APPLIED: Verdict = Verdict::Applied(Status::Running);

fn info(lease: &Lease, message: &str) -> LogLine {
    LogLine {
        lease: *lease,
        level: LogLevel::Info,
        message: message.to_owned(),
    }
}

/// This many lines, each with its index as message.
fn numbered(lease: &Lease, places: std::ops::Range<usize>) -> Vec<LogLine> {
    places
        .map(|place| info(lease, &place.to_string()))
        .collect()
}

fn messages_of(entries: &[LogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.as_str()).collect()
}

impl Fixture {
    async fn append(&self, lines: &[LogLine]) -> Vec<Verdict> {
        let verdicts = self
            .store
            .append_logs(lines)
            .await
            .expect("the lines are valid");
        assert_eq!(verdicts.len(), lines.len(), "each line has a verdict");
        verdicts
    }

    /// Appends lines that must all be accepted.
    async fn log(&self, lines: &[LogLine]) {
        assert!(
            self.append(lines)
                .await
                .iter()
                .all(|verdict| *verdict == APPLIED),
            "the attempt is running"
        );
    }
}

async fn lines_are_stored_in_order_with_level_attempt_and_time(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let levels = [LogLevel::Info, LogLevel::Error, LogLevel::Warn];
    let line = |level: LogLevel| LogLine {
        lease,
        level,
        message: format!("it says {}", level.as_str()),
    };

    fixture.log(&levels.map(line)).await;
    fixture.clock.advance_ms(HOUR_MS);
    fixture.log(&[info(&lease, "an hour later")]).await;
    let entries = fixture.logs(lease.task_id).await;

    assert_eq!(
        messages_of(&entries),
        [
            "it says info",
            "it says error",
            "it says warn",
            "an hour later"
        ]
    );

    assert_eq!(
        entries
            .iter()
            .take(3)
            .map(|entry| entry.level)
            .collect::<Vec<_>>(),
        levels
    );

    assert!(entries.iter().all(|entry| entry.attempt == 1));
    let started_at = fixture.task(lease.task_id).await.last_attempt_at.unwrap();
    assert!(
        entries[0].logged_at >= started_at
            && entries[0].logged_at.micros_since(started_at) < 3_600_000_000
    );
    assert!(entries[3].logged_at.micros_since(entries[0].logged_at) >= 3_600_000_000);
}

async fn a_task_without_lines_has_an_empty_log(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    assert_eq!(fixture.logs(id).await, []);
    assert_eq!(fixture.append(&[]).await, []);
    let missing = fixture
        .store
        .list_logs(&Access::All, TaskId(random_uuid()), None, MANY)
        .await;
    assert!(matches!(missing, Err(StoreError::NotFound)), "{missing:?}");
}

async fn lines_of_many_tasks_in_one_call_stay_separate(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 3]).await;
    let node = fixture.node().await;
    let leases: Vec<Lease> = fixture
        .claim(node, MANY)
        .await
        .iter()
        .map(lease_of)
        .collect();

    let lines: Vec<LogLine> = (0..30)
        .map(|place| info(&leases[place % 3], &place.to_string()))
        .collect();
    fixture.log(&lines).await;

    for (rest, lease) in leases.iter().enumerate() {
        let expected: Vec<String> = (0..30)
            .filter(|place| place % 3 == rest)
            .map(|place| place.to_string())
            .collect();
        assert_eq!(messages_of(&fixture.logs(lease.task_id).await), expected);
    }
}

async fn lines_need_a_running_attempt_and_change_no_task(fixture: Arc<Fixture>) {
    for recipe in Recipe::ALL {
        let built = build(&fixture, recipe).await;
        let before = fixture.task(built.id).await;
        let Some(lease) = built.lease else { continue };
        let verdicts = fixture
            .append(&[info(&lease, "mine"), info(&forged(&lease), "forged")])
            .await;
        let stale = Verdict::Stale(before.status);

        if recipe == Recipe::Running {
            assert_eq!(verdicts, [APPLIED, stale]);
        } else {
            assert_eq!(verdicts, [stale, stale], "{recipe:?}");
        }

        let expected: &[&str] = if recipe == Recipe::Running {
            &["mine"]
        } else {
            &[]
        };

        assert_eq!(
            messages_of(&fixture.logs(built.id).await),
            expected,
            "{recipe:?}"
        );
        assert_eq!(
            fixture.task(built.id).await,
            before,
            "{recipe:?}: a line changes no task"
        );
    }
}

async fn lines_of_a_stale_attempt_are_refused(fixture: Arc<Fixture>) {
    let zombie = fixture.start(new_task()).await;
    fixture.log(&[info(&zombie, "while it lived")]).await;
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rescue(5).await;
    assert_eq!(
        fixture.append(&[info(&zombie, "rescued")]).await,
        [Verdict::Stale(Status::Queued)]
    );
    let node = fixture.node().await;

    let successor = fixture.claim_this(node, zombie.task_id).await;
    let missing = Lease {
        task_id: TaskId(random_uuid()),
        ..zombie
    };
    let lines = [
        info(&zombie, "a"),
        info(&successor, "b"),
        info(&missing, "c"),
        info(&zombie, "d"),
    ];

    let stale = Verdict::Stale(Status::Running);
    assert_eq!(
        fixture.append(&lines).await,
        [stale, APPLIED, Verdict::Missing, stale]
    );
    let entries = fixture.logs(zombie.task_id).await;
    let described: Vec<(u32, &str)> = entries
        .iter()
        .map(|entry| (entry.attempt, entry.message.as_str()))
        .collect();

    assert_eq!(
        described,
        [(1, "while it lived"), (2, "b")],
        "earlier lines of the attempt remain"
    );
}

async fn pages_of_a_log_continue_without_gaps(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let page = async |after, limit| {
        fixture
            .store
            .list_logs(&Access::All, lease.task_id, after, limit)
            .await
            .unwrap()
    };

    fixture.log(&numbered(&lease, 0..5)).await;
    let first = page(None, 2).await;
    assert_eq!(messages_of(&first.items), ["0", "1"]);
    assert_eq!(
        first.next,
        Some(first.items[1].number),
        "a full page has a next one"
    );
    let second = page(first.next, 3).await;

    assert_eq!(messages_of(&second.items), ["2", "3", "4"]);
    let third = page(second.next, 3).await;
    assert_eq!((third.items.len(), third.next), (0, None));
    fixture.log(&numbered(&lease, 5..7)).await;
    let fourth = page(second.next, 3).await;

    assert_eq!(
        (messages_of(&fourth.items), fourth.next),
        (vec!["5", "6"], None),
        "later lines are read too"
    );
    assert_eq!(page(Some(0), MANY).await.items.len(), 7);
    assert_eq!(page(Some(u64::MAX), MANY).await.items, []);
}

async fn numbers_grow_over_attempts_and_removals(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.log(&[info(&lease, "first")]).await;
    let doomed = fixture.start(new_task()).await;
    fixture
        .log(&[info(&doomed, "the highest number so far")])
        .await;
    let highest = fixture.logs(doomed.task_id).await[0].number;

    fixture.finish(doomed, completed()).await;
    fixture.clock.advance_ms(HOUR_MS);
    let keep = Retention {
        ended_ms: 0,
        dead_letter_ms: 0,
    };

    assert_eq!(
        fixture
            .store
            .prune_tasks(&keep, &[doomed.task_id])
            .await
            .unwrap(),
        1
    );

    fixture.finish(lease, retryable(0)).await;
    let node = fixture.node().await;
    let again = fixture.claim_this(node, lease.task_id).await;
    fixture.log(&[info(&again, "second")]).await;
    let entries = fixture.logs(lease.task_id).await;

    assert_eq!(
        entries
            .iter()
            .map(|entry| entry.attempt)
            .collect::<Vec<_>>(),
        [1, 2]
    );

    assert!(entries[1].number > highest, "a number is never given twice");
}

async fn strange_messages_are_stored_unchanged(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let messages: Vec<String> = STRANGE
        .iter()
        .map(|text| format!("{text}\n\t{text}"))
        .chain([String::new()])
        .collect();

    fixture
        .log(
            &messages
                .iter()
                .map(|message| info(&lease, message))
                .collect::<Vec<_>>(),
        )
        .await;

    assert_eq!(messages_of(&fixture.logs(lease.task_id).await), messages);
}

async fn unstorable_messages_are_repaired_and_never_refused(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let long = "é".repeat(bounds::LOG_BYTES);
    let messages = [
        "\0",
        "a\0b",
        "\u{1b}[31mred\u{1b}[0m\r\n",
        "\u{7f}\u{85}",
        &long,
    ];

    fixture
        .log(&messages.map(|message| info(&lease, message)))
        .await;
    let cut = "é".repeat(bounds::LOG_BYTES / 2);
    let expected = [
        "",
        "ab",
        "\u{fffd}[31mred\u{fffd}[0m\u{fffd}\n",
        "\u{fffd}\u{fffd}",
        &cut,
    ];

    assert_eq!(messages_of(&fixture.logs(lease.task_id).await), expected);
}

async fn the_largest_batch_of_lines_is_stored(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let message = |place: usize| format!("{place:04}") + &"x".repeat(bounds::LOG_BYTES - 4);
    let lines: Vec<LogLine> = (0..bounds::LOG_BATCH)
        .map(|place| info(&lease, &message(place)))
        .collect();

    fixture.log(&lines).await;
    let entries = fixture.logs(lease.task_id).await;
    assert_eq!(entries.len(), bounds::LOG_BATCH);
    assert!(
        entries
            .iter()
            .enumerate()
            .all(|(place, entry)| entry.message == message(place))
    );
}

async fn a_long_log_loses_its_oldest_lines(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let other = fixture.start(new_task()).await;
    fixture.log(&numbered(&other, 0..5)).await;
    let most = bounds::LOG_LINES + bounds::LOG_SLACK;
    fixture.log(&numbered(&lease, 0..bounds::LOG_BATCH)).await;
    fixture
        .log(&numbered(&lease, bounds::LOG_BATCH..most))
        .await;
    assert_eq!(
        fixture.logs(lease.task_id).await.len(),
        most,
        "a few lines over the limit are not removed yet"
    );

    let last = fixture.logs(lease.task_id).await.last().unwrap().number;
    fixture
        .log(&[numbered(&other, 5..6), numbered(&lease, most..most + 1)].concat())
        .await;
    let expected: Vec<String> = (bounds::LOG_SLACK + 1..=most)
        .map(|place| place.to_string())
        .collect();
    let entries = fixture.logs(lease.task_id).await;

    assert_eq!(
        (entries.len(), messages_of(&entries)),
        (
            bounds::LOG_LINES,
            expected.iter().map(String::as_str).collect()
        )
    );

    assert!(entries.last().unwrap().number > last);
    assert_eq!(
        fixture.logs(other.task_id).await.len(),
        6,
        "lines of other tasks remain"
    );
}

async fn a_log_is_removed_with_its_task(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = fixture.submit_children(parent, vec![new_task()]).await[0];
    let node = fixture.node().await;
    let child = fixture.claim_this(node, child).await;
    let bystander = fixture.start(new_task()).await;

    fixture
        .log(&[info(&parent, "p"), info(&child, "c"), info(&bystander, "b")])
        .await;
    fixture.finish(child, completed()).await;
    fixture.finish(parent, completed()).await;
    assert_eq!(
        messages_of(&fixture.logs(parent.task_id).await),
        ["p"],
        "the log remains after the end"
    );

    fixture.clock.advance_ms(HOUR_MS);
    let keep = Retention {
        ended_ms: HOUR_MS,
        dead_letter_ms: HOUR_MS,
    };

    assert_eq!(
        fixture
            .store
            .prune_tasks(&keep, &[parent.task_id])
            .await
            .unwrap(),
        2
    );

    for id in [parent.task_id, child.task_id] {
        let gone = fixture.store.list_logs(&Access::All, id, None, MANY).await;
        assert!(matches!(gone, Err(StoreError::NotFound)), "{gone:?}");
    }

    assert_eq!(messages_of(&fixture.logs(bystander.task_id).await), ["b"]);
}

async fn the_log_of_another_owner_is_not_found(fixture: Arc<Fixture>) {
    let lease = fixture
        .start(NewTask {
            owner: OWNER.into(),
            ..new_task()
        })
        .await;

    fixture.log(&[info(&lease, "private")]).await;
    let listed = async |owner: &str| {
        fixture
            .store
            .list_logs(&Access::Owner(owner.to_owned()), lease.task_id, None, MANY)
            .await
    };

    assert_eq!(
        messages_of(&listed(OWNER).await.unwrap().items),
        ["private"]
    );

    for owner in ["u-2", "", "U-1", "u-1 ", "a\0b"] {
        let answer = listed(owner).await;
        assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
    }
}

async fn invalid_log_requests_are_refused_by_field(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let too_many = vec![info(&lease, "x"); bounds::LOG_BATCH + 1];
    assert_eq!(
        refused_field(fixture.store.append_logs(&too_many).await),
        "lines"
    );
    assert_eq!(fixture.logs(lease.task_id).await, []);

    for limit in [0, bounds::PAGE_SIZE + 1] {
        let answer = fixture
            .store
            .list_logs(&Access::All, lease.task_id, None, limit)
            .await;
        assert_eq!(refused_field(answer), "limit");
    }
}

async fn lines_written_concurrently_are_all_stored_and_read(fixture: Arc<Fixture>) {
    const WRITERS: usize = 8;
    const LINES: usize = 40;

    let lease = fixture.start(new_task()).await;
    let mut racers: Vec<Racer<Vec<LogEntry>>> = Vec::new();
    for writer in 0..WRITERS {
        let fixture = Arc::clone(&fixture);
        racers.push(Box::pin(async move {
            for place in (0..LINES).step_by(2) {
                let line = |place: usize| info(&lease, &format!("{writer} {place:02}"));
                fixture.log(&[line(place), line(place + 1)]).await;
            }
            vec![]
        }));
    }

    let reader = Arc::clone(&fixture);
    racers.push(Box::pin(async move {
        let mut seen: Vec<LogEntry> = Vec::new();
        while seen.len() < WRITERS * LINES {
            let after = seen.last().map(|entry| entry.number);
            let page = reader
                .store
                .list_logs(&Access::All, lease.task_id, after, 7)
                .await
                .unwrap();
            seen.extend(page.items);
        }

        seen
    }));

    let reading = at_once(racers);
    let answers = tokio::time::timeout(std::time::Duration::from_secs(60), reading).await;
    let seen = answers
        .expect("a reader that continues after the last number misses nothing")
        .concat();

    assert_eq!(seen, fixture.logs(lease.task_id).await);
    for writer in 0..WRITERS {
        let own = seen
            .iter()
            .filter(|entry| entry.message.starts_with(&format!("{writer} ")));
        let own: Vec<&str> = own.map(|entry| entry.message.as_str()).collect();
        assert_eq!(own.len(), LINES);
        assert!(own.is_sorted(), "a writer's lines keep their order");
    }
}

async fn a_line_that_races_with_the_end_is_stored_or_refused(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 60]).await;
    let node = fixture.node().await;
    let leases: Vec<Lease> = fixture
        .claim(node, MANY)
        .await
        .iter()
        .map(lease_of)
        .collect();

    let racers = leases.iter().flat_map(|lease| {
        let lease = *lease;
        let writer = Arc::clone(&fixture);
        let finisher = Arc::clone(&fixture);
        let write: Racer<Verdict> =
            Box::pin(async move { writer.append(&[info(&lease, "last words")]).await[0] });
        let finish: Racer<Verdict> =
            Box::pin(async move { finisher.finish(lease, completed()).await });

        // The order of the two writers alternates.
        if lease.task_id.0.as_u128() % 2 == 0 {
            [finish, write]
        } else {
            [write, finish]
        }
    });

    let answers = at_once(racers).await;
    for (lease, pair) in leases.iter().zip(answers.chunks(2)) {
        assert!(
            pair.contains(&Verdict::Applied(Status::Completed)),
            "{pair:?}"
        );
        let stored = fixture.logs(lease.task_id).await.len();

        if pair.contains(&APPLIED) {
            assert_eq!(stored, 1);
        } else {
            assert_eq!(
                (stored, pair.contains(&Verdict::Stale(Status::Completed))),
                (0, true)
            );
        }
    }
}
