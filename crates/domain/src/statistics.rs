//! Counts and statistics that are maintained with each change, so that no reader scans the history.
//!
//! Every change of a task yields a few counts: small signed numbers under a key. Stores append them
//! in the transaction of the change and compact them later; their sum is exact at any moment.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    task::{Status, TaskRecord},
    time::Timestamp,
};

/// What a count counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Tasks by their present status.
    Status,
    /// Ended tasks by status and attempt: 1, 2, or 3 for any later one.
    Ended,
    /// Waits from due to the start of the last attempt, by histogram bucket.
    Wait,
    /// Runs of the last attempt, by histogram bucket.
    Run,
}

impl Measure {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Ended => "ended",
            Self::Wait => "wait",
            Self::Run => "run",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Status, Self::Ended, Self::Wait, Self::Run]
            .into_iter()
            .find(|measure| measure.as_str() == text)
    }
}

/// The key of a count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CountKey {
    /// Start of the hour in which tasks ended; zero for counts of the present.
    pub span_start: i64,
    pub queue: String,
    pub task_type: String,
    pub measure: Measure,
    /// The status that is counted.
    pub label: String,
    /// Attempt number or histogram bucket; zero where there is none.
    pub bucket: i32,
}

/// A count with its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCount {
    #[serde(flatten)]
    pub key: CountKey,
    pub n: i64,
}

/// The counts of one transaction, added up: by queue, by type, then by the rest of the key. Every
/// task that moves is counted here several times, so a name is only copied when it is new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountSheet(BTreeMap<String, BTreeMap<String, CountsOfType>>);

/// By span, measure, label and bucket.
type CountsOfType = BTreeMap<(i64, Measure, Cow<'static, str>, i32), i64>;

/// One hour, in microseconds: the span of the statistics.
pub const SPAN_MICROS: i64 = 3_600 * 1_000_000;

impl CountSheet {
    /// Counts `n` tasks that reached a status.
    pub fn count(&mut self, queue: &str, task_type: &str, status: Status, n: i64) {
        self.add(0, queue, task_type, Measure::Status, status, 0, n);
    }

    /// Counts the move of a task, and its end if the move was one.
    pub fn record_move(&mut self, before: &TaskRecord, after: &TaskRecord) {
        self.count(&before.queue, &before.task_type, before.status, -1);
        self.count(&after.queue, &after.task_type, after.status, 1);
        if after.status.is_ended() && !before.status.is_ended() {
            self.record_end(&EndedTask::of(after), &after.queue, &after.task_type);
        }
    }

    /// Counts the end of a task that was running.
    pub fn end_running(&mut self, end: &EndedTask, queue: &str, task_type: &str) {
        self.count(queue, task_type, Status::Running, -1);
        self.count(queue, task_type, end.status, 1);
        self.record_end(end, queue, task_type);
    }

    /// Counts the end of a task.
    pub fn record_end(&mut self, end: &EndedTask, queue: &str, task_type: &str) {
        let at = end.finished_at;
        let span = at.as_micros().div_euclid(SPAN_MICROS) * SPAN_MICROS;
        let status = end.status;
        let attempt = i32::try_from(end.attempt.min(3)).unwrap_or(3);
        self.add(span, queue, task_type, Measure::Ended, status, attempt, 1);

        if let Some(started) = end.last_attempt_at {
            let wait = bucket_of(started.micros_since(end.waits_since));
            let run = bucket_of(at.micros_since(started));
            self.add(span, queue, task_type, Measure::Wait, status, wait, 1);
            self.add(span, queue, task_type, Measure::Run, status, run, 1);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one key, spelled out once"
    )]
    fn add(
        &mut self,
        span: i64,
        queue: &str,
        kind: &str,
        measure: Measure,
        status: Status,
        bucket: i32,
        n: i64,
    ) {
        let line = (span, measure, Cow::Borrowed(status.as_str()), bucket);
        *self.of_type(queue, kind).entry(line).or_default() += n;
    }

    fn of_type(&mut self, queue: &str, kind: &str) -> &mut CountsOfType {
        named(named(&mut self.0, queue), kind)
    }

    /// The counts that are not zero.
    pub fn into_task_counts(self) -> Vec<TaskCount> {
        let mut task_counts = Vec::new();
        for (queue, types) in self.0 {
            for (task_type, lines) in types {
                for ((span_start, measure, label, bucket), n) in
                    lines.into_iter().filter(|(_, n)| *n != 0)
                {
                    let queue = queue.clone();
                    let task_type = task_type.clone();
                    let label = label.into_owned();
                    task_counts.push(TaskCount {
                        key: CountKey {
                            span_start,
                            queue,
                            task_type,
                            measure,
                            label,
                            bucket,
                        },
                        n,
                    });
                }
            }
        }

        task_counts
    }

    pub fn add_all(&mut self, task_counts: &[TaskCount]) {
        for TaskCount { key, n } in task_counts {
            let line = (
                key.span_start,
                key.measure,
                Cow::Owned(key.label.clone()),
                key.bucket,
            );

            *self
                .of_type(&key.queue, &key.task_type)
                .entry(line)
                .or_default() += n;
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the name was inserted in the line before"
)]
fn named<'m, V: Default>(map: &'m mut BTreeMap<String, V>, name: &str) -> &'m mut V {
    if !map.contains_key(name) {
        map.insert(name.to_owned(), V::default());
    }
    map.get_mut(name).expect("the name is in the map")
}

