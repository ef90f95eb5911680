//! The conformance suite of the stream log contract.

use std::pin::pin;

use futures::{future::join_all, poll};
use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId, bounds,
    contract::stream_log::{Content, Entries, Entry, StreamError, StreamLog, first_number},
};

use crate::suite::{self, Case, Dice, Factory, cases, random_task_id, within_deadline};

/// Makes a log that stores at least this many entries of a stream, but not many times more.
pub type StreamLogFactory = Factory<usize, dyn StreamLog>;

/// One trial for each case, named `{backend}::stream_log::{sentence}`.
pub fn trials(backend: &str, factory: &StreamLogFactory) -> Vec<Trial> {
    suite::trials(backend, "stream_log", factory, cases())
}

fn cases() -> Vec<Case<StreamLogFactory>> {
    cases![
        an_unknown_stream_is_empty,
        entries_are_numbered_from_one_without_gaps,
        a_read_returns_the_entries_after_a_number_within_its_limit,
        chunks_are_read_as_they_were_written,
        streams_of_different_tasks_are_separate,
        reconnects_at_random_points_neither_lose_nor_repeat,
        an_attempt_that_starts_over_writes_a_rewind_first,
        an_attempt_rewinds_what_follows_its_checkpoint,
        an_attempt_that_continues_at_the_end_writes_no_rewind,
        an_attempt_that_does_not_begin_starts_over,
        a_repeated_begin_changes_nothing,
        a_reader_that_follows_rewinds_has_the_last_attempts_output,
        a_chunk_of_an_older_attempt_is_refused,
        an_older_attempt_cannot_begin_or_end,
        nothing_follows_an_end_and_a_repeated_end_changes_nothing,
        a_stream_without_chunks_can_end,
        the_end_of_a_lost_stream_shows_the_loss,
        a_new_attempt_revokes_an_end,
        a_chunk_that_is_too_large_is_refused,
        a_long_stream_loses_its_oldest_entries,
        numbers_of_a_lost_stream_are_not_used_again,
        waiting_ends_at_once_when_there_are_entries,
        waiting_ends_with_the_next_entry,
        waiting_ends_after_the_timeout,
        every_waiter_is_woken,
        a_removed_stream_is_forgotten,
    ]
}

const CAPACITY: usize = 10_000;
const ALL: usize = 10_000;
const LONG_MS: u64 = 3_600_000;

fn chunk(number: u64, text: &str) -> Entry {
    Entry {
        number,
        content: Content::Chunk(text.to_owned()),
    }
}

fn rewind(number: u64, to: u64) -> Entry {
    Entry {
        number,
        content: Content::Rewind { to },
    }
}

fn end(number: u64) -> Entry {
    Entry {
        number,
        content: Content::End,
    }
}

async fn read_all(log: &dyn StreamLog, task: TaskId) -> Vec<Entry> {
    log.read(task, 0, ALL).await.unwrap().entries
}

/// A stream with these chunks of attempt 1.
async fn written(log: &dyn StreamLog, chunks: &[&str]) -> TaskId {
    let task = random_task_id();
    log.begin(task, 1, 0).await.unwrap();
    for chunk in chunks {
        log.append(task, 1, chunk).await.unwrap();
    }
    task
}

async fn an_unknown_stream_is_empty(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let empty = Entries {
        entries: Vec::new(),
        first_available: 1,
        last: 0,
    };
    let task = random_task_id();

    assert_eq!(log.read(task, 0, ALL).await.unwrap(), empty);
    log.begin(task, 1, 0).await.unwrap();
    assert_eq!(
        log.read(task, 0, ALL).await.unwrap(),
        empty,
        "a begin writes no entry"
    );
    assert_eq!(log.append(task, 1, "first").await.unwrap(), 1);
}

async fn entries_are_numbered_from_one_without_gaps(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &[]).await;
    for number in 1..=300_u64 {
        assert_eq!(
            log.append(task, 1, &format!("chunk {number}"))
                .await
                .unwrap(),
            number
        );
    }

    log.end(task, 1).await.unwrap();
    let mut expected: Vec<Entry> = (1..=300)
        .map(|number| chunk(number, &format!("chunk {number}")))
        .collect();
    expected.push(end(301));

    assert_eq!(
        log.read(task, 0, ALL).await.unwrap(),
        Entries {
            entries: expected,
            first_available: 1,
            last: 301
        }
    );
}

