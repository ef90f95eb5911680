//! The progress cache of a fleet: the newest progress of each task, wherever it runs.
//!
//! One key a task, which starts with the age of the report in digits of a fixed number: what is newer comes later in the
//! order of texts, so that one short script can compare them exactly.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::progress_cache::{CacheError, HotProgress, ProgressCache},
};
use redis::Script;

use super::Redis;

static KEEP_NEWER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("lua/keep_newer.lua")));

/// A report is forgotten after so many milliseconds without another: a minute. The store has it after five seconds, and
/// one that a node could not replace, because it has lost Redis and others have not, must not stay for long.
const FORGOTTEN_AFTER_MS: u64 = 60_000;
/// Tasks in one round trip. Other callers' commands go in between two.
const BATCH: usize = 500;
/// Bytes of a report that are its age: ten digits for the attempt and twenty for the sequence.
const AGE_BYTES: usize = 30;

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
            .ask(async |mut connection| pipeline.query_async(&mut connection).await)
            .await;
        answer.map_err(CacheError)
    }
}

#[async_trait]
impl ProgressCache for RedisProgressCache {
    async fn put(&self, reports: &[(TaskId, HotProgress)]) -> Result<(), CacheError> {
        for batch in reports.chunks(BATCH) {
            let mut pipeline = redis::Pipeline::with_capacity(batch.len() + 1);
            // A server that was started again or flushed does not know the script any more.
            pipeline.load_script(&KEEP_NEWER).ignore();
            for (task, report) in batch {
                let mut call = KEEP_NEWER.prepare_invoke();
                call.key(self.key(*task))
                    .arg(written(report))
                    .arg(FORGOTTEN_AFTER_MS);
                pipeline.invoke_script(&call).ignore();
            }
            self.run::<()>(&pipeline).await?;
        }
        Ok(())
    }

    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<HotProgress>>, CacheError> {
        let mut found = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(BATCH) {
            let mut pipeline = redis::Pipeline::with_capacity(batch.len());
            for task in batch {
                pipeline.get(self.key(*task));
            }
            let texts: Vec<Option<String>> = self.run(&pipeline).await?;
            found.extend(texts.into_iter().map(|text| read(&text?)));
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

fn written(report: &HotProgress) -> String {
    format!(
        "{:010}{:020}{}",
        report.attempt, report.sequence, report.progress
    )
}

/// What somebody else has put there is nothing that we know of.
fn read(text: &str) -> Option<HotProgress> {
    let (age, progress) = text.split_at_checked(AGE_BYTES)?;
    let (attempt, sequence) = age.split_at_checked(10)?;
    let progress = serde_json::from_str(progress).ok()?;
    Some(HotProgress {
        attempt: attempt.parse().ok()?,
        sequence: sequence.parse().ok()?,
        progress,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_newer_comes_later_in_the_order_of_texts() {
        let report = |attempt, sequence| HotProgress {
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
                .all(|pair| written(&pair[0])[..AGE_BYTES] < written(&pair[1])[..AGE_BYTES])
        );
        assert!(
            rising
                .iter()
                .all(|report| read(&written(report)).as_ref() == Some(report))
        );
        assert_eq!(
            (read(""), read("something else entirely, and long enough")),
            (None, None)
        );
    }
}
