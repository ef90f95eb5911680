//! Priority aging: tasks that have waited too long are started regardless of their priority.
//!
//! They get a share of the starts of their queue, not all of them: where tasks take minutes, long
//! waits are common, and priorities must still count. The share is a part of what the queue gets
//! done, so it is the same for fast and slow queues.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    QueueName, StoreError, Timestamp, bounds,
    statistics::{CountFilter, Measure, SPAN_MICROS, TaskCount},
};
use longhaul_engine::Engine;
use parking_lot::Mutex;

use super::{
    MaintenanceSettings,
    job::{MaintenanceJob, Pass},
    millis,
};

/// One task is promoted for this many tasks of its queue that end.
const ENDS_PER_PROMOTION: i64 = 10;
/// Tasks of a queue that are promoted at once: a queue that ends hundreds a second starts them
/// within a second.
const MAX_AT_ONCE: usize = 10;
/// One hour more than needed, so that nothing is missed when an hour ends, in milliseconds.
const COUNTED_MS: u64 = SPAN_MICROS as u64 / 1_000;

/// See the module.
#[derive(Debug)]
pub struct PriorityAging {
    starve_after: Duration,
    /// For each queue with overdue tasks: how many of its tasks had ended at the last promotion.
    ends_at_promotion: Mutex<HashMap<QueueName, i64>>,
}

impl PriorityAging {
    /// The job with the settings that concern it.
    pub fn new(settings: &MaintenanceSettings) -> Self {
        Self {
            starve_after: settings.starve_after,
            ends_at_promotion: Mutex::default(),
        }
    }

    /// How many tasks of each queue with overdue tasks may be promoted now, given how many tasks of
    /// each queue have ended.
    fn allowances(
        &self,
        queues: BTreeSet<QueueName>,
        ended: &HashMap<String, i64>,
    ) -> Vec<(QueueName, usize)> {
        // One pass runs at a time: the lock only makes the job shareable.
        let mut ends_at_promotion = self.ends_at_promotion.lock();
        ends_at_promotion.retain(|queue, _| queues.contains(queue));

        let mut allowances = Vec::new();
        for queue in queues {
            let now = ended.get(queue.as_str()).copied().unwrap_or(0);
            let before = ends_at_promotion.get(&queue).copied();
            let allowed = allowance(before, now);

            // Hours that are over are no longer counted: then the count starts again from here.
            let has_restarted = before.is_some_and(|before| now < before);
            if allowed > 0 || has_restarted {
                ends_at_promotion.insert(queue.clone(), now);
            }
            if allowed > 0 {
                allowances.push((queue, allowed));
            }
        }

        allowances
    }

    /// The queues in which a task has waited too long.
    async fn overdue_queues(
        &self,
        engine: &Engine,
        now: Timestamp,
    ) -> Result<BTreeSet<QueueName>, StoreError> {
        let waited_ms = millis(self.starve_after);
        let mut queues = BTreeSet::new();
        for head in engine.queues().list_heads().await? {
            let is_promoted = head.priority == bounds::FORWARD;
            if !is_promoted && head.due_at.plus_ms(waited_ms) <= now {
                queues.insert(head.queue);
            }
        }

        Ok(queues)
    }
}

#[async_trait]
impl MaintenanceJob for PriorityAging {
    fn name(&self) -> &'static str {
        "priority_aging"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        if self.starve_after.is_zero() {
            return Ok(Pass::Clear);
        }

        let now = engine.reads().now().await?;
        let queues = self.overdue_queues(engine, now).await?;
        let ended = if queues.is_empty() {
            HashMap::new()
        } else {
            ended_by_queue(engine, now).await?
        };

        let waited_ms = millis(self.starve_after);
        for (queue, most) in self.allowances(queues, &ended) {
            engine.promote(&queue, waited_ms, most).await?;
        }

        Ok(Pass::Clear)
    }
}

/// How many tasks of a queue may be promoted. The first overdue task does not wait for others to
/// end.
fn allowance(ended_before: Option<i64>, ended_now: i64) -> usize {
    match ended_before {
        None => 1,
        Some(before) => {
            let promotions = (ended_now - before).max(0) / ENDS_PER_PROMOTION;
            usize::try_from(promotions).map_or(0, |promotions| promotions.min(MAX_AT_ONCE))
        }
    }
}

async fn ended_by_queue(
    engine: &Engine,
    now: Timestamp,
) -> Result<HashMap<String, i64>, StoreError> {
    let filter = CountFilter {
        spans: Some((now.minus_ms(COUNTED_MS), now.plus_ms(1))),
    };

    let mut ended = HashMap::new();
    for TaskCount { key, n } in engine.reads().read_task_counts(&filter).await? {
        if key.measure == Measure::Ended {
            *ended.entry(key.queue).or_default() += n;
        }
    }

    Ok(ended)
}

#[cfg(test)]
mod tests {
    use longhaul_testkit::names::queue_name;

    use super::*;

    #[test]
    fn one_of_ten_starts_is_for_tasks_that_have_waited_too_long() {
        let priority_aging = PriorityAging::new(&MaintenanceSettings::default());
        let allowed = |ended: i64| {
            let queues = BTreeSet::from([queue_name("q")]);
            let allowances =
                priority_aging.allowances(queues, &HashMap::from([("q".to_owned(), ended)]));
            allowances.first().map_or(0, |(_, most)| *most)
        };

        assert_eq!(
            allowed(100),
            1,
            "the first overdue task does not wait for others to end"
        );
        assert_eq!(
            [allowed(100), allowed(109), allowed(110), allowed(115)],
            [0, 0, 1, 0]
        );

        assert_eq!(allowed(140), 3);
        assert_eq!(allowed(10_000), MAX_AT_ONCE);

        // An hour is over, and what ended in it is no longer counted.
        assert_eq!([allowed(5), allowed(14), allowed(15)], [0, 0, 1]);
        assert!(
            priority_aging
                .allowances(BTreeSet::new(), &HashMap::new())
                .is_empty()
        );
        assert_eq!(
            allowed(15),
            1,
            "a queue that had no overdue task starts from the beginning"
        );
    }
}
