//! Taking one step of a history on one side. The answer is text in the history's own names.

use std::sync::Arc;

use longhaul_domain::{
    Json, Lease, LogLevel, LogLine, NewTask, StoreError,
    contract::store::{
        BulkChange, BulkRequest, ClaimRequest, Failure, Outcome, Report, RescueRequest, RetryScope,
        Submitted,
    },
    filter::{PageRequest, Retention, SortOrder},
    lifecycle::expire::Overdue,
};

use super::{
    operation::{Bulk, Conditions, Draft, Duty, Ending, Operation, Person, Write},
    side::{SPAN_MS, Side, access, chosen, kind, queue, spans_and_a_half},
};
use crate::store_suite::support::{MANY, json};

type Answer = Result<String, StoreError>;

impl Side {
    /// Takes one step and tells what came of it.
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
            Operation::Person(person) => self.change(person).await,
            Operation::Duty(duty) => self.do_duty(duty).await,
            Operation::List {
                filter,
                newest_first,
                size,
            } => self.list(filter, *newest_first, *size).await,
            Operation::NextDue { queues, kinds } => {
                let (queues, kinds) = (chosen(*queues, queue), chosen(*kinds, kind));
                let due_at = self.fixture.store.next_due_at(&queues, &kinds).await?;
                Ok(format!(
                    "due in span {:?}",
                    due_at.map(|at| self.span_of(at))
                ))
            }
            Operation::Advance { spans } => {
                self.advance(*spans);
                nothing()
            }
        }
    }

    async fn submit(&mut self, drafts: &[Draft], parent: Option<Lease>) -> Answer {
        let places = drafts.iter().enumerate();
        let tasks: Vec<NewTask> = places
            .map(|(place, draft)| self.new_task(draft, place, parent))
            .collect();
        let answers: Vec<Submitted> = self.fixture.store.submit_tasks(tasks).await?;
        answers
            .iter()
            .filter(|answer| !answer.repeated)
            .for_each(|answer| self.note_made(answer.task_id));
        let told = answers
            .iter()
            .map(|answer| format!("{} {}", self.name(answer.task_id), answer.repeated));
        Ok(told.collect::<Vec<_>>().join(", "))
    }

    async fn claim(&mut self, node: u8, queues: u8, kinds: u8, limit: u8) -> Answer {
        let request = ClaimRequest {
            node_id: self.node(node),
            host: format!("host-{node}"),
            queues: chosen(queues, queue),
            task_types: chosen(kinds, kind),
            limit: usize::from(limit),
        };
        let claimed = self.fixture.store.claim_tasks(&request).await?;
        claimed
            .iter()
            .filter_map(|task| task.lease())
            .for_each(|lease| self.note_lease(lease));
        let told = claimed
            .iter()
            .map(|task| format!("{} attempt {}", self.name(task.id), task.attempt));
        Ok(told.collect::<Vec<_>>().join(", "))
    }

    async fn write(&self, write: &Write) -> Answer {
        let store = &self.fixture.store;
        let lease_of = |number: u8| self.lease(number);
        match write {
            Write::Heartbeat { node } => {
                let gone = store
                    .heartbeat_node(self.node(*node), self.leases())
                    .await?;
                let told = gone
                    .iter()
                    .map(|(lease, verdict)| (self.name(lease.task_id), lease.attempt, *verdict));
                Ok(format!("{:?}", told.collect::<Vec<_>>()))
            }
            Write::Finish { reports } => {
                let reports = reports
                    .iter()
                    .filter_map(|(number, ending)| report(lease_of(*number)?, *ending));
                let reports: Vec<Report> = reports.collect();
                Ok(format!("{:?}", store.finish_tasks(&reports).await?))
            }
            Write::Progress { lease, percent } => {
                let report = lease_of(*lease).map(|lease| (lease, number(*percent)));
                Ok(format!(
                    "{:?}",
                    store.save_progress(&Vec::from_iter(report)).await?
                ))
            }
            Write::Checkpoint { lease, page } => match lease_of(*lease) {
                Some(lease) => Ok(format!(
                    "{:?}",
                    store.save_checkpoint(&lease, &number(*page)).await?
                )),
                None => nothing(),
            },
            Write::Log { leases } => {
                let leases = leases.iter().filter_map(|number| lease_of(*number));
                let message = |place: usize| format!("line {place}");
                let line = |(place, lease)| LogLine {
                    lease,
                    level: LogLevel::Warn,
                    message: message(place),
                };
                let lines: Vec<LogLine> = leases.enumerate().map(line).collect();
                Ok(format!("{:?}", store.append_logs(&lines).await?))
            }
        }
    }

    async fn change(&self, person: &Person) -> Answer {
        let store = &self.fixture.store;
        match person {
            Person::Cancel { task, owner } => match self.task(*task) {
                Some(id) => {
                    let done = store.cancel_task(&access(*owner), id).await?;
                    Ok(format!("{:?} {:?}", done.status, self.moves(&done.moved)))
                }
                None => nothing(),
            },
            Person::Retry {
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
                    Some(id) => Ok(format!(
                        "{:?}",
                        store.retry_task(&access(*owner), id, scope).await?
                    )),
                    None => nothing(),
                }
            }
            Person::Reschedule { task, change } => match self.task(*task) {
                Some(id) => {
                    let after = store
                        .reschedule_task(&access(None), id, &self.reschedule(change))
                        .await?;
                    Ok(format!("{:?} in {}", after.status, after.queue))
                }
                None => nothing(),
            },
            Person::ChangeAll {
                filter,
                bulk,
                limit,
            } => self.change_all(filter, bulk, *limit).await,
            Person::Pause { queue: number } => {
                Ok(format!("{:?}", store.pause_queue(&queue(*number)).await?))
            }
            Person::Resume { queue: number } => {
                Ok(format!("{:?}", store.resume_queue(&queue(*number)).await?))
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
        let (access, filter) = (access(filter.access), self.filter(filter));
        let mut request = BulkRequest {
            access,
            filter,
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
        let told = [Some(first), second].into_iter().flatten();
        let told = told.map(|step| {
            (
                step.matched,
                step.changed,
                step.next.map(|id| self.name(id)),
            )
        });
        Ok(format!("{:?}", told.collect::<Vec<_>>()))
    }

    async fn do_duty(&mut self, duty: &Duty) -> Answer {
        let store = Arc::clone(&self.fixture.store);
        match duty {
            Duty::StartNode { node } => self.start_node(*node).await.map(|()| "started".to_owned()),
            Duty::RetireNode { node } => {
                Ok(format!("{:?}", store.retire_node(self.node(*node)).await?))
            }
            Duty::DeclareOthersDead { node } => Ok(format!(
                "{:?}",
                store.declare_others_dead(self.node(*node)).await?
            )),
            Duty::HandBackStrays {
                node,
                forgotten,
                spans,
            } => {
                let known = self
                    .leases()
                    .iter()
                    .enumerate()
                    .filter(|(index, _)| index % 3 != usize::from(*forgotten));
                let held: Vec<Lease> = known.map(|(_, lease)| *lease).collect();
                let strays = store
                    .hand_back_strays(self.node(*node), &held, spans_and_a_half(*spans))
                    .await?;
                Ok(format!("{:?}", self.names(strays)))
            }
            Duty::Rescue { max_crashes, limit } => {
                let (max_crashes, limit) = (u32::from(*max_crashes), usize::from(*limit));
                let request = RescueRequest {
                    asker: None,
                    lease_ms: spans_and_a_half(1),
                    max_crashes,
                    limit,
                    keep_for_host_ms: 0,
                };
                let mut rescued = store.rescue_tasks(&request).await?;
                rescued.requeued.sort_unstable();
                rescued.quarantined.sort_unstable();
                Ok(format!(
                    "{:?} {:?}",
                    self.names(rescued.requeued),
                    self.names(rescued.quarantined)
                ))
            }
            Duty::Expire {
                silent,
                grace,
                limit,
            } => {
                let overdue = Overdue {
                    silent_ms: spans_and_a_half(*silent),
                    timeout_grace_ms: u64::from(*grace) * SPAN_MS,
                };
                let expired = store.expire_tasks(&overdue, usize::from(*limit)).await?;
                Ok(format!(
                    "{} expired: {:?}",
                    expired.ended,
                    self.moves(&expired.moved)
                ))
            }
            Duty::Take { node, spans } => {
                let lease = store
                    .take_duty("duty", self.node(*node), spans_and_a_half(*spans))
                    .await?;
                Ok(format!(
                    "{:?}",
                    lease.map(|lease| (
                        lease.node_id,
                        lease.epoch,
                        self.span_of(lease.leased_until)
                    ))
                ))
            }
            Duty::Prune { spans, limit } => self.prune(*spans, *limit).await,
            // All at once: which of the expired keys go first is the store's own affair.
            Duty::PruneKeys => Ok(format!(
                "{} keys",
                store.prune_idempotency_keys(MANY).await?
            )),
            // How many lines there are to fold is too.
            Duty::FoldTallies { limit } => store
                .fold_tallies(usize::from(*limit))
                .await
                .map(|_| "folded".to_owned()),
        }
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
        let (access, filter) = (access(filter.access), self.filter(filter));
        let first = self
            .fixture
            .store
            .list_tasks(&access, &filter, &page)
            .await?;
        page.after = first.next;
        let mut items = first.items;
        if first.next.is_some() {
            items.extend(
                self.fixture
                    .store
                    .list_tasks(&access, &filter, &page)
                    .await?
                    .items,
            );
        }
        Ok(format!(
            "{:?}",
            self.names(items.into_iter().map(|task| task.id))
        ))
    }
}

fn nothing() -> Answer {
    Ok("nothing to do".to_owned())
}

fn number(value: u8) -> Json {
    json(&value.to_string())
}

fn report(lease: Lease, ending: Ending) -> Option<Report> {
    let failure = Failure {
        class: "test".to_owned(),
        message: "it broke".to_owned(),
        detail: None,
    };
    let outcome = match ending {
        Ending::Completed => Outcome::Completed {
            result: Some(number(1)),
            result_url: None,
        },
        Ending::Fatal => Outcome::Failed {
            failure,
            retry_in_ms: None,
        },
        Ending::Retryable { spans } => Outcome::Failed {
            failure,
            retry_in_ms: Some(u64::from(spans) * SPAN_MS),
        },
        Ending::Snoozed { spans } => Outcome::Snoozed {
            reason: None,
            delay_ms: u64::from(spans) * SPAN_MS,
        },
        Ending::HandedBack => Outcome::HandedBack,
        Ending::Cancelled => Outcome::Cancelled,
        Ending::WithAnOlderAttempt => {
            let lease = Lease {
                attempt: lease.attempt - 1,
                ..lease
            };
            return Some(Report {
                lease,
                outcome: Outcome::Completed {
                    result: None,
                    result_url: None,
                },
            });
        }
    };
    Some(Report { lease, outcome })
}
