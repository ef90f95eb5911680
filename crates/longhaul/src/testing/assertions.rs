//! What a test may read: submitted tasks, their ends and their log lines.
//!
//! The store in memory answers at once, so none of this is async.

use futures::FutureExt as _;
use longhaul_domain::{
    Attempt, LogEntry, Status, StoreError, TaskId, TaskRecord, bounds,
    contract::store::{Access, TaskReads},
    filter::{PageRequest, SortOrder, TaskFilter},
};
use longhaul_sdk::{Handle, Kind, NoResult, Task};

use super::TestLonghaul;

impl TestLonghaul {
    /// The parameters of all submitted tasks of type `T`, children included, in order of
    /// submission.
    #[track_caller]
    pub fn submitted<T: Task>(&self) -> Vec<T::Params> {
        let filter = TaskFilter {
            task_types: vec![T::TYPE.to_owned()],
            ..TaskFilter::default()
        };
        let read = |task: TaskRecord| match task.parameters.read() {
            Ok(params) => params,
            Err(error) => panic!(
                "the parameters of {} are none of its type: {error}",
                describe(&task)
            ),
        };

        self.records(&filter).into_iter().map(read).collect()
    }

    /// The record of the task as the store has it.
    #[track_caller]
    pub fn record<K: Kind>(&self, handle: &Handle<K>) -> TaskRecord {
        self.get(handle.id())
    }

    /// Every attempt of the task with its outcome, oldest first.
    #[track_caller]
    pub fn attempts<K: Kind>(&self, handle: &Handle<K>) -> Vec<Attempt> {
        at_once(handle.attempts())
    }

    /// The task's log lines from `ctx.info`, `ctx.warn` and `ctx.error`, in order.
    #[track_caller]
    pub fn logs<K: Kind>(&self, handle: &Handle<K>) -> Vec<String> {
        self.log_entries(handle.id())
            .into_iter()
            .map(|entry| entry.message)
            .collect()
    }

    /// The result.
    ///
    /// # Panics
    ///
    /// When the task has none. The message describes the task.
    #[track_caller]
    pub fn result<K: Kind>(&self, handle: &Handle<K>) -> K::Output {
        let task = self.record(handle);
        match Handle::<K>::result_of(&task) {
            Ok(result) => result,
            Err(error @ (NoResult::Unreadable(_) | NoResult::Nothing)) => {
                panic!("{error}: {}", self.explain(&task))
            }
            Err(NoResult::Ended { .. } | NoResult::Store(_)) => {
                panic!(
                    "there is no result, has it been run (run_until_idle)? {}",
                    self.explain(&task)
                )
            }
        }
    }

    /// Asserts that the task has ended this way.
    ///
    /// # Panics
    ///
    /// When it has not. The message describes the task.
    #[track_caller]
    pub fn assert_ended<K: Kind>(&self, handle: &Handle<K>, status: Status) {
        assert!(
            status.is_ended(),
            "{} is no end; ask for the record's status instead",
            status.as_str()
        );

        let task = self.record(handle);
        if task.status != status {
            panic!(
                "the task should have ended {}: {}",
                status.as_str(),
                self.explain(&task)
            );
        }
    }

    #[track_caller]
    pub(super) fn open_records(&self) -> Vec<TaskRecord> {
        let statuses = Status::ALL
            .into_iter()
            .filter(|status| !status.is_ended())
            .collect();
        self.records(&TaskFilter {
            statuses,
            ..TaskFilter::default()
        })
    }

    #[track_caller]
    fn records(&self, filter: &TaskFilter) -> Vec<TaskRecord> {
        let mut page = PageRequest {
            order: SortOrder::OldestFirst,
            ..PageRequest::first(bounds::PAGE_SIZE)
        };
        let mut all = Vec::new();

        loop {
            let found = at_once(self.reads().list_tasks(&Access::All, filter, &page));
            all.extend(found.items);
            match found.next {
                Some(next) => page.after = Some(next),
                None => return all,
            }
        }
    }

    #[track_caller]
    fn log_entries(&self, id: TaskId) -> Vec<LogEntry> {
        let mut all: Vec<LogEntry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.number);
            let reads = self.reads();
            let page = at_once(reads.list_logs(&Access::All, id, after, bounds::PAGE_SIZE));

            all.extend(page.items);
            if page.next.is_none() {
                return all;
            }
        }
    }

    fn reads(&self) -> &dyn TaskReads {
        self.engine().reads()
    }

    #[track_caller]
    fn get(&self, id: TaskId) -> TaskRecord {
        at_once(self.reads().get_task(&Access::All, id))
    }

    /// The task with its attempts and log lines, for the message of a failed test.
    #[track_caller]
    fn explain(&self, task: &TaskRecord) -> String {
        let attempt = |attempt: &Attempt| {
            let error = attempt
                .error
                .as_ref()
                .map(|error| format!(" ({}: {})", error.class, error.message));
            let number = attempt.attempt;
            let end = attempt.end.as_str();
            format!("  attempt {number}: {end}{}", error.unwrap_or_default())
        };

        let line = |entry: &LogEntry| {
            format!(
                "  log of attempt {}: [{}] {}",
                entry.attempt,
                entry.level.as_str(),
                entry.message
            )
        };

        let reads = self.reads();
        let attempts = at_once(reads.list_attempts(&Access::All, task.id, 0, 1_000));

        let mut lines = vec![describe(task)];
        lines.extend(attempts.iter().map(attempt));
        lines.extend(self.log_entries(task.id).iter().map(line));

        lines.join("\n")
    }
}

/// A task in one line.
pub(super) fn describe(task: &TaskRecord) -> String {
    let name = &task.task_type;
    let id = task.id;
    let status = task.status.as_str();
    let counts = [
        (task.attempt, "attempts"),
        (task.retry_count, "retries"),
        (task.snooze_count, "snoozes"),
        (task.crash_count, "crashes"),
        (task.children.open(), "open children"),
    ];

    let counts: Vec<String> = counts
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} {what}"))
        .collect();
    let counts = if counts.is_empty() {
        "never run".to_owned()
    } else {
        counts.join(", ")
    };

    let error = task
        .error
        .as_ref()
        .map(|error| format!("; last error ({}): {}", error.class, error.message));

    format!(
        "{name} {id} is {status} in queue {}: {counts}{}",
        task.queue,
        error.unwrap_or_default()
    )
}

#[track_caller]
fn at_once<R>(question: impl Future<Output = Result<R, StoreError>>) -> R {
    match question.now_or_never() {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => panic!("the store in memory refused: {error}"),
        None => panic!("the store in memory did not answer at once"),
    }
}
