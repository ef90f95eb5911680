//! The read side: lists, history and counts.

use async_trait::async_trait;
use longhaul_domain::{
    Attempt, LogPage, QueueName, Status, StoreError, TaskId, TaskRecord, Timestamp,
    artifact::ArtifactRecord,
    bounds,
    contract::store::{Access, TaskReads},
    filter::{Page, PageRequest, SortOrder, TaskFilter},
    ids::ArtifactId,
    queue::Queue,
    statistics::{CountFilter, TaskCount},
};

use super::{
    MemoryStore,
    admin::may_see,
    attempts::{check_limit, check_types},
    state::State,
};

#[async_trait]
impl TaskReads for MemoryStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.begin().1)
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<TaskRecord, StoreError> {
        self.begin().0.accessible(access, id).cloned()
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<TaskRecord>, StoreError> {
        self.begin().0.list_tasks(access, filter, page)
    }

    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        self.begin().0.list_attempts(access, id, after, limit)
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        self.begin().0.list_logs(access, id, after, limit)
    }

    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.begin().0.list_artifacts(access, id)
    }

    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        self.begin().0.get_artifact(id)
    }

    async fn read_task_counts(&self, filter: &CountFilter) -> Result<Vec<TaskCount>, StoreError> {
        Ok(self.begin().0.read_task_counts(filter))
    }
}

impl State {
    pub(super) fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<TaskRecord>, StoreError> {
        filter.check()?;
        page.check()?;

        let wanted = |task: &&TaskRecord| may_see(access, task) && matches(filter, task);
        let tasks = self.tasks.values();
        let items: Vec<TaskRecord> = match page.order {
            SortOrder::OldestFirst => {
                let rest = tasks.filter(|task| page.after.is_none_or(|after| task.id > after));
                rest.filter(wanted).take(page.size).cloned().collect()
            }
            SortOrder::NewestFirst => {
                let reversed = tasks.rev();
                let rest = reversed.filter(|task| page.after.is_none_or(|after| task.id < after));
                rest.filter(wanted).take(page.size).cloned().collect()
            }
        };

        let next = cursor(&items, page.size, |task| task.id);
        Ok(Page { items, next })
    }

    pub(super) fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        check_limit(limit, bounds::PAGE_SIZE + 1)?;
        let task = self.accessible(access, id)?;

        let history = self.attempts.range((id, 0)..=(id, u32::MAX));
        let mut all: Vec<Attempt> = history.map(|(_, attempt)| attempt.clone()).collect();
        let last = Attempt::of_row(task);

        all.extend(last.filter(|last| !self.attempts.contains_key(&(id, last.attempt))));
        all.retain(|attempt| attempt.attempt > after);
        all.sort_by_key(|attempt| attempt.attempt);
        all.truncate(limit);

        Ok(all)
    }

    pub(super) fn count_ahead(
        &self,
        task: &TaskRecord,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        check_limit(limit, bounds::COUNT)?;
        let waiting = self.claimable.iter().map(|(_, _, id)| &self.tasks[id]);
        let is_ahead = |other: &&TaskRecord| {
            other.queue == task.queue
                && match self.claim_priority(other).cmp(&self.claim_priority(task)) {
                    std::cmp::Ordering::Greater => other.due_at <= now,
                    std::cmp::Ordering::Equal => (other.due_at, other.id) < (task.due_at, task.id),
                    std::cmp::Ordering::Less => false,
                }
        };

        Ok(waiting.filter(is_ahead).count().min(limit))
    }

    pub(super) fn next_due_at(
        &self,
        queues: &[QueueName],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        check_types(task_types)?;

        let waiting = self.claimable.iter().map(|(_, _, id)| &self.tasks[id]);
        let served = waiting
            .filter(|task| queues.contains(&task.queue) && task_types.contains(&task.task_type));
        let unpaused = served.filter(|task| self.queues[&task.queue].is_none());

        Ok(unpaused.map(|task| task.due_at).min())
    }

    pub(super) fn list_queues(&self) -> Vec<Queue> {
        let queue = |(name, paused_at): (&QueueName, &Option<Timestamp>)| Queue {
            name: name.clone(),
            paused_at: *paused_at,
        };
        self.queues.iter().map(queue).collect()
    }

    pub(super) fn read_task_counts(&self, filter: &CountFilter) -> Vec<TaskCount> {
        let mut sum = self.counts.clone();
        sum.add_all(&self.count_deltas);

        let wanted = |task_count: &TaskCount| match filter.spans {
            None => task_count.key.span_start == 0,
            Some((from, to)) => {
                task_count.key.span_start != 0
                    && (from.as_micros()..to.as_micros()).contains(&task_count.key.span_start)
            }
        };

        sum.into_task_counts().into_iter().filter(wanted).collect()
    }
}

/// Where the next page starts: after the last item of a full page.
pub(super) fn cursor<T, K>(items: &[T], limit: usize, key: impl Fn(&T) -> K) -> Option<K> {
    if items.len() < limit {
        return None;
    }
    items.last().map(key)
}

fn listed<T: PartialEq>(names: &[T], name: &T) -> bool {
    names.is_empty() || names.contains(name)
}

/// Whether a task meets all conditions of a filter.
pub(super) fn matches(filter: &TaskFilter, task: &TaskRecord) -> bool {
    let at_status = |statuses: &[Status]| statuses.is_empty() || statuses.contains(&task.status);
    let from = |bound: Option<Timestamp>, at: Timestamp| bound.is_none_or(|bound| at >= bound);
    let before = |bound: Option<Timestamp>, at: Timestamp| bound.is_none_or(|bound| at < bound);

    filter
        .owner
        .as_ref()
        .is_none_or(|owner| task.owner == *owner)
        && at_status(&filter.statuses)
        && listed(&filter.task_types, &task.task_type)
        && listed(&filter.queues, &task.queue)
        && filter
            .task_key
            .as_ref()
            .is_none_or(|key| task.task_key.as_ref() == Some(key))
        && filter
            .parent_id
            .is_none_or(|parent| task.parent_id == Some(parent))
        && from(filter.created_after, task.created_at)
        && before(filter.created_before, task.created_at)
        && from(filter.due_after, task.due_at)
        && before(filter.due_before, task.due_at)
}
