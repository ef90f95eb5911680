//! Submitting: new tasks, their idempotency keys and their parent's counters, all or nothing.

use std::collections::HashMap;

use longhaul_domain::{
    Invalid, Lease, NewTask, Status, StoreError, TaskId, Timestamp, bounds,
    contract::store::Submitted,
    lifecycle::{
        Transition,
        child_ended::{self, ChildMove},
        heartbeat, submit,
    },
};

use super::state::{IdempotencyRow, State};

impl State {
    pub(super) fn submit(
        &mut self,
        tasks: &[NewTask],
        now: Timestamp,
    ) -> Result<Vec<Submitted>, StoreError> {
        bounds::check_batch("tasks", tasks.len(), bounds::SUBMIT_BATCH)?;
        tasks.iter().try_for_each(NewTask::check)?;
        let parent = common_parent(tasks)?;
        if let Some(lease) = &parent {
            self.check_parent(lease)?;
        }

        let answers = self.resolve(tasks, now)?;
        let mut made: Vec<(TaskId, &NewTask)> = Vec::new();
        for (answer, new) in answers.iter().zip(tasks) {
            if !answer.repeated {
                made.push((answer.task_id, new));
            }
        }

        let children = made.iter().filter(|(_, new)| new.parent.is_some()).count();
        let counted = match parent {
            Some(lease) => self.count_new_children(&lease, children, now)?,
            None => None,
        };

        // From here on nothing can be refused, so the batch is written whole.
        if let Some(transition) = counted {
            self.apply(transition, now);
        }
        for (id, new) in made {
            self.apply_alone(submit::decide(new, id, now)?);
            self.insert_key(new, id, now);
        }

        Ok(answers)
    }

    fn check_parent(&self, lease: &Lease) -> Result<(), StoreError> {
        let parent = self.tasks.get(&lease.task_id).ok_or(StoreError::NotFound)?;
        Ok(heartbeat::decide(parent, lease)?)
    }

    /// The task of each entry: the one that its key leads to, or a new one.
    fn resolve(&mut self, tasks: &[NewTask], now: Timestamp) -> Result<Vec<Submitted>, StoreError> {
        let mut in_this_batch: HashMap<(&str, &str), ([u8; 32], TaskId)> = HashMap::new();
        let mut answers = Vec::with_capacity(tasks.len());
        for new in tasks {
            let fresh = Submitted {
                task_id: new.id.unwrap_or_else(|| self.next_id(now)),
                repeated: false,
            };
            let Some(asked) = &new.idempotency else {
                answers.push(fresh);
                continue;
            };

            let name = (&*new.owner, asked.key.as_str());
            let in_batch = in_this_batch.get(&name).copied();
            let before = in_batch.or_else(|| self.find_key(name, now));

            match before {
                Some((digest, _)) if digest != asked.digest => {
                    return Err(StoreError::IdempotencyMismatch);
                }
                Some((_, task_id)) => answers.push(Submitted {
                    task_id,
                    repeated: true,
                }),
                None => {
                    in_this_batch.insert(name, (asked.digest, fresh.task_id));
                    answers.push(fresh);
                }
            }
        }

        Ok(answers)
    }

    fn find_key(&self, (owner, key): (&str, &str), now: Timestamp) -> Option<([u8; 32], TaskId)> {
        let row = self
            .idempotency_keys
            .get(&(owner.to_owned(), key.to_owned()))?;
        (now < row.expires_at).then_some((row.digest, row.task_id))
    }

    fn insert_key(&mut self, new: &NewTask, task_id: TaskId, now: Timestamp) {
        if let Some(asked) = &new.idempotency {
            let name = (new.owner.to_string(), asked.key.clone());
            let row = IdempotencyRow {
                task_id,
                digest: asked.digest,
                expires_at: now.plus_ms(asked.ttl_ms),
            };
            self.idempotency_keys.insert(name, row);
        }
    }

    fn count_new_children(
        &self,
        lease: &Lease,
        children: usize,
        now: Timestamp,
    ) -> Result<Option<Transition>, StoreError> {
        if children == 0 {
            return Ok(None);
        }

        let submitted = ChildMove {
            from: None,
            to: Status::Queued,
        };
        let parent = &self.tasks[&lease.task_id];
        let transition = child_ended::decide(parent, &vec![submitted; children], now)?;
        Ok(Some(transition))
    }
}

/// The parent of a batch, which must be the same for all its children.
fn common_parent(tasks: &[NewTask]) -> Result<Option<Lease>, Invalid> {
    let mut parents = tasks.iter().filter_map(|task| task.parent);
    let first = parents.next();
    if parents.any(|lease| Some(lease) != first) {
        return Err(Invalid::new(
            "parent",
            "is not the same for all tasks",
            "one parent for all children of a batch",
        ));
    }

    Ok(first)
}
