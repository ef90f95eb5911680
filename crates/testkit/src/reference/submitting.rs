//! Submitting: new tasks, their idempotency keys and their parent's counters, all or none.

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

use super::state::{Promise, State};

impl State {
    pub(super) fn submit(
        &mut self,
        tasks: &[NewTask],
        now: Timestamp,
    ) -> Result<Vec<Submitted>, StoreError> {
        bounds::check_batch("tasks", tasks.len(), bounds::SUBMIT_BATCH)?;
        tasks.iter().try_for_each(NewTask::check)?;
        let parent = common_parent(tasks)?;
        parent.map_or(Ok(()), |lease| self.check_parent(&lease))?;

        let answers = self.resolve(tasks, now)?;
        let made: Vec<(TaskId, &NewTask)> = answers
            .iter()
            .zip(tasks)
            .filter(|(answer, _)| !answer.repeated)
            .map(|(a, new)| (a.task_id, new))
            .collect();
        let children = made.iter().filter(|(_, new)| new.parent.is_some()).count();
        let counted = parent
            .map(|lease| self.count_new_children(&lease, children, now))
            .transpose()?;

        // Nothing can be refused from here on.
        counted
            .flatten()
            .into_iter()
            .for_each(|transition| self.apply(transition, now));
        for (id, new) in made {
            self.apply_alone(submit::decide(new, id, now)?);
            self.promise(new, id, now);
        }
        Ok(answers)
    }

    fn check_parent(&self, lease: &Lease) -> Result<(), StoreError> {
        let parent = self.tasks.get(&lease.task_id).ok_or(StoreError::NotFound)?;
        Ok(heartbeat::decide(parent, lease)?)
    }

    /// Which task each entry stands for: one that its key led to before, or a new one.
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
            let before = in_this_batch
                .get(&name)
                .copied()
                .or_else(|| self.promised(name, now));
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

    fn promised(&self, (owner, key): (&str, &str), now: Timestamp) -> Option<([u8; 32], TaskId)> {
        let promise = self.promises.get(&(owner.to_owned(), key.to_owned()))?;
        (now < promise.expires_at).then_some((promise.digest, promise.task_id))
    }

    fn promise(&mut self, new: &NewTask, task_id: TaskId, now: Timestamp) {
        if let Some(asked) = &new.idempotency {
            let expires_at = now.plus_ms(asked.ttl_ms);
            let promise = Promise {
                task_id,
                digest: asked.digest,
                expires_at,
            };
            self.promises
                .insert((new.owner.to_string(), asked.key.clone()), promise);
        }
    }

    fn count_new_children(
        &self,
        lease: &Lease,
        children: usize,
        now: Timestamp,
    ) -> Result<Option<Transition>, StoreError> {
        let moves = vec![
            ChildMove {
                from: None,
                to: Status::Queued
            };
            children
        ];
        let parent = &self.tasks[&lease.task_id];
        Ok((children > 0)
            .then(|| child_ended::decide(parent, &moves, now))
            .transpose()?)
    }
}

/// The one parent of a batch's children.
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
