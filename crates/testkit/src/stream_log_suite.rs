//! The conformance suite of the stream log contract.

use std::pin::pin;

use futures::{future::join_all, poll};
use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId, bounds,
    contract::stream_log::{Content, Entries, Entry, StreamError, StreamLog, first_number},
};

use crate::suite::{self, Case, Dice, Factory, cases, random_task_id, within_patience};

/// Makes a log that keeps at least this many entries of a stream, and not many times more.
pub type StreamLogFactory = Factory<usize, dyn StreamLog>;

/// One trial for each case, named `{backend}::stream_log::{sentence}`.
pub fn trials(backend: &str, factory: &StreamLogFactory) -> Vec<Trial> {
    suite::trials(backend, "stream_log", factory, cases())
}

fn cases() -> Vec<Case<StreamLogFactory>> {
    cases![
        a_stream_that_nobody_has_written_is_empty,
        entries_are_numbered_from_one_without_gaps,
        a_read_gives_what_follows_and_no_more_than_asked,
        chunks_come_as_they_were_written,
        streams_do_not_mix,
        reconnects_at_random_points_neither_lose_nor_repeat,
        an_attempt_that_starts_over_puts_a_rewind_first,
        an_attempt_that_goes_on_takes_back_what_follows_its_checkpoint,
        an_attempt_that_keeps_everything_rewinds_nothing,
        an_attempt_that_did_not_begin_starts_over,
        beginning_twice_is_beginning_once,
        whoever_follows_the_rewinds_has_what_the_last_attempt_meant,
        a_chunk_of_an_older_attempt_is_refused,
        an_older_attempt_neither_begins_nor_ends,
        nothing_follows_an_end_and_ending_twice_is_ending_once,
        a_stream_without_chunks_can_end,
        the_end_of_a_lost_stream_is_not_told_as_all_there_was,
        a_new_attempt_takes_an_end_back,
        a_chunk_that_is_too_large_is_refused,
        a_stream_that_is_too_long_loses_its_oldest_entries_and_says_so,
        numbers_of_a_lost_stream_are_not_used_again,
        waiting_ends_at_once_when_something_is_there,
        waiting_ends_when_something_is_written,
        waiting_ends_when_the_time_is_over,
        everyone_who_waits_is_woken,
        a_removed_stream_is_forgotten,
    ]
}

const ROOM: usize = 10_000;
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

/// A stream with these chunks by attempt 1.
async fn written(log: &dyn StreamLog, chunks: &[&str]) -> TaskId {
    let task = random_task_id();
    log.begin(task, 1, 0).await.unwrap();
    for chunk in chunks {
        log.append(task, 1, chunk).await.unwrap();
    }
    task
}

async fn a_stream_that_nobody_has_written_is_empty(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let empty = Entries {
        entries: Vec::new(),
        first_kept: 1,
        last: 0,
    };
    let task = random_task_id();
    assert_eq!(log.read(task, 0, ALL).await.unwrap(), empty);
    log.begin(task, 1, 0).await.unwrap();
    assert_eq!(
        log.read(task, 0, ALL).await.unwrap(),
        empty,
        "beginning writes nothing"
    );
    assert_eq!(log.append(task, 1, "first").await.unwrap(), 1);
}

async fn entries_are_numbered_from_one_without_gaps(make: StreamLogFactory) {
    let log = make(ROOM).await;
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
            first_kept: 1,
            last: 301
        }
    );
}

async fn a_read_gives_what_follows_and_no_more_than_asked(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a", "b", "c", "d"]).await;
    let read = async |after, limit| log.read(task, after, limit).await.unwrap().entries;
    assert_eq!(read(1, 2).await, [chunk(2, "b"), chunk(3, "c")]);
    assert_eq!(read(3, 100).await, [chunk(4, "d")]);
    assert_eq!(read(0, 0).await, []);
    assert_eq!(read(4, 100).await, []);
    assert_eq!(read(u64::MAX, 100).await, []);
    assert_eq!(read(0, usize::MAX).await.len(), 4);
}

