//! Performs one operation of a history on one side. The answer is text in the history's own names.

use std::sync::Arc;

use longhaul_domain::{
    Json, Lease, LogLevel, LogLine, NewTask, StoreError,
    contract::store::{
        AttemptEnd, AttemptReport, BulkChange, BulkRequest, ClaimRequest, Failure, RescueRequest,
        RetryScope, Submitted,
    },
    filter::{PageRequest, Retention, SortOrder},
    lifecycle::expire::Overdue,
};

use super::{
    operation::{Bulk, Conditions, Draft, MaintenanceJob, ModelEnd, Operation, UserCommand, Write},
    side::{SPAN_MS, Side, access, chosen, kind, queue, spans_and_a_half},
};
use crate::store_suite::support::{MANY, json};

type Answer = Result<String, StoreError>;

impl Side {
    /// Performs one operation and describes the result.
    pub(super) async fn perform(&mut self, operation: &Operation) -> String {
        match self.attempt(operation).await {
            Ok(answer) => answer,
            Err(StoreError::Invalid(invalid)) => format!("invalid: {}", invalid.field),
            Err(error) => format!("{}: {error}", error.code()),
        }
    }

    async fn attempt(&mut self, operation: &Operation) -> Answer {
        match operation {
            Operation::Submit { tasks } => self.submit(tasks, None).await,
            Operation::SubmitChildren { lease, tasks } => match self.lease(*lease) {
                Some(parent) => self.submit(tasks, Some(parent)).await,
                None => nothing(),
            },
            Operation::Claim {
                node,
                queues,
                kinds,
                limit,
            } => self.claim(*node, *queues, *kinds, *limit).await,
            Operation::Write(write) => self.write(write).await,
            Operation::UserCommand(command) => self.change(command).await,
            Operation::MaintenanceJob(job) => self.run_maintenance_job(job).await,
            Operation::List {
                filter,
                newest_first,
                size,
            } => self.list(filter, *newest_first, *size).await,
            Operation::NextDue { queues, kinds } => {
                let queues = chosen(*queues, queue);
                let kinds = chosen(*kinds, kind);
                let due_at = self.fixture.store.next_due_at(&queues, &kinds).await?;
                let span = due_at.map(|at| self.span_of(at));
                Ok(format!("due in span {span:?}"))
            }
            Operation::Advance { spans } => {
                self.advance(*spans);
                nothing()
            }
        }
    }

    async fn submit(&mut self, drafts: &[Draft], parent: Option<Lease>) -> Answer {
        let new_task = |(index, draft)| self.new_task(draft, index, parent);
        let tasks: Vec<NewTask> = drafts.iter().enumerate().map(new_task).collect();
        let answers: Vec<Submitted> = self.fixture.store.submit_tasks(tasks).await?;

        let mut described = Vec::new();
        for answer in answers {
            if !answer.repeated {
                self.note_submitted(answer.task_id);
            }
            described.push(format!("{} {}", self.name(answer.task_id), answer.repeated));
        }

        Ok(described.join(", "))
    }

    async fn claim(&mut self, node: u8, queues: u8, kinds: u8, limit: u8) -> Answer {
        let request = ClaimRequest {
            node_id: self.node(node),
            host: format!("host-{node}"),
            queues: chosen(queues, queue),
            task_types: chosen(kinds, kind),
            limit: usize::from(limit),
        };

        let mut described = Vec::new();
        for task in self.fixture.store.claim_tasks(&request).await? {
            if let Some(lease) = task.lease() {
                self.note_lease(lease);
            }
            described.push(format!("{} attempt {}", self.name(task.id), task.attempt));
        }

        Ok(described.join(", "))
    }

    async fn write(&self, write: &Write) -> Answer {
        let store = &self.fixture.store;
        let lease_of = |number: u8| self.lease(number);
        match write {
            Write::Heartbeat { node } => {
                let gone = store
                    .heartbeat_node(self.node(*node), self.leases())
                    .await?;
                let described = gone
                    .iter()
                    .map(|(lease, verdict)| (self.name(lease.task_id), lease.attempt, *verdict));
                shown(described.collect::<Vec<_>>())
            }
            Write::Finish { reports } => {
                let reports = reports
                    .iter()
                    .filter_map(|(number, end)| report(lease_of(*number)?, *end));
                let reports: Vec<AttemptReport> = reports.collect();
                shown(store.finish_tasks(&reports).await?)
            }
            Write::Progress { lease, percent } => {
                let report = lease_of(*lease).map(|lease| (lease, number(*percent)));
                shown(store.save_progress(&Vec::from_iter(report)).await?)
            }
            Write::Checkpoint { lease, page } => match lease_of(*lease) {
                Some(lease) => shown(store.save_checkpoint(&lease, &number(*page)).await?),
                None => nothing(),
            },
            Write::Log { leases } => {
                let leases = leases.iter().filter_map(|number| lease_of(*number));
                let line = |(index, lease)| LogLine {
                    lease,
                    level: LogLevel::Warn,
                    message: format!("line {index}"),
                };
                let lines: Vec<LogLine> = leases.enumerate().map(line).collect();
                shown(store.append_logs(&lines).await?)
            }
        }
    }

