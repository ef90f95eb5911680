//! The progress cache of one process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::progress_cache::{CacheError, HotProgress, ProgressCache},
};

/// Tasks whose progress is remembered. Those that run in this process are not among them, so it is what workers in other
/// languages run for it; with a short report each it is some ten megabytes.
const TASKS: usize = 20_000;

/// Progress in memory. Of too many tasks, those that have not reported for the longest time are forgotten.
#[derive(Debug)]
pub struct MemoryProgressCache {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reports: u64,
    newest: HashMap<TaskId, (HotProgress, u64)>,
    /// By the number of the last report.
    order: BTreeMap<u64, TaskId>,
}

impl MemoryProgressCache {
    /// Remembers the progress of at most so many tasks.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryProgressCache {
    fn default() -> Self {
        Self::new(TASKS)
    }
}

#[async_trait]
impl ProgressCache for MemoryProgressCache {
    async fn put(&self, reports: &[(TaskId, HotProgress)]) -> Result<(), CacheError> {
        let mut state = self.state();
        for (task, report) in reports {
            state.put(*task, report);
            if state.newest.len() > self.most {
                state.forget_the_oldest();
            }
        }
        Ok(())
    }

    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<HotProgress>>, CacheError> {
        let state = self.state();
        Ok(tasks
            .iter()
            .map(|task| state.newest.get(task).map(|(report, _)| report.clone()))
            .collect())
    }

    async fn forget(&self, tasks: &[TaskId]) -> Result<(), CacheError> {
        let mut state = self.state();
        tasks.iter().for_each(|task| state.forget(*task));
        Ok(())
    }

    fn is_shared(&self) -> bool {
        false
    }
}

impl State {
    fn put(&mut self, task: TaskId, report: &HotProgress) {
        if self
            .newest
            .get(&task)
            .is_some_and(|(kept, _)| kept.age() >= report.age())
        {
            return;
        }
        self.reports += 1;
        if let Some((_, number)) = self.newest.insert(task, (report.clone(), self.reports)) {
            self.order.remove(&number);
        }
        self.order.insert(self.reports, task);
    }

    fn forget(&mut self, task: TaskId) {
        if let Some((_, number)) = self.newest.remove(&task) {
            self.order.remove(&number);
        }
    }

    fn forget_the_oldest(&mut self) {
        if let Some((_, task)) = self.order.pop_first() {
            self.newest.remove(&task);
        }
    }
}