async fn a_read_returns_the_entries_after_a_number_within_its_limit(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a", "b", "c", "d"]).await;
    let read = async |after, limit| log.read(task, after, limit).await.unwrap().entries;
    assert_eq!(read(1, 2).await, [chunk(2, "b"), chunk(3, "c")]);
    assert_eq!(read(3, 100).await, [chunk(4, "d")]);
    assert_eq!(read(0, 0).await, []);
    assert_eq!(read(4, 100).await, []);
    assert_eq!(read(u64::MAX, 100).await, []);
    assert_eq!(read(0, usize::MAX).await.len(), 4);
}

async fn chunks_are_read_as_they_were_written(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let texts = [
        "",
        " ",
        "\n\r\n",
        "data: x\n\n",
        "a\u{0}b",
        "第一章 🐉",
        "{\"json\": true}",
        "\u{feff}\u{202e}",
    ];

    let task = written(&*log, &texts).await;
    let expected: Vec<Entry> = (1..)
        .zip(texts)
        .map(|(number, text)| chunk(number, text))
        .collect();

    assert_eq!(read_all(&*log, task).await, expected);
}

async fn streams_of_different_tasks_are_separate(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let tasks = join_all((0..20).map(|_| written(&*log, &[]))).await;
    let write = async |task: TaskId| {
        for _ in 0..50 {
            log.append(task, 1, &task.to_string()).await.unwrap();
        }
    };

    join_all(tasks.iter().map(|task| write(*task))).await;
    for task in tasks {
        let expected: Vec<Entry> = (1..=50)
            .map(|number| chunk(number, &task.to_string()))
            .collect();
        assert_eq!(read_all(&*log, task).await, expected);
    }
}

async fn reconnects_at_random_points_neither_lose_nor_repeat(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &[]).await;
    let writer = log.share();

    let writing = tokio::spawn(async move {
        for number in 1..=1_000_u64 {
            assert_eq!(
                writer.append(task, 1, &number.to_string()).await.unwrap(),
                number
            );
            tokio::task::yield_now().await;
        }

        writer.end(task, 1).await.unwrap();
    });

    let read = async |seed: u64| {
        let mut dice = Dice::new(seed);
        let mut has = Vec::<Entry>::new();
        while has.last().is_none_or(|entry| entry.content != Content::End) {
            let after = has.last().map_or(0, |entry| entry.number);
            within_deadline(log.wait(task, after, LONG_MS))
                .await
                .unwrap();
            let limit = 1 + dice.below(50) as usize;
            let mut entries = log.read(task, after, limit).await.unwrap().entries;

            // The connection breaks at a random point.
            entries.truncate(1 + dice.below(limit as u64) as usize);
            has.append(&mut entries);
        }

        has
    };

    let mut expected: Vec<Entry> = (1..=1_000)
        .map(|number| chunk(number, &number.to_string()))
        .collect();
    expected.push(end(1_001));
    for has in join_all((0..8).map(read)).await {
        assert_eq!(has, expected);
    }

    writing.await.unwrap();
}

async fn an_attempt_that_starts_over_writes_a_rewind_first(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a", "b"]).await;
    log.begin(task, 2, 0).await.unwrap();
    assert_eq!(log.append(task, 2, "c").await.unwrap(), 4);
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), chunk(2, "b"), rewind(3, 0), chunk(4, "c")]
    );
}

async fn an_attempt_rewinds_what_follows_its_checkpoint(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a", "b", "c"]).await;
    log.begin(task, 5, 2).await.unwrap();
    assert_eq!(log.append(task, 5, "d").await.unwrap(), 5);
    assert_eq!(
        log.read(task, 3, ALL).await.unwrap().entries,
        [rewind(4, 2), chunk(5, "d")]
    );
}

async fn an_attempt_that_continues_at_the_end_writes_no_rewind(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a", "b"]).await;
    log.begin(task, 2, 2).await.unwrap();
    assert_eq!(log.append(task, 2, "c").await.unwrap(), 3);
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), chunk(2, "b"), chunk(3, "c")]
    );
}

async fn an_attempt_that_does_not_begin_starts_over(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = random_task_id();
    assert_eq!(log.append(task, 1, "a").await.unwrap(), 1);
    assert_eq!(log.append(task, 2, "b").await.unwrap(), 3);
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), rewind(2, 0), chunk(3, "b")]
    );
    assert_eq!(log.append(task, 1, "late").await, Err(StreamError::Stale));
}

async fn a_repeated_begin_changes_nothing(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a", "b"]).await;
    log.begin(task, 1, 0).await.unwrap();
    log.begin(task, 2, 1).await.unwrap();
    log.begin(task, 2, 1).await.unwrap();
    log.append(task, 2, "c").await.unwrap();
    log.begin(task, 2, 1).await.unwrap();
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), chunk(2, "b"), rewind(3, 1), chunk(4, "c")]
    );
}