async fn chunks_come_as_they_were_written(make: StreamLogFactory) {
    let log = make(ROOM).await;
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

async fn streams_do_not_mix(make: StreamLogFactory) {
    let log = make(ROOM).await;
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
    let log = make(ROOM).await;
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
        let (mut dice, mut has) = (Dice::new(seed), Vec::<Entry>::new());
        while has.last().is_none_or(|entry| entry.content != Content::End) {
            let after = has.last().map_or(0, |entry| entry.number);
            within_patience(log.wait(task, after, LONG_MS))
                .await
                .unwrap();
            let limit = 1 + dice.below(50) as usize;
            let mut entries = log.read(task, after, limit).await.unwrap().entries;
            // The connection breaks somewhere in the middle.
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

async fn an_attempt_that_starts_over_puts_a_rewind_first(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a", "b"]).await;
    log.begin(task, 2, 0).await.unwrap();
    assert_eq!(log.append(task, 2, "c").await.unwrap(), 4);
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), chunk(2, "b"), rewind(3, 0), chunk(4, "c")]
    );
}

async fn an_attempt_that_goes_on_takes_back_what_follows_its_checkpoint(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a", "b", "c"]).await;
    log.begin(task, 5, 2).await.unwrap();
    assert_eq!(log.append(task, 5, "d").await.unwrap(), 5);
    assert_eq!(
        log.read(task, 3, ALL).await.unwrap().entries,
        [rewind(4, 2), chunk(5, "d")]
    );
}

async fn an_attempt_that_keeps_everything_rewinds_nothing(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a", "b"]).await;
    log.begin(task, 2, 2).await.unwrap();
    assert_eq!(log.append(task, 2, "c").await.unwrap(), 3);
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), chunk(2, "b"), chunk(3, "c")]
    );
}

async fn an_attempt_that_did_not_begin_starts_over(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = random_task_id();
    assert_eq!(log.append(task, 1, "a").await.unwrap(), 1);
    assert_eq!(log.append(task, 2, "b").await.unwrap(), 3);
    assert_eq!(
        read_all(&*log, task).await,
        [chunk(1, "a"), rewind(2, 0), chunk(3, "b")]
    );
    assert_eq!(log.append(task, 1, "late").await, Err(StreamError::Stale));
}

