//! The progress cache of a fleet: the newest progress of each task, on whichever node it runs.
//!
//! There is one key per task. Its value starts with the age of the report in a fixed number of
//! digits, so that a newer report sorts later as text and one short script can compare them
//! exactly.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::progress_cache::{CacheError, LiveProgress, ProgressCache},
};
use redis::Script;

use super::Redis;

static KEEP_NEWER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/keep_newer.lua")));

/// A report expires after a minute without another. The store has it after five seconds. A node
/// that has lost Redis cannot replace its report, so an old report must not stay for long.
const EXPIRY_MS: u64 = 60_000;
/// Tasks in one round trip. Commands of other callers go in between two round trips.
const BATCH: usize = 500;
/// The age at the start of a report: ten digits of the attempt and twenty of the sequence.
const ATTEMPT_DIGITS: usize = 10;
const AGE_DIGITS: usize = 30;

/// Progress that all processes with the same server and namespace share.
#[derive(Debug)]
pub struct RedisProgressCache {
    redis: Arc<Redis>,
}

impl RedisProgressCache {
    pub fn new(redis: Arc<Redis>) -> Self {
        Self { redis }
    }

    fn key(&self, task: TaskId) -> String {
        self.redis.key("progress", &task.0.to_string())
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        pipeline: &redis::Pipeline,
    ) -> Result<T, CacheError> {
        let answer = self
            .redis
            .run(async |mut connection| pipeline.query_async(&mut connection).await)
            .await;
        answer.map_err(CacheError)
    }
}

#[async_trait]
impl ProgressCache for RedisProgressCache {
    async fn put(&self, reports: &[(TaskId, LiveProgress)]) -> Result<(), CacheError> {
        for batch in reports.chunks(BATCH) {
            let mut pipeline = redis::Pipeline::with_capacity(batch.len() + 1);
            // A server that was restarted or flushed no longer knows the script.
            pipeline.load_script(&KEEP_NEWER).ignore();

            for (task, report) in batch {
                let mut call = KEEP_NEWER.prepare_invoke();
                call.key(self.key(*task));
                call.arg(to_text(report)).arg(EXPIRY_MS);
                pipeline.invoke_script(&call).ignore();
            }

            self.run::<()>(&pipeline).await?;
        }

        Ok(())
    }

    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<LiveProgress>>, CacheError> {
        let mut found = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(BATCH) {
            let mut pipeline = redis::Pipeline::with_capacity(batch.len());
            for task in batch {
                pipeline.get(self.key(*task));
            }

            let texts: Vec<Option<String>> = self.run(&pipeline).await?;
            found.extend(texts.into_iter().map(|text| from_text(&text?)));
        }

        Ok(found)
    }

    async fn forget(&self, tasks: &[TaskId]) -> Result<(), CacheError> {
        for batch in tasks.chunks(BATCH) {
            let mut pipeline = redis::Pipeline::with_capacity(batch.len());
            for task in batch {
                pipeline.unlink(self.key(*task)).ignore();
            }

            self.run::<()>(&pipeline).await?;
        }

        Ok(())
    }

    fn is_shared(&self) -> bool {
        true
    }
}

fn to_text(report: &LiveProgress) -> String {
    format!(
        "{:010}{:020}{}",
        report.attempt, report.sequence, report.progress
    )
}

/// `None` for a value that this cache has not written.
fn from_text(text: &str) -> Option<LiveProgress> {
    let (age, progress) = text.split_at_checked(AGE_DIGITS)?;
    let (attempt, sequence) = age.split_at_checked(ATTEMPT_DIGITS)?;

    Some(LiveProgress {
        attempt: attempt.parse().ok()?,
        sequence: sequence.parse().ok()?,
        progress: serde_json::from_str(progress).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written_and_a_newer_one_sorts_later() {
        let report = |attempt, sequence| LiveProgress {
            attempt,
            sequence,
            progress: serde_json::json!({"percent": 5}),
        };

        let rising = [
            report(0, u64::MAX),
            report(1, 9),
            report(1, 10),
            report(2, 1),
            report(10, 1),
            report(u32::MAX, 0),
        ];

        assert!(
            rising
                .windows(2)
                .all(|pair| to_text(&pair[0])[..AGE_DIGITS] < to_text(&pair[1])[..AGE_DIGITS])
        );
        assert!(
            rising
                .iter()
                .all(|report| from_text(&to_text(report)).as_ref() == Some(report))
        );

        assert_eq!(
            (
                from_text(""),
                from_text("something else entirely, and long enough")
            ),
            (None, None)
        );
    }
}