/// The text that a reader of the entries shows.
fn shown(entries: &[Entry]) -> Vec<(u64, String)> {
    let mut shown = Vec::new();
    for entry in entries {
        match &entry.content {
            Content::Chunk(text) => shown.push((entry.number, text.clone())),
            Content::Rewind { to } => shown.retain(|(number, _)| number <= to),
            Content::End => {}
        }
    }

    shown
}

async fn a_reader_that_follows_rewinds_has_the_last_attempts_output(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    for seed in 0..50 {
        let task = random_task_id();
        let mut dice = Dice::new(seed);
        let mut meant = Vec::<(u64, String)>::new();

        for attempt in 1..=10 {
            // The checkpoint is a chunk of the attempt before, or the start.
            meant.truncate(dice.below(1 + meant.len() as u64) as usize);
            let keep = meant.last().map_or(0, |(number, _)| *number);
            log.begin(task, attempt, keep).await.unwrap();
            for _ in 0..dice.below(10) {
                let text = format!("{attempt}: {}", dice.below(1_000));
                meant.push((log.append(task, attempt, &text).await.unwrap(), text));
            }

            if dice.below(3) == 0 {
                log.end(task, attempt).await.unwrap();
            }

            let entries = read_all(&*log, task).await;
            assert_eq!(shown(&entries), meant, "seed {seed}");
            assert!(
                entries
                    .iter()
                    .zip(1..)
                    .all(|(entry, number)| entry.number == number)
            );
        }
    }
}

async fn a_chunk_of_an_older_attempt_is_refused(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a"]).await;
    log.begin(task, 3, 1).await.unwrap();
    for attempt in [1, 2] {
        assert_eq!(
            log.append(task, attempt, "late").await,
            Err(StreamError::Stale)
        );
    }

    assert_eq!(log.append(task, 3, "b").await, Ok(2));
    assert_eq!(log.append(task, 2, "late").await, Err(StreamError::Stale));
    assert_eq!(read_all(&*log, task).await, [chunk(1, "a"), chunk(2, "b")]);
}

async fn an_older_attempt_cannot_begin_or_end(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a"]).await;
    log.begin(task, 2, 1).await.unwrap();
    assert_eq!(log.begin(task, 1, 0).await, Err(StreamError::Stale));
    assert_eq!(log.end(task, 1).await, Err(StreamError::Stale));
    assert_eq!(read_all(&*log, task).await, [chunk(1, "a")]);
}

async fn nothing_follows_an_end_and_a_repeated_end_changes_nothing(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a"]).await;
    log.end(task, 1).await.unwrap();
    log.end(task, 1).await.unwrap();
    assert_eq!(log.append(task, 1, "late").await, Err(StreamError::Stale));
    log.begin(task, 1, 0).await.unwrap();
    assert_eq!(read_all(&*log, task).await, [chunk(1, "a"), end(2)]);
}

async fn a_stream_without_chunks_can_end(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &[]).await;
    log.end(task, 1).await.unwrap();
    assert_eq!(read_all(&*log, task).await, [end(1)]);
}

async fn the_end_of_a_lost_stream_shows_the_loss(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let never = random_task_id();
    let lost = written(&*log, &["a"]).await;
    log.remove(lost).await.unwrap();
    for task in [never, lost] {
        log.end(task, 1).await.unwrap();
        assert_eq!(log.read(task, 0, ALL).await.unwrap().last, 0);
    }
}

async fn a_new_attempt_revokes_an_end(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    for (keep, to) in [(0, 0), (1, 1), (2, 1)] {
        let task = written(&*log, &["a"]).await;
        log.end(task, 1).await.unwrap();
        log.begin(task, 2, keep).await.unwrap();
        log.append(task, 2, "b").await.unwrap();
        log.end(task, 2).await.unwrap();
        let expected = [chunk(1, "a"), end(2), rewind(3, to), chunk(4, "b"), end(5)];
        assert_eq!(read_all(&*log, task).await, expected);
    }
}

async fn a_chunk_that_is_too_large_is_refused(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &[]).await;
    let largest = "x".repeat(bounds::CHUNK_BYTES);
    assert_eq!(
        log.append(task, 1, &format!("{largest}x")).await,
        Err(StreamError::TooLarge(bounds::CHUNK_BYTES + 1))
    );
    assert_eq!(log.append(task, 1, &largest).await, Ok(1));
    assert_eq!(read_all(&*log, task).await, [chunk(1, &largest)]);
}