async fn beginning_twice_is_beginning_once(make: StreamLogFactory) {
    let log = make(ROOM).await;
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

/// What somebody shows who follows the entries.
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

async fn whoever_follows_the_rewinds_has_what_the_last_attempt_meant(make: StreamLogFactory) {
    let log = make(ROOM).await;
    for seed in 0..50 {
        let (task, mut dice) = (random_task_id(), Dice::new(seed));
        let mut meant = Vec::<(u64, String)>::new();
        for attempt in 1..=10 {
            // The checkpoint is some chunk that the attempt before had written, or the start.
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
    let log = make(ROOM).await;
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

async fn an_older_attempt_neither_begins_nor_ends(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a"]).await;
    log.begin(task, 2, 1).await.unwrap();
    assert_eq!(log.begin(task, 1, 0).await, Err(StreamError::Stale));
    assert_eq!(log.end(task, 1).await, Err(StreamError::Stale));
    assert_eq!(read_all(&*log, task).await, [chunk(1, "a")]);
}

async fn nothing_follows_an_end_and_ending_twice_is_ending_once(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a"]).await;
    log.end(task, 1).await.unwrap();
    log.end(task, 1).await.unwrap();
    assert_eq!(log.append(task, 1, "late").await, Err(StreamError::Stale));
    log.begin(task, 1, 0).await.unwrap();
    assert_eq!(read_all(&*log, task).await, [chunk(1, "a"), end(2)]);
}

async fn a_stream_without_chunks_can_end(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &[]).await;
    log.end(task, 1).await.unwrap();
    assert_eq!(read_all(&*log, task).await, [end(1)]);
}

async fn the_end_of_a_lost_stream_is_not_told_as_all_there_was(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let (never, lost) = (random_task_id(), written(&*log, &["a"]).await);
    log.remove(lost).await.unwrap();
    for task in [never, lost] {
        log.end(task, 1).await.unwrap();
        assert_eq!(log.read(task, 0, ALL).await.unwrap().last, 0);
    }
}

async fn a_new_attempt_takes_an_end_back(make: StreamLogFactory) {
    let log = make(ROOM).await;
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
    let log = make(ROOM).await;
    let task = written(&*log, &[]).await;
    let largest = "x".repeat(bounds::CHUNK_BYTES);
    assert_eq!(
        log.append(task, 1, &format!("{largest}x")).await,
        Err(StreamError::TooLarge(bounds::CHUNK_BYTES + 1))
    );
    assert_eq!(log.append(task, 1, &largest).await, Ok(1));
    assert_eq!(read_all(&*log, task).await, [chunk(1, &largest)]);
}

async fn a_stream_that_is_too_long_loses_its_oldest_entries_and_says_so(make: StreamLogFactory) {
    let log = make(100).await;
    let task = written(&*log, &[]).await;
    for number in 1..=5_000_u64 {
        log.append(task, 1, &number.to_string()).await.unwrap();
    }
    let Entries {
        entries,
        first_kept,
        last,
    } = log.read(task, 0, ALL).await.unwrap();
    assert!(
        first_kept > 1 && first_kept <= 4_901,
        "at least 100 and not all of 5,000 are kept: {first_kept}"
    );
    let expected: Vec<Entry> = (first_kept..=5_000)
        .map(|number| chunk(number, &number.to_string()))
        .collect();
    assert_eq!((entries, last), (expected.clone(), 5_000));
    let tail = log.read(task, 4_990, 3).await.unwrap();
    assert_eq!(tail.entries, expected[expected.len() - 10..][..3]);
    assert_eq!(tail.first_kept, first_kept);
    // The writer goes on as if nothing had been lost.
    assert_eq!(log.append(task, 1, "5001").await, Ok(5_001));
}

async fn numbers_of_a_lost_stream_are_not_used_again(make: StreamLogFactory) {
    for keep in [0, 12] {
        let log = make(ROOM).await;
        let (task, first) = (random_task_id(), first_number(2));
        assert!(
            first > u64::from(u32::MAX),
            "no attempt before can have come so far"
        );
        log.begin(task, 2, keep).await.unwrap();
        assert_eq!(log.append(task, 2, "on").await, Ok(first + 1));
        let entries = vec![rewind(first, keep), chunk(first + 1, "on")];
        let expected = Entries {
            entries,
            first_kept: first,
            last: first + 1,
        };
        assert_eq!(
            log.read(task, 50, ALL).await.unwrap(),
            expected,
            "a reader who has 50 is told what to forget"
        );
        // What is kept may also be of the lost stream when an attempt in between has begun another one.
        log.begin(task, 3, first_number(3) + 7).await.unwrap();
        assert_eq!(
            log.append(task, 3, "further").await,
            Ok(first_number(3) + 1)
        );
    }
}

async fn waiting_ends_at_once_when_something_is_there(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a", "b"]).await;
    for after in [0, 1] {
        within_patience(log.wait(task, after, LONG_MS))
            .await
            .unwrap();
    }
}

async fn waiting_ends_when_something_is_written(make: StreamLogFactory) {
    let log = make(ROOM).await;
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
            within_patience(waiting).await.unwrap();
        }
    }
}

async fn waiting_ends_when_the_time_is_over(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = written(&*log, &["a"]).await;
    within_patience(log.wait(task, 1, 1)).await.unwrap();
    within_patience(log.wait(task, 1, 0)).await.unwrap();
    within_patience(log.wait(random_task_id(), 0, 1))
        .await
        .unwrap();
}

async fn everyone_who_waits_is_woken(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let task = random_task_id();
    let mut waiting: Vec<_> = (0..50).map(|_| log.wait(task, 0, LONG_MS)).collect();
    for one in &mut waiting {
        assert!(poll!(one).is_pending());
    }
    // Some leave, which must not hurt those who stay.
    waiting.truncate(30);
    log.append(task, 1, "a").await.unwrap();
    within_patience(join_all(waiting))
        .await
        .into_iter()
        .for_each(|woken| woken.unwrap());
}

async fn a_removed_stream_is_forgotten(make: StreamLogFactory) {
    let log = make(ROOM).await;
    let (removed, other) = (written(&*log, &["a"]).await, written(&*log, &["b"]).await);
    log.remove(removed).await.unwrap();
    log.remove(removed).await.unwrap();
    assert_eq!(
        log.read(removed, 0, ALL).await.unwrap(),
        Entries {
            entries: Vec::new(),
            first_kept: 1,
            last: 0
        }
    );
    assert_eq!(read_all(&*log, other).await, [chunk(1, "b")]);
}
