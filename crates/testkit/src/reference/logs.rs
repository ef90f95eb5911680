//! Log lines: kept with their task under the lease of the running attempt, and read by their numbers.

use longhaul_domain::{
    LogEntry, LogLine, LogPage, Status, StoreError, TaskId, Timestamp, bounds,
    contract::store::{Access, Verdict},
    lifecycle::heartbeat,
};

use super::{
    state::State,
    working::{check_limit, verdict_of},
};

impl State {
    pub(super) fn append_logs(
        &mut self,
        lines: &[LogLine],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("lines", lines.len(), bounds::LOG_BATCH)?;
        let verdicts = lines
            .iter()
            .map(|line| self.append_log(line, now))
            .collect();
        for kept in self
            .logs
            .values_mut()
            .filter(|kept| kept.len() > bounds::LOG_LINES + bounds::LOG_SLACK)
        {
            kept.drain(..kept.len() - bounds::LOG_LINES);
        }
        Ok(verdicts)
    }

    fn append_log(&mut self, line: &LogLine, now: Timestamp) -> Verdict {
        let Some(task) = self.tasks.get(&line.lease.task_id) else {
            return Verdict::Missing;
        };
        // A line changes no task; it needs what a heartbeat needs.
        if let Err(refusal) = heartbeat::decide(task, &line.lease) {
            return verdict_of(refusal, task);
        }
        self.last_log_number += 1;
        let entry = LogEntry {
            number: self.last_log_number,
            attempt: line.lease.attempt,
            level: line.level,
            message: line.storable_message(),
            logged_at: now,
        };
        self.logs.entry(line.lease.task_id).or_default().push(entry);
        Verdict::Applied(Status::Running)
    }

    pub(super) fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        check_limit(limit, bounds::PAGE_SIZE)?;
        self.accessible(access, id)?;
        let kept = self.logs.get(&id).into_iter().flatten();
        let later = kept.filter(|entry| after.is_none_or(|after| entry.number > after));
        let items: Vec<LogEntry> = later.take(limit).cloned().collect();
        let next = items
            .last()
            .map(|entry| entry.number)
            .filter(|_| items.len() == limit);
        Ok(LogPage { items, next })
    }
}