    async fn change(&self, command: &UserCommand) -> Answer {
        let store = &self.fixture.store;
        match command {
            UserCommand::Cancel { task, owner } => match self.task(*task) {
                Some(id) => {
                    let done = store.cancel_task(&access(*owner), id).await?;
                    Ok(format!("{:?} {:?}", done.status, self.moves(&done.moved)))
                }
                None => nothing(),
            },
            UserCommand::Retry {
                task,
                owner,
                failed_children,
            } => {
                let scope = if *failed_children {
                    RetryScope::FailedChildren
                } else {
                    RetryScope::Task
                };

                match self.task(*task) {
                    Some(id) => shown(store.retry_task(&access(*owner), id, scope).await?),
                    None => nothing(),
                }
            }
            UserCommand::Reschedule { task, change } => match self.task(*task) {
                Some(id) => {
                    let after = store
                        .reschedule_task(&access(None), id, &self.reschedule(change))
                        .await?;
                    Ok(format!("{:?} in {}", after.status, after.queue))
                }
                None => nothing(),
            },
            UserCommand::ChangeAll {
                filter,
                bulk,
                limit,
            } => self.change_all(filter, bulk, *limit).await,
            UserCommand::Pause { queue: number } => {
                shown(store.pause_queue(&queue(*number)).await?)
            }
            UserCommand::Resume { queue: number } => {
                shown(store.resume_queue(&queue(*number)).await?)
            }
        }
    }

    /// The first two steps of a bulk change.
    async fn change_all(&self, filter: &Conditions, bulk: &Bulk, limit: u8) -> Answer {
        let change = match bulk {
            Bulk::Cancel => BulkChange::Cancel,
            Bulk::Retry => BulkChange::Retry,
            Bulk::Reschedule(change) => BulkChange::Reschedule(self.reschedule(change)),
        };

        let mut request = BulkRequest {
            access: access(filter.access),
            filter: self.filter(filter),
            change,
            spared: Vec::new(),
            after: None,
            limit: usize::from(limit),
        };

        let first = self.fixture.store.change_tasks(&request).await?;
        request.after = first.next;
        let second = if first.next.is_some() {
            Some(self.fixture.store.change_tasks(&request).await?)
        } else {
            None
        };

        let steps = [Some(first), second].into_iter().flatten();
        let described = steps.map(|step| {
            let next = step.next.map(|id| self.name(id));
            (step.matched, step.changed, next)
        });
        shown(described.collect::<Vec<_>>())
    }

    async fn run_maintenance_job(&mut self, job: &MaintenanceJob) -> Answer {
        let store = Arc::clone(&self.fixture.store);
        match job {
            MaintenanceJob::StartNode { node } => {
                self.start_node(*node).await?;
                Ok("started".to_owned())
            }
            MaintenanceJob::RetireNode { node } => {
                shown(store.retire_node(self.node(*node)).await?)
            }
            MaintenanceJob::DeclareOthersDead { node } => {
                shown(store.declare_others_dead(self.node(*node)).await?)
            }
            MaintenanceJob::HandBackStrays {
                node,
                forgotten,
                spans,
            } => self.hand_back_strays(*node, *forgotten, *spans).await,
            MaintenanceJob::Rescue { max_crashes, limit } => {
                self.rescue(*max_crashes, *limit).await
            }
            MaintenanceJob::Expire {
                silent,
                grace,
                limit,
            } => self.expire(*silent, *grace, *limit).await,
            MaintenanceJob::Take { node, spans } => self.take_lease(*node, *spans).await,
            MaintenanceJob::Prune { spans, limit } => self.prune(*spans, *limit).await,
            // All keys at once, because stores may prune expired keys in any order.
            MaintenanceJob::PruneKeys => {
                let count = store.prune_idempotency_keys(MANY).await?;
                Ok(format!("{count} keys"))
            }
            // The number of rows to compact differs between stores.
            MaintenanceJob::CompactCounts { limit } => {
                store.compact_counts(usize::from(*limit)).await?;
                Ok("compacted".to_owned())
            }
        }
    }

    async fn hand_back_strays(&self, node: u8, forgotten: u8, spans: u8) -> Answer {
        let leases = self.leases().iter().enumerate();
        let known = leases.filter(|(index, _)| index % 3 != usize::from(forgotten));
        let known: Vec<Lease> = known.map(|(_, lease)| *lease).collect();

        let store = &self.fixture.store;
        let strays = store
            .hand_back_strays(self.node(node), &known, spans_and_a_half(spans))
            .await?;
        shown(self.names(strays))
    }

