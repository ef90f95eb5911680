//! Statistics of a time span, from the counts that every change maintains.

use std::collections::BTreeMap;

use longhaul_domain::{
    Status, StoreError, Timestamp,
    statistics::{CountFilter, Measure, SPAN_MICROS, TaskCount, percentile},
};

use super::queue_counts::{Counts, count};
use crate::Engine;

/// The longest span in hours: a year. Older counts are in the store's own tables.
pub const SPAN_HOURS: i64 = 366 * 24;

/// The statistics of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    pub from: Timestamp,
    pub to: Timestamp,
    /// Tasks by their present status.
    pub tasks: Counts,
    pub rows: Vec<Row>,
}

/// One type in one queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    pub task_type: String,
    pub queue: String,
    pub tasks: Counts,
    /// Tasks that ended in the span, by their last status.
    pub ended: Counts,
    /// Tasks that completed on the first, second and any later attempt.
    pub completed_on: [i64; 3],
    pub wait: Percentiles,
    pub run: Percentiles,
}

/// In milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Percentiles {
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

impl Percentiles {
    fn of(histogram: &BTreeMap<i32, i64>) -> Self {
        let at = |p| percentile(histogram, p).map(|micros| micros.round() / 1_000.0);
        Self {
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
        }
    }
}

impl Engine {
    /// Statistics of the hours from `from` to `to`, widened to whole ones.
    pub async fn statistics(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Statistics, StoreError> {
        let (from, to) = whole_hours(from, to);
        let present = self.store.read_task_counts(&CountFilter::default()).await?;
        let filter = CountFilter {
            spans: Some((from, to)),
        };
        let past = self.store.read_task_counts(&filter).await?;

        Ok(Statistics {
            from,
            to,
            tasks: count(&present, |_| true),
            rows: rows(&present, &past),
        })
    }
}

fn whole_hours(from: Timestamp, to: Timestamp) -> (Timestamp, Timestamp) {
    let hour_of = |micros: i64| micros.div_euclid(SPAN_MICROS) * SPAN_MICROS;
    let start = hour_of(from.as_micros());
    let end = hour_of(to.as_micros().saturating_add(SPAN_MICROS - 1));

    (
        Timestamp::from_micros(start),
        Timestamp::from_micros(end.max(start + SPAN_MICROS)),
    )
}

fn rows(present: &[TaskCount], past: &[TaskCount]) -> Vec<Row> {
    let mut groups: BTreeMap<(&str, &str), Vec<&TaskCount>> = BTreeMap::new();
    for task_count in present.iter().chain(past) {
        let key = &task_count.key;
        let group = groups.entry((&key.task_type, &key.queue)).or_default();
        group.push(task_count);
    }

    let mut rows = Vec::with_capacity(groups.len());
    for ((task_type, queue), task_counts) in groups {
        let row = row(task_type, queue, &task_counts);
        if !row.tasks.is_empty() || !row.ended.is_empty() {
            rows.push(row);
        }
    }

    rows
}

fn row(task_type: &str, queue: &str, task_counts: &[&TaskCount]) -> Row {
    let mut row = Row {
        task_type: task_type.to_owned(),
        queue: queue.to_owned(),
        ..Row::default()
    };
    let mut wait = BTreeMap::new();
    let mut run = BTreeMap::new();

    for TaskCount { key, n } in task_counts {
        match key.measure {
            Measure::Status => *row.tasks.entry(key.label.clone()).or_default() += n,
            Measure::Ended => {
                *row.ended.entry(key.label.clone()).or_default() += n;
                if key.label == Status::Completed.as_str() {
                    let attempt = usize::try_from(key.bucket.clamp(1, 3)).unwrap_or(3);
                    row.completed_on[attempt - 1] += n;
                }
            }
            Measure::Wait => *wait.entry(key.bucket).or_default() += n,
            Measure::Run => *run.entry(key.bucket).or_default() += n,
        }
    }

    row.tasks.retain(|_, n| *n != 0);
    row.wait = Percentiles::of(&wait);
    row.run = Percentiles::of(&run);
    row
}

#[cfg(test)]
mod tests {
    use longhaul_domain::statistics::{CountKey, bucket_of};

    use super::*;

    fn task_count(measure: Measure, label: &str, bucket: i32, n: i64) -> TaskCount {
        TaskCount {
            key: CountKey {
                span_start: 0,
                queue: "q".to_owned(),
                task_type: "t".to_owned(),
                measure,
                label: label.to_owned(),
                bucket,
            },
            n,
        }
    }

    #[test]
    fn completed_tasks_are_counted_by_their_attempt() {
        let past = [
            task_count(Measure::Ended, "COMPLETED", 1, 5),
            task_count(Measure::Ended, "COMPLETED", 3, 2),
            task_count(Measure::Ended, "FAILED", 1, 1),
            task_count(Measure::Run, "COMPLETED", bucket_of(2_000), 7),
        ];

        let all = rows(&[task_count(Measure::Status, "COMPLETED", 0, 7)], &past);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].completed_on, [5, 0, 2]);
        assert_eq!((all[0].ended["COMPLETED"], all[0].ended["FAILED"]), (7, 1));
        assert!((all[0].run.p50_ms.unwrap() / 2.0 - 1.0).abs() < 0.1);
        assert_eq!(all[0].wait, Percentiles::default());
    }

    #[test]
    fn a_span_is_widened_to_whole_hours_and_is_never_empty() {
        let at = Timestamp::from_micros;
        let hour = SPAN_MICROS;
        assert_eq!(
            whole_hours(at(hour + 5), at(2 * hour + 1)),
            (at(hour), at(3 * hour))
        );
        assert_eq!(whole_hours(at(hour), at(hour)), (at(hour), at(2 * hour)));
    }
}
