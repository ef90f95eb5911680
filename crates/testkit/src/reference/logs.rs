//! Log lines: stored with their task under the lease of the running attempt, and listed by number.

use longhaul_domain::{
    LogEntry, LogLine, LogPage, Status, StoreError, TaskId, Timestamp, bounds,
    contract::store::{Access, Verdict},
    lifecycle::heartbeat,
};

use super::{
    attempts::{check_limit, verdict_of},
    state::State,
    task_reads::cursor,
};

impl State {
    pub(super) fn append_logs(
        &mut self,
        lines: &[LogLine],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("lines", lines.len(), bounds::LOG_BATCH)?;

        let append = |line| self.append_log(line, now);
        let verdicts = lines.iter().map(append).collect();

        for log in self.logs.values_mut() {
            if log.len() > bounds::LOG_LINES + bounds::LOG_SLACK {
                log.drain(..log.len() - bounds::LOG_LINES);
            }
        }

        Ok(verdicts)
    }

    fn append_log(&mut self, line: &LogLine, now: Timestamp) -> Verdict {
        let Some(task) = self.tasks.get(&line.lease.task_id) else {
            return Verdict::Missing;
        };

        // A log line changes no task, so it needs the same lease as a heartbeat.
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

        let entries = self.logs.get(&id).into_iter().flatten();
        let later = entries.filter(|entry| after.is_none_or(|after| entry.number > after));
        let items: Vec<LogEntry> = later.take(limit).cloned().collect();

        let next = cursor(&items, limit, |entry| entry.number);
        Ok(LogPage { items, next })
    }
}
