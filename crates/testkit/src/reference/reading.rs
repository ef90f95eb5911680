//! Reading: lists, history, and sums.

use longhaul_domain::{
    Attempt, Status, StoreError, Task, TaskId, Timestamp, bounds,
    contract::store::Access,
    filter::{Page, PageRequest, SortOrder, TaskFilter},
    queue::Queue,
    statistics::{Tally, TallyFilter},
};

use super::{people::may_see, state::State, working::check_limit};

impl State {
    pub(super) fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Task>, StoreError> {
        filter.check()?;
        page.check()?;
        let wanted = |task: &&Task| may_see(access, task) && matches(filter, task);
        let items: Vec<Task> = match page.order {
            SortOrder::OldestFirst => {
                let rest = self
                    .tasks
                    .values()
                    .filter(|task| page.after.is_none_or(|after| task.id > after));
                rest.filter(wanted).take(page.size).cloned().collect()
            }
            SortOrder::NewestFirst => {
                let rest = self
                    .tasks
                    .values()
                    .rev()
                    .filter(|task| page.after.is_none_or(|after| task.id < after));
                rest.filter(wanted).take(page.size).cloned().collect()
            }
        };
        let next = items
            .last()
            .map(|task| task.id)
            .filter(|_| items.len() == page.size);
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
        let history = self
            .attempts
            .range((id, 0)..=(id, u32::MAX))
            .map(|(_, attempt)| attempt.clone());
        let mut all: Vec<Attempt> = history.collect();
        let last = Attempt::told_by(task);
        all.extend(last.filter(|last| !self.attempts.contains_key(&(id, last.attempt))));
        all.retain(|attempt| attempt.attempt > after);
        all.sort_by_key(|attempt| attempt.attempt);
        all.truncate(limit);
        Ok(all)
    }

    pub(super) fn count_ahead(
        &self,
        task: &Task,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        check_limit(limit, bounds::COUNT)?;
        let waiting = self.claimable.iter().map(|(_, _, id)| &self.tasks[id]);
        let is_ahead = |other: &&Task| {
            other.queue == task.queue
                && match self.standing(other).cmp(&self.standing(task)) {
                    std::cmp::Ordering::Greater => other.due_at <= now,
                    std::cmp::Ordering::Equal => (other.due_at, other.id) < (task.due_at, task.id),
                    std::cmp::Ordering::Less => false,
                }
        };
        Ok(waiting.filter(is_ahead).count().min(limit))
    }

    pub(super) fn next_due_at(
        &self,
        queues: &[String],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        queues
            .iter()
            .try_for_each(|queue| bounds::check_label("queue", queue))?;
        task_types
            .iter()
            .try_for_each(|name| bounds::check_label("taskType", name))?;
        let waiting = self.claimable.iter().map(|(_, _, id)| &self.tasks[id]);
        let served = waiting
            .filter(|task| queues.contains(&task.queue) && task_types.contains(&task.task_type));
        Ok(served
            .filter(|task| self.queues[&task.queue].is_none())
            .map(|task| task.due_at)
            .min())
    }

    pub(super) fn list_queues(&self) -> Vec<Queue> {
        let queue = |(name, paused_at): (&String, &Option<Timestamp>)| Queue {
            name: name.clone(),
            paused_at: *paused_at,
        };
        self.queues.iter().map(queue).collect()
    }

    pub(super) fn read_tallies(&self, filter: &TallyFilter) -> Vec<Tally> {
        let mut sum = self.folded.clone();
        sum.add_all(&self.unfolded);
        let wanted = |tally: &Tally| match filter.spans {
            None => tally.key.span_start == 0,
            Some((from, to)) => {
                tally.key.span_start != 0
                    && (from.as_micros()..to.as_micros()).contains(&tally.key.span_start)
            }
        };
        sum.into_tallies().into_iter().filter(wanted).collect()
    }
}

/// Whether all conditions of a filter hold for a task.
pub(super) fn matches(filter: &TaskFilter, task: &Task) -> bool {
    let named = |names: &[String], name: &String| names.is_empty() || names.contains(name);
    let at_status = |statuses: &[Status]| statuses.is_empty() || statuses.contains(&task.status);
    let from = |bound: Option<Timestamp>, at: Timestamp| bound.is_none_or(|bound| at >= bound);
    let before = |bound: Option<Timestamp>, at: Timestamp| bound.is_none_or(|bound| at < bound);
    filter
        .owner
        .as_ref()
        .is_none_or(|owner| task.owner == *owner)
        && at_status(&filter.statuses)
        && named(&filter.task_types, &task.task_type)
        && named(&filter.queues, &task.queue)
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
