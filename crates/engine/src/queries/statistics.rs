//! Statistics of a span of time (R46), from the tallies that every change leaves behind.

use std::collections::BTreeMap;

use longhaul_domain::{
    Status, StoreError, Timestamp,
    statistics::{Measure, SPAN_MICROS, Tally, TallyFilter, percentile},
};

use super::census::{Counts, count};
use crate::Engine;

/// Hours that one question may be about: a year. What is older is in the store's own tables.
pub const SPAN_HOURS: i64 = 366 * 24;

/// What is known of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    pub from: Timestamp,
    pub to: Timestamp,
    /// Tasks that now stand at a status.
    pub tasks: Counts,
    pub rows: Vec<Row>,
}

/// One type in one queue.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    pub task_type: String,
    pub queue: String,
    pub tasks: Counts,
    /// Tasks that ended in the span, by status.
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
        let present = self.store.read_tallies(&TallyFilter::default()).await?;
        let past = self
            .store
            .read_tallies(&TallyFilter {
                spans: Some((from, to)),
            })
            .await?;
        Ok(Statistics {
            from,
            to,
            tasks: count(&present, |_| true),
            rows: rows(&present, &past),
        })
    }
}

fn whole_hours(from: Timestamp, to: Timestamp) -> (Timestamp, Timestamp) {
    let start = from.as_micros().div_euclid(SPAN_MICROS) * SPAN_MICROS;
    let end = to
        .as_micros()
        .saturating_add(SPAN_MICROS - 1)
        .div_euclid(SPAN_MICROS)
        * SPAN_MICROS;
    (
        Timestamp::from_micros(start),
        Timestamp::from_micros(end.max(start + SPAN_MICROS)),
    )
}

fn rows(present: &[Tally], past: &[Tally]) -> Vec<Row> {
    let mut of_type: BTreeMap<(&str, &str), Vec<&Tally>> = BTreeMap::new();
    for tally in present.iter().chain(past) {
        of_type
            .entry((&tally.key.task_type, &tally.key.queue))
            .or_default()
            .push(tally);
    }
    let made = of_type
        .into_iter()
        .map(|((task_type, queue), tallies)| row(task_type, queue, &tallies));
    made.filter(|row| !row.tasks.is_empty() || !row.ended.is_empty())
        .collect()
}

fn row(task_type: &str, queue: &str, tallies: &[&Tally]) -> Row {
    let mut row = Row {
        task_type: task_type.to_owned(),
        queue: queue.to_owned(),
        ..Row::default()
    };
    let (mut wait, mut run) = (BTreeMap::new(), BTreeMap::new());
    for Tally { key, n } in tallies {
        match key.measure {
            Measure::Status => *row.tasks.entry(key.label.clone()).or_default() += n,
            Measure::Ended => {
                *row.ended.entry(key.label.clone()).or_default() += n;
                if key.label == Status::Completed.as_str() {
                    row.completed_on[usize::try_from(key.bucket.clamp(1, 3) - 1).unwrap_or(2)] += n;
                }
            }
            Measure::Wait => *wait.entry(key.bucket).or_default() += n,
            Measure::Run => *run.entry(key.bucket).or_default() += n,
        }
    }
    row.tasks.retain(|_, n| *n != 0);
    (row.wait, row.run) = (Percentiles::of(&wait), Percentiles::of(&run));
    row
}

#[cfg(test)]
mod tests {
    use longhaul_domain::statistics::{TallyKey, bucket_of};

    use super::*;

    fn tally(measure: Measure, label: &str, bucket: i32, n: i64) -> Tally {
        let (queue, task_type, label) = ("q".to_owned(), "t".to_owned(), label.to_owned());
        Tally {
            key: TallyKey {
                span_start: 0,
                queue,
                task_type,
                measure,
                label,
                bucket,
            },
            n,
        }
    }

    #[test]
    fn ends_are_told_apart_by_their_attempt() {
        let past = [
            tally(Measure::Ended, "COMPLETED", 1, 5),
            tally(Measure::Ended, "COMPLETED", 3, 2),
            tally(Measure::Ended, "FAILED", 1, 1),
            tally(Measure::Run, "COMPLETED", bucket_of(2_000), 7),
        ];
        let all = rows(&[tally(Measure::Status, "COMPLETED", 0, 7)], &past);
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
