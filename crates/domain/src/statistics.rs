//! Counts and statistics (R46) that are kept with each change, so that no reader scans the history.
//!
//! Every change of a task yields a few tallies: small signed numbers under a name. Stores append them in
//! the change's own transaction and fold them now and then; the sum is exact at any moment.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    task::{Status, Task},
    time::Timestamp,
};

/// What a tally counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Tasks that now stand at a status.
    Status,
    /// Tasks that ended at a status, by the attempt that ended them: 1, 2, or 3 for any later one.
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

/// What a tally is filed under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TallyKey {
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

/// One line of a tally sheet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    #[serde(flatten)]
    pub key: TallyKey,
    pub n: i64,
}

/// The tallies of one transaction, added up: by queue, by type, then by the rest of the key. Every task that moves is
/// counted here several times, so a name is only copied when it is new.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TallySheet(BTreeMap<String, BTreeMap<String, Lines>>);

/// By span, measure, label and bucket.
type Lines = BTreeMap<(i64, Measure, Cow<'static, str>, i32), i64>;

/// One hour, in microseconds: the span of the statistics.
pub const SPAN_MICROS: i64 = 3_600 * 1_000_000;

impl TallySheet {
    /// Counts a task that was made or that reached `task`'s status, `n` times.
    pub fn count(&mut self, queue: &str, task_type: &str, status: Status, n: i64) {
        self.add(0, queue, task_type, Measure::Status, status, 0, n);
    }

    /// Counts the move of a task, and its end if the move was one.
    pub fn record_move(&mut self, before: &Task, after: &Task) {
        self.count(&before.queue, &before.task_type, before.status, -1);
        self.count(&after.queue, &after.task_type, after.status, 1);
        if after.status.is_ended() && !before.status.is_ended() {
            self.record_end(&Ending::of(after), &after.queue, &after.task_type);
        }
    }

    /// Counts the end of a task that was running.
    pub fn end_running(&mut self, ending: &Ending, queue: &str, task_type: &str) {
        self.count(queue, task_type, Status::Running, -1);
        self.count(queue, task_type, ending.status, 1);
        self.record_end(ending, queue, task_type);
    }

    /// Counts the end of a task.
    pub fn record_end(&mut self, ending: &Ending, queue: &str, task_type: &str) {
        let at = ending.finished_at;
        let span = at.as_micros().div_euclid(SPAN_MICROS) * SPAN_MICROS;
        let status = ending.status;
        let attempt = i32::try_from(ending.attempt.min(3)).unwrap_or(3);
        self.add(span, queue, task_type, Measure::Ended, status, attempt, 1);
        if let Some(started) = ending.last_attempt_at {
            let wait = bucket_of(started.micros_since(ending.waits_since));
            let run = bucket_of(at.micros_since(started));
            self.add(span, queue, task_type, Measure::Wait, status, wait, 1);
            self.add(span, queue, task_type, Measure::Run, status, run, 1);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one key, spelled out once"
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
        *self.lines(queue, kind).entry(line).or_default() += n;
    }

    fn lines(&mut self, queue: &str, kind: &str) -> &mut Lines {
        named(named(&mut self.0, queue), kind)
    }

    /// The lines that are not zero.
    pub fn into_tallies(self) -> Vec<Tally> {
        let mut tallies = Vec::new();
        for (queue, types) in self.0 {
            for (task_type, lines) in types {
                for ((span_start, measure, label, bucket), n) in
                    lines.into_iter().filter(|(_, n)| *n != 0)
                {
                    let (queue, task_type, label) =
                        (queue.clone(), task_type.clone(), label.into_owned());
                    tallies.push(Tally {
                        key: TallyKey {
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
        tallies
    }

    pub fn add_all(&mut self, tallies: &[Tally]) {
        for Tally { key, n } in tallies {
            let line = (
                key.span_start,
                key.measure,
                Cow::Owned(key.label.clone()),
                key.bucket,
            );
            *self
                .lines(&key.queue, &key.task_type)
                .entry(line)
                .or_default() += n;
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the name was put there in the line before"
)]
fn named<'m, V: Default>(map: &'m mut BTreeMap<String, V>, name: &str) -> &'m mut V {
    if !map.contains_key(name) {
        map.insert(name.to_owned(), V::default());
    }
    map.get_mut(name).expect("a name that is there")
}

/// What the statistics keep of a task's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    pub status: Status,
    pub attempt: u32,
    /// Since when it waited for its last attempt.
    pub waits_since: Timestamp,
    pub last_attempt_at: Option<Timestamp>,
    pub finished_at: Timestamp,
}

impl Ending {
    fn of(task: &Task) -> Self {
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

/// Which tallies to read: those of spans that start in the range, or of the present when it is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TallyFilter {
    pub spans: Option<(Timestamp, Timestamp)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_off_by_a_tenth_at_the_most() {
        for micros in [1_u64, 950, 40_000, 7_300_000, 86_400_000_000] {
            let histogram = BTreeMap::from([(bucket_of(micros), 5)]);
            let told = percentile(&histogram, 0.99).unwrap();
            assert!(
                (told / micros as f64 - 1.0).abs() < 0.1,
                "{micros} was told as {told}"
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