    async fn rescue(&self, max_crashes: u8, limit: u8) -> Answer {
        let request = RescueRequest {
            asker: None,
            lease_ms: spans_and_a_half(1),
            max_crashes: u32::from(max_crashes),
            limit: usize::from(limit),
            host_affinity_ms: 0,
        };

        let mut rescued = self.fixture.store.rescue_tasks(&request).await?;
        rescued.requeued.sort_unstable();
        rescued.quarantined.sort_unstable();

        let requeued = self.names(rescued.requeued);
        let quarantined = self.names(rescued.quarantined);
        Ok(format!("{requeued:?} {quarantined:?}"))
    }

    async fn expire(&self, silent: u8, grace: u8, limit: u8) -> Answer {
        let overdue = Overdue {
            silent_ms: spans_and_a_half(silent),
            timeout_grace_ms: u64::from(grace) * SPAN_MS,
        };

        let store = &self.fixture.store;
        let expired = store.expire_tasks(&overdue, usize::from(limit)).await?;
        let moves = self.moves(&expired.moved);
        Ok(format!("{} expired: {moves:?}", expired.ended))
    }

    async fn take_lease(&self, node: u8, spans: u8) -> Answer {
        let store = &self.fixture.store;
        let lease = store
            .take_maintenance_lease("job", self.node(node), spans_and_a_half(spans))
            .await?;
        let lease = lease.map(|lease| {
            let until = self.span_of(lease.leased_until);
            (lease.node_id, lease.epoch, until)
        });

        shown(lease)
    }

    async fn prune(&self, spans: u8, limit: u8) -> Answer {
        let keep = Retention {
            ended_ms: spans_and_a_half(spans),
            dead_letter_ms: spans_and_a_half(spans + 1),
        };
        let page = self
            .fixture
            .store
            .list_prunable(&keep, None, usize::from(limit))
            .await?;

        let ids: Vec<_> = page.items.iter().map(|task| task.id).collect();
        let removed = self.fixture.store.prune_tasks(&keep, &ids).await?;
        Ok(format!(
            "{:?} next {:?}: {removed} rows",
            self.names(ids),
            page.next.map(|id| self.name(id))
        ))
    }

    /// The first two pages of a list.
    async fn list(&self, filter: &Conditions, newest_first: bool, size: u8) -> Answer {
        let order = if newest_first {
            SortOrder::NewestFirst
        } else {
            SortOrder::OldestFirst
        };
        let mut page = PageRequest {
            order,
            after: None,
            size: usize::from(size),
        };

        let store = &self.fixture.store;
        let access = access(filter.access);
        let filter = self.filter(filter);
        let first = store.list_tasks(&access, &filter, &page).await?;
        let mut items = first.items;
        if first.next.is_some() {
            page.after = first.next;
            items.extend(store.list_tasks(&access, &filter, &page).await?.items);
        }

        shown(self.names(items.into_iter().map(|task| task.id)))
    }
}

fn shown(value: impl std::fmt::Debug) -> Answer {
    Ok(format!("{value:?}"))
}

fn nothing() -> Answer {
    Ok("nothing to do".to_owned())
}

fn number(value: u8) -> Json {
    json(&value.to_string())
}

fn report(lease: Lease, end: ModelEnd) -> Option<AttemptReport> {
    let failure = Failure {
        class: "test".to_owned(),
        message: "it broke".to_owned(),
        detail: None,
    };

    let outcome = match end {
        ModelEnd::Completed => AttemptEnd::Completed {
            result: Some(number(1)),
            result_url: None,
        },
        ModelEnd::Fatal => AttemptEnd::Failed {
            failure,
            retry_in_ms: None,
        },
        ModelEnd::Retryable { spans } => AttemptEnd::Failed {
            failure,
            retry_in_ms: Some(u64::from(spans) * SPAN_MS),
        },
        ModelEnd::Snoozed { spans } => AttemptEnd::Snoozed {
            reason: None,
            delay_ms: u64::from(spans) * SPAN_MS,
        },
        ModelEnd::HandedBack => AttemptEnd::HandedBack,
        ModelEnd::Cancelled => AttemptEnd::Cancelled,
        ModelEnd::WithAnOlderAttempt => {
            let lease = Lease {
                attempt: lease.attempt - 1,
                ..lease
            };
            return Some(AttemptReport {
                lease,
                end: AttemptEnd::Completed {
                    result: None,
                    result_url: None,
                },
            });
        }
    };

    Some(AttemptReport {
        lease,
        end: outcome,
    })
}
