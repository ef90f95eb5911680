//! The progress cache of one process.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::progress_cache::{CacheError, LiveProgress, ProgressCache},
};
use parking_lot::Mutex;

/// How many tasks the cache remembers. Tasks that run in this process are not among them, so these
/// are the tasks of remote workers. With a short report each, the cache has some ten megabytes.
const TASKS: usize = 20_000;

/// Progress in memory. When there are too many tasks, the cache forgets those that have not
/// reported for the longest time.
#[derive(Debug)]
pub struct MemoryProgressCache {
    max_tasks: usize,
    /// Never held across an await; both of its maps change together.
    reports: Mutex<Reports>,
}

/// The newest report of each task.
#[derive(Debug, Default)]
struct Reports {
    /// How many reports were stored so far; the number of the newest.
    count: u64,
    newest: HashMap<TaskId, (LiveProgress, u64)>,
    /// Tasks by the number of their newest report.
    by_number: BTreeMap<u64, TaskId>,
}

impl MemoryProgressCache {
    /// Remembers the progress of at most `max_tasks` tasks.
    pub fn new(max_tasks: usize) -> Self {
        Self {
            max_tasks: max_tasks.max(1),
            reports: Mutex::default(),
        }
    }
}

impl Default for MemoryProgressCache {
    fn default() -> Self {
        Self::new(TASKS)
    }
}

#[async_trait]
impl ProgressCache for MemoryProgressCache {
    async fn put(&self, reports: &[(TaskId, LiveProgress)]) -> Result<(), CacheError> {
        let mut stored = self.reports.lock();
        for (task, report) in reports {
            stored.put(*task, report);
            if stored.newest.len() > self.max_tasks {
                stored.forget_oldest();
            }
        }

        Ok(())
    }

    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<LiveProgress>>, CacheError> {
        let stored = self.reports.lock();
        let found = tasks.iter().map(|task| stored.get(*task));
        Ok(found.collect())
    }

    async fn forget(&self, tasks: &[TaskId]) -> Result<(), CacheError> {
        let mut stored = self.reports.lock();
        tasks.iter().for_each(|task| stored.forget(*task));
        Ok(())
    }

    fn is_shared(&self) -> bool {
        false
    }
}

impl Reports {
    fn get(&self, task: TaskId) -> Option<LiveProgress> {
        self.newest.get(&task).map(|(report, _)| report.clone())
    }

    /// Stores a report unless there is one that is as new.
    fn put(&mut self, task: TaskId, report: &LiveProgress) {
        if let Some((stored, _)) = self.newest.get(&task)
            && stored.age() >= report.age()
        {
            return;
        }

        self.count += 1;
        if let Some((_, number)) = self.newest.insert(task, (report.clone(), self.count)) {
            self.by_number.remove(&number);
        }
        self.by_number.insert(self.count, task);
    }

    fn forget(&mut self, task: TaskId) {
        if let Some((_, number)) = self.newest.remove(&task) {
            self.by_number.remove(&number);
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, task)) = self.by_number.pop_first() {
            self.newest.remove(&task);
        }
    }
}
