//! The contents of a store as text in the history's own names.

use std::collections::BTreeMap;

use longhaul_domain::{
    Attempt, StoreError, TaskError, TaskRecord, Timestamp,
    contract::store::Access,
    statistics::{CountFilter, Measure},
};

use super::side::Side;

impl Side {
    /// All contents after the history.
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
                    // Numbers differ between stores. The suite checks that they grow.
                    for entry in self.fixture.logs(id).await {
                        let at = self.span_of(entry.logged_at);
                        let attempt = entry.attempt;
                        let level = entry.level;
                        let message = entry.message;
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

    /// The row without its version, because stores count children in different numbers of steps.
    fn tell_task(&self, task: &TaskRecord) -> String {
        let times = [
            Some(task.created_at),
            Some(task.updated_at),
            Some(task.due_at),
            task.started_at,
            task.last_attempt_at,
            task.finished_at,
            task.deadline_at,
        ];

        let plain = TaskRecord {
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
        let name = self.name(task.id);
        let error = task.error.as_ref().map(|error| self.tell_error(error));
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
        let name = self.name(attempt.task_id);
        let number = attempt.attempt;
        let place = (attempt.node_id, &attempt.host);

        format!(
            "{name} attempt {number}: {:?} on {place:?} at {times:?} error {error:?}",
            attempt.end
        )
    }

    /// The published events, task by task, because the order between tasks differs between stores.
    async fn tell_events(&self) -> Vec<String> {
        let mut published: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for leased in self.fixture.drain_outbox().await {
            let topic = leased.message.topic;
            let body = leased.message.body;
            let line = format!(
                "{topic:?} {:?} {:?} {} {}",
                body.event, body.status, body.attempt, body.retry_count
            );

            published
                .entry(self.name(leased.message.task_id))
                .or_default()
                .push(line);
        }

        published
            .into_iter()
            .map(|(name, events)| format!("{name} published {events:?}"))
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
        for task_count in store
            .read_task_counts(&CountFilter::default())
            .await
            .unwrap()
        {
            lines.push(format!("{task_count:?}"));
        }
        let spans = Some((Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX)));
        let mut ended: BTreeMap<(String, String, String, i32), i64> = BTreeMap::new();
        for task_count in store
            .read_task_counts(&CountFilter { spans })
            .await
            .unwrap()
        {
            let key = task_count.key;
            if key.measure == Measure::Ended {
                *ended
                    .entry((key.queue, key.task_type, key.label, key.bucket))
                    .or_default() += task_count.n;
            }
        }
        lines.extend(ended.into_iter().map(|line| format!("ended {line:?}")));
        lines
    }
}