/// What the statistics count of a task's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedTask {
    pub status: Status,
    pub attempt: u32,
    /// Since when it waited for its last attempt.
    pub waits_since: Timestamp,
    pub last_attempt_at: Option<Timestamp>,
    pub finished_at: Timestamp,
}

impl EndedTask {
    fn of(task: &TaskRecord) -> Self {
        Self {
            status: task.status,
            attempt: task.attempt,
            waits_since: task.waits_since(),
            last_attempt_at: task.last_attempt_at,
            finished_at: task.finished_at.unwrap_or(task.updated_at),
        }
    }
}

/// Four buckets to each doubling of a duration: a percentile is off by a tenth at the most.
pub fn bucket_of(micros: u64) -> i32 {
    ((micros.max(1) as f64).log2() * 4.0).floor() as i32
}

/// The middle of a bucket, in microseconds.
pub fn middle_of(bucket: i32) -> f64 {
    2f64.powf((f64::from(bucket) + 0.5) / 4.0)
}

/// The duration in microseconds below which the share `p` (0 to 1) of a histogram lies.
pub fn percentile(histogram: &BTreeMap<i32, i64>, p: f64) -> Option<f64> {
    let total: i64 = histogram.values().sum();
    let wanted = (total as f64 * p).ceil().max(1.0) as i64;
    let mut seen = 0;
    histogram.iter().find_map(|(bucket, n)| {
        seen += n;
        (seen >= wanted).then(|| middle_of(*bucket))
    })
}

/// Which counts to read: those of spans that start in the range, or those of the present.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountFilter {
    pub spans: Option<(Timestamp, Timestamp)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_off_by_a_tenth_at_the_most() {
        for micros in [1_u64, 950, 40_000, 7_300_000, 86_400_000_000] {
            let histogram = BTreeMap::from([(bucket_of(micros), 5)]);
            let estimate = percentile(&histogram, 0.99).unwrap();
            assert!(
                (estimate / micros as f64 - 1.0).abs() < 0.1,
                "{micros} is estimated as {estimate}"
            );
        }
    }

    #[test]
    fn percentiles_walk_the_histogram_in_order() {
        let histogram = BTreeMap::from([(0, 90), (40, 9), (80, 1)]);
        assert_eq!(percentile(&histogram, 0.5), Some(middle_of(0)));
        assert_eq!(percentile(&histogram, 0.95), Some(middle_of(40)));
        assert_eq!(percentile(&histogram, 1.0), Some(middle_of(80)));
        assert_eq!(percentile(&BTreeMap::new(), 0.5), None);
    }
}