async fn a_long_stream_loses_its_oldest_entries(make: StreamLogFactory) {
    let log = make(100).await;
    let task = written(&*log, &[]).await;
    for number in 1..=5_000_u64 {
        log.append(task, 1, &number.to_string()).await.unwrap();
    }

    let Entries {
        entries,
        first_available,
        last,
    } = log.read(task, 0, ALL).await.unwrap();

    assert!(
        first_available > 1 && first_available <= 4_901,
        "at least 100 but not all 5,000 entries are stored: {first_available}"
    );
    let expected: Vec<Entry> = (first_available..=5_000)
        .map(|number| chunk(number, &number.to_string()))
        .collect();

    assert_eq!((entries, last), (expected.clone(), 5_000));
    let tail = log.read(task, 4_990, 3).await.unwrap();
    assert_eq!(tail.entries, expected[expected.len() - 10..][..3]);
    assert_eq!(tail.first_available, first_available);

    // The writer does not notice the loss.
    assert_eq!(log.append(task, 1, "5001").await, Ok(5_001));
}

async fn numbers_of_a_lost_stream_are_not_used_again(make: StreamLogFactory) {
    for keep in [0, 12] {
        let log = make(CAPACITY).await;
        let task = random_task_id();
        let first = first_number(2);
        assert!(
            first > u64::from(u32::MAX),
            "the number is beyond every earlier attempt"
        );
        log.begin(task, 2, keep).await.unwrap();
        assert_eq!(log.append(task, 2, "on").await, Ok(first + 1));

        let entries = vec![rewind(first, keep), chunk(first + 1, "on")];
        let expected = Entries {
            entries,
            first_available: first,
            last: first + 1,
        };

        assert_eq!(
            log.read(task, 50, ALL).await.unwrap(),
            expected,
            "a reader with 50 entries gets the rewind"
        );

        // Entries of the lost stream may remain if an attempt in between began another one.
        log.begin(task, 3, first_number(3) + 7).await.unwrap();
        assert_eq!(
            log.append(task, 3, "further").await,
            Ok(first_number(3) + 1)
        );
    }
}

async fn waiting_ends_at_once_when_there_are_entries(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a", "b"]).await;
    for after in [0, 1] {
        within_deadline(log.wait(task, after, LONG_MS))
            .await
            .unwrap();
    }
}

async fn waiting_ends_with_the_next_entry(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a"]).await;
    for (last, attempt) in (1..).step_by(3).zip(2..10) {
        // Each of the three writes one entry: a rewind, a chunk and an end.
        for step in 0..3 {
            let mut waiting = pin!(log.wait(task, last + step, LONG_MS));
            assert!(poll!(&mut waiting).is_pending());
            written(&*log, &["of another stream"]).await;
            match step {
                0 => log.begin(task, attempt, 0).await.unwrap(),
                1 => drop(log.append(task, attempt, "b").await.unwrap()),
                _ => log.end(task, attempt).await.unwrap(),
            }

            within_deadline(waiting).await.unwrap();
        }
    }
}

async fn waiting_ends_after_the_timeout(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = written(&*log, &["a"]).await;
    within_deadline(log.wait(task, 1, 1)).await.unwrap();
    within_deadline(log.wait(task, 1, 0)).await.unwrap();
    within_deadline(log.wait(random_task_id(), 0, 1))
        .await
        .unwrap();
}

async fn every_waiter_is_woken(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let task = random_task_id();
    let mut waiting: Vec<_> = (0..50).map(|_| log.wait(task, 0, LONG_MS)).collect();
    for one in &mut waiting {
        assert!(poll!(one).is_pending());
    }

    // Some waiters leave, which must not affect the others.
    waiting.truncate(30);
    log.append(task, 1, "a").await.unwrap();
    within_deadline(join_all(waiting))
        .await
        .into_iter()
        .for_each(|woken| woken.unwrap());
}

async fn a_removed_stream_is_forgotten(make: StreamLogFactory) {
    let log = make(CAPACITY).await;
    let removed = written(&*log, &["a"]).await;
    let other = written(&*log, &["b"]).await;
    log.remove(removed).await.unwrap();
    log.remove(removed).await.unwrap();

    assert_eq!(
        log.read(removed, 0, ALL).await.unwrap(),
        Entries {
            entries: Vec::new(),
            first_available: 1,
            last: 0
        }
    );

    assert_eq!(read_all(&*log, other).await, [chunk(1, "b")]);
}
