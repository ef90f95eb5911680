//! All that a store holds, as text in the history's own names, one line for each thing.

use std::collections::BTreeMap;

use longhaul_domain::{
    Attempt, StoreError, Task, TaskError, Timestamp,
    contract::store::Access,
    statistics::{Measure, TallyFilter},
};

use super::side::Side;

impl Side {
    /// Everything that the history left behind.
    pub(super) async fn snapshot(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for id in self.ids().to_vec() {
            match self.fixture.store.get_task(&Access::All, id).await {
                Err(StoreError::NotFound) => lines.push(format!("{} is gone", self.name(id))),
                Err(error) => lines.push(format!("{} cannot be read: {error}", self.name(id))),
                Ok(task) => {
                    lines.push(self.tell_task(&task));
                    let attempts = self
                        .fixture
                        .store
                        .list_attempts(&Access::All, id, 0, 1_000)
                        .await
                        .unwrap();
                    lines.extend(attempts.iter().map(|attempt| self.tell_attempt(attempt)));
                    // The numbers are the store's own affair; that they grow is the suite's.
                    for entry in self.fixture.logs(id).await {
                        let at = self.span_of(entry.logged_at);
                        let (attempt, level, message) = (entry.attempt, entry.level, entry.message);
                        lines.push(format!(
                            "{} log {attempt} {level:?} {message:?} at {at}",
                            self.name(id)
                        ));
                    }
                }
            }
        }
        lines.extend(self.tell_events().await);
        lines.extend(self.tell_the_rest().await);
        lines
    }

    /// The row without its version: how many steps a store takes to count children is its own affair.
    fn tell_task(&self, task: &Task) -> String {
        let times = [
            Some(task.created_at),
            Some(task.updated_at),
            Some(task.due_at),
            task.started_at,
            task.last_attempt_at,
            task.finished_at,
            task.deadline_at,
        ];
        let plain = Task {
            version: 0,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
            due_at: Timestamp::default(),
            started_at: None,
            last_attempt_at: None,
            finished_at: None,
            deadline_at: None,
            parent_id: None,
            id: longhaul_domain::TaskId(uuid::Uuid::nil()),
            error: None,
            ..task.clone()
        };
        let parent = task.parent_id.map(|parent| self.name(parent));
        let (name, error) = (
            self.name(task.id),
            task.error.as_ref().map(|error| self.tell_error(error)),
        );
        format!(
            "{name} of {parent:?} at {:?} error {error:?}: {plain:?}",
            times.map(|at| at.map(|at| self.span_of(at)))
        )
    }

    fn tell_error(&self, error: &TaskError) -> String {
        format!(
            "{} {} {:?} in {} at {}",
            error.class,
            error.message,
            error.detail,
            error.attempt,
            self.span_of(error.at)
        )
    }

    fn tell_attempt(&self, attempt: &Attempt) -> String {
        let times = [attempt.started_at, attempt.ended_at].map(|at| at.map(|at| self.span_of(at)));
        let error = attempt.error.as_ref().map(|error| self.tell_error(error));
        let (name, number) = (self.name(attempt.task_id), attempt.attempt);
        let place = (attempt.node_id, &attempt.host);
        format!(
            "{name} attempt {number}: {:?} on {place:?} at {times:?} error {error:?}",
            attempt.outcome
        )
    }

    /// What listeners were told, task by task: between tasks the order is the store's own affair.
    async fn tell_events(&self) -> Vec<String> {
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for leased in self.fixture.drain_outbox().await {
            let (topic, body) = (leased.message.topic, leased.message.body);
            let line = format!(
                "{topic:?} {:?} {:?} {} {}",
                body.event, body.status, body.attempt, body.retry_count
            );
            told.entry(self.name(leased.message.task_id))
                .or_default()
                .push(line);
        }
        told.into_iter()
            .map(|(name, events)| format!("{name} told {events:?}"))
            .collect()
    }

    async fn tell_the_rest(&self) -> Vec<String> {
        let store = &self.fixture.store;
        let mut lines = Vec::new();
        for queue in store.list_queues().await.unwrap() {
            lines.push(format!(
                "{} paused {:?}",
                queue.name,
                queue.paused_at.map(|at| self.span_of(at))
            ));
        }
        let mut nodes = store.list_nodes().await.unwrap();
        nodes.sort_by_key(|node| node.id);
        for node in nodes {
            let times = [node.started_at, node.heartbeat_at].map(|at| self.span_of(at));
            let lost = node.lost_at.map(|at| self.span_of(at));
            lines.push(format!(
                "node {} {} {} {times:?} lost {lost:?}",
                node.id, node.name, node.host
            ));
        }
        for tally in store.read_tallies(&TallyFilter::default()).await.unwrap() {
            lines.push(format!("{tally:?}"));
        }
        let spans = Some((Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX)));
        let mut ended: BTreeMap<(String, String, String, i32), i64> = BTreeMap::new();
        for tally in store.read_tallies(&TallyFilter { spans }).await.unwrap() {
            let key = tally.key;
            if key.measure == Measure::Ended {
                *ended
                    .entry((key.queue, key.task_type, key.label, key.bucket))
                    .or_default() += tally.n;
            }
        }
        lines.extend(ended.into_iter().map(|line| format!("ended {line:?}")));
        lines
    }
}
