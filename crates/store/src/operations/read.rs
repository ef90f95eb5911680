//! Reads: one task, pages of tasks, attempts, queues and nodes.
//!
//! A page merges a few index ranges, each in order of ids. The filter selects the ranges; the rest
//! of it is checked on the rows.

use std::collections::BTreeSet;

use async_trait::async_trait;
use longhaul_domain::{
    Attempt, Invalid, NodeRecord, QueueName, Status, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::Access,
    filter::{Page, PageRequest, SortOrder, TaskFilter},
    queue::Queue,
};
use serde::Serialize;
use uuid::Uuid;

use super::{check_access, check_limit, check_types, visible};
use crate::{
    catalog::Statement,
    record,
    row::{Columns as _, Param},
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// The most that an id's time may differ from its task's creation, in milliseconds. Ids are made by
/// the clocks of nodes.
const ID_SKEW_MS: u64 = 600_000;

/// One task that the caller may see.
#[derive(Debug)]
pub(crate) struct GetTask {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
}

#[async_trait]
impl Operation for GetTask {
    type Output = TaskRecord;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<TaskRecord, SqlError> {
        let rows = session
            .fetch(Statement::GetTask, &[self.id.0.into()])
            .await?;
        let task = rows.first().map(record::task).transpose()?;
        visible(task.as_ref(), &self.access).cloned()
    }
}

/// A page of the attempts of a task that the caller may see.
#[derive(Debug)]
pub(crate) struct ListAttempts {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
    pub(crate) after: u32,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListAttempts {
    type Output = Vec<Attempt>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::PAGE_SIZE + 1)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Attempt>, SqlError> {
        let task = GetTask {
            access: self.access.clone(),
            id: self.id,
        }
        .run(session)
        .await?;

        let page = [
            self.id.0.into(),
            i64::from(self.after).into(),
            self.limit.into(),
        ];

        let rows = session.fetch(Statement::ListAttempts, &page).await?;
        let mut attempts = rows
            .iter()
            .map(record::attempt)
            .collect::<Result<Vec<_>, _>>()?;

        // The history may hold the current attempt already. It is listed once.
        let is_new = |last: &Attempt| attempts.iter().all(|past| past.attempt != last.attempt);
        let told = Attempt::of_row(&task).filter(|last| last.attempt > self.after && is_new(last));
        if attempts.len() < self.limit {
            attempts.extend(told);
        }

        Ok(attempts)
    }
}

/// A page of the tasks that match.
#[derive(Debug)]
pub(crate) struct ListTasks {
    pub(crate) access: Access,
    pub(crate) filter: TaskFilter,
    pub(crate) page: PageRequest,
}

#[async_trait]
impl Operation for ListTasks {
    type Output = Page<TaskRecord>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        self.filter.check()?;
        self.page.check()?;
        check_access(&self.access)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Page<TaskRecord>, SqlError> {
        list_page(session, &self.access, &self.filter, &self.page).await
    }
}

/// The lowest id of a task made at `moment`, or the highest if `above`. Allows for clock skew.
pub(crate) fn id_floor(moment: Timestamp, above: bool) -> Uuid {
    let moment = if above {
        moment.plus_ms(ID_SKEW_MS)
    } else {
        moment.minus_ms(ID_SKEW_MS)
    };
    let millis = (moment.as_micros().max(0) / 1_000) as u128 & ((1 << 48) - 1);
    Uuid::from_u128((millis << 80) | if above { (1 << 80) - 1 } else { 0 })
}

/// A page of matching tasks, for use within a larger operation.
pub(crate) async fn list_page(
    session: &mut dyn Session,
    access: &Access,
    filter: &TaskFilter,
    page: &PageRequest,
) -> Result<Page<TaskRecord>, SqlError> {
    let owner = match access {
        Access::All => filter.owner.clone(),
        // The caller may not see tasks of other owners: the page is empty.
        Access::Owner(own) if filter.owner.as_ref().is_some_and(|owner| owner != own) => {
            return Ok(Page {
                items: Vec::new(),
                next: None,
            });
        }
        Access::Owner(own) => Some(own.clone()),
    };

    let narrowed = TaskFilter {
        owner,
        ..filter.clone()
    };
    let bound = Conditions::new(&narrowed)?;
    let mut items = Vec::new();

    for range in ranges(session, &narrowed).await? {
        items.extend(bound.read(session, &range, page).await?);
    }

    match page.order {
        SortOrder::NewestFirst => items.sort_by_key(|task| std::cmp::Reverse(task.id)),
        SortOrder::OldestFirst => items.sort_by_key(|task| task.id),
    }

    // A task that moved between two reads is in both results; keep one.
    items.dedup_by_key(|task| task.id);
    items.truncate(page.size);
    let next = match items.last() {
        Some(task) if items.len() == page.size => Some(task.id),
        Some(_) | None => None,
    };

    Ok(Page { items, next })
}

/// A stretch of one index.
enum Range {
    All,
    Parent,
    Key,
    Owner(String, Status),
    StatusAndType(Status, String),
}

/// The fewest ranges that hold every task the filter asks for.
///
/// An owner's tasks are indexed by status. Running tasks are few and are found across all owners.
/// Without an owner, tasks are indexed by status and type. Completed tasks are the most and are
/// read by id.
async fn ranges(session: &mut dyn Session, filter: &TaskFilter) -> Result<Vec<Range>, SqlError> {
    if filter.parent_id.is_some() {
        return Ok(vec![Range::Parent]);
    }
    if filter.task_key.is_some() {
        return Ok(vec![Range::Key]);
    }

    let named: BTreeSet<Status> = filter.statuses.iter().copied().collect();
    let wanted = if named.is_empty() {
        Status::ALL.into()
    } else {
        named
    };
    if filter.owner.is_none() && wanted.contains(&Status::Completed) {
        return Ok(vec![Range::All]);
    }

    let mut ranges = Vec::new();
    for status in wanted {
        match &filter.owner {
            Some(owner) if status != Status::Running => {
                ranges.push(Range::Owner(owner.clone(), status))
            }
            _ => {
                let types = types_of(session, filter).await?;
                ranges.extend(
                    types
                        .into_iter()
                        .map(|name| Range::StatusAndType(status, name)),
                );
            }
        }
    }

    Ok(ranges)
}

/// The types that the filter names, or all types.
async fn types_of(session: &mut dyn Session, filter: &TaskFilter) -> Result<Vec<String>, SqlError> {
    if !filter.task_types.is_empty() {
        let named: BTreeSet<&String> = filter.task_types.iter().collect();
        return Ok(named.into_iter().cloned().collect());
    }

    session
        .fetch(Statement::ListTypes, &[])
        .await?
        .iter()
        .map(|row| row.must_text(0))
        .collect()
}

/// The filter as statement parameters.
struct Conditions<'a> {
    filter: &'a TaskFilter,
    statuses: Option<String>,
    types: Option<String>,
    queues: Option<String>,
}

/// The names as a JSON parameter; `None` for no condition.
fn list<T: Serialize>(names: &[T]) -> Result<Option<String>, SqlError> {
    match names.is_empty() {
        true => Ok(None),
        false => Ok(Some(serde_json::to_string(names)?)),
    }
}

impl<'a> Conditions<'a> {
    fn new(filter: &'a TaskFilter) -> Result<Self, SqlError> {
        let statuses: Vec<String> = filter
            .statuses
            .iter()
            .map(|status| status.as_str().to_owned())
            .collect();

        Ok(Self {
            filter,
            statuses: list(&statuses)?,
            types: list(&filter.task_types)?,
            queues: list(&filter.queues)?,
        })
    }

    async fn read(
        &self,
        session: &mut dyn Session,
        range: &Range,
        page: &PageRequest,
    ) -> Result<Vec<TaskRecord>, SqlError> {
        let filter = self.filter;
        let micros =
            |moment: Option<Timestamp>, otherwise| moment.map_or(otherwise, Timestamp::as_micros);
        let (above, below) = self.id_bounds(page);

        let mut params: Vec<Param<'_>> = vec![
            Param::Text(filter.owner.as_deref()),
            Param::Text(self.statuses.as_deref()),
            Param::Text(self.types.as_deref()),
            Param::Text(self.queues.as_deref()),
            Param::Text(filter.task_key.as_deref()),
            Param::Id(filter.parent_id.map(|id| id.0)),
            micros(filter.created_after, 0).into(),
            micros(filter.created_before, i64::MAX).into(),
            micros(filter.due_after, 0).into(),
            micros(filter.due_before, i64::MAX).into(),
            above.into(),
            below.into(),
            page.size.into(),
        ];

        match range {
            Range::All | Range::Parent | Range::Key => {}
            Range::Owner(owner, status) => {
                params.extend([owner.into(), Param::from(status.as_str())])
            }
            Range::StatusAndType(status, name) => {
                params.extend([Param::from(status.as_str()), name.into()])
            }
        }

        let rows = session.fetch(statement(range, page.order), &params).await?;
        rows.iter().map(record::task).collect()
    }

    /// The ids that bound the page, both exclusive. Creation times narrow them.
    fn id_bounds(&self, page: &PageRequest) -> (Uuid, Uuid) {
        let lowest = self
            .filter
            .created_after
            .map_or(Uuid::nil(), |moment| id_floor(moment, false));
        let highest = self
            .filter
            .created_before
            .map_or(Uuid::max(), |moment| id_floor(moment, true));

        match (page.order, page.after) {
            (_, None) => (lowest, highest),
            (SortOrder::NewestFirst, Some(after)) => (lowest, highest.min(after.0)),
            (SortOrder::OldestFirst, Some(after)) => (lowest.max(after.0), highest),
        }
    }
}

fn statement(range: &Range, order: SortOrder) -> Statement {
    match (range, order) {
        (Range::All, SortOrder::NewestFirst) => Statement::ListAllNewest,
        (Range::All, SortOrder::OldestFirst) => Statement::ListAllOldest,
        (Range::Parent, SortOrder::NewestFirst) => Statement::ListByParentNewest,
        (Range::Parent, SortOrder::OldestFirst) => Statement::ListByParentOldest,
        (Range::Key, SortOrder::NewestFirst) => Statement::ListByKeyNewest,
        (Range::Key, SortOrder::OldestFirst) => Statement::ListByKeyOldest,
        (Range::Owner(..), SortOrder::NewestFirst) => Statement::ListByOwnerNewest,
        (Range::Owner(..), SortOrder::OldestFirst) => Statement::ListByOwnerOldest,
        (Range::StatusAndType(..), SortOrder::NewestFirst) => Statement::ListByStatusNewest,
        (Range::StatusAndType(..), SortOrder::OldestFirst) => Statement::ListByStatusOldest,
    }
}

/// All queues that ever had a task or were paused.
#[derive(Debug)]
pub(crate) struct ListQueues;

#[async_trait]
impl Operation for ListQueues {
    type Output = Vec<Queue>;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Queue>, SqlError> {
        let rows = session.fetch(Statement::ListQueues, &[]).await?;
        let queue = |row: &crate::row::SqlRow| {
            Ok(Queue {
                name: record::queue_name(row.must_str(0)?),
                paused_at: row.int(1)?.map(Timestamp::from_micros),
            })
        };

        rows.iter().map(queue).collect()
    }
}

/// All known nodes.
#[derive(Debug)]
pub(crate) struct ListNodes;

#[async_trait]
impl Operation for ListNodes {
    type Output = Vec<NodeRecord>;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<NodeRecord>, SqlError> {
        session
            .fetch(Statement::ListNodes, &[])
            .await?
            .iter()
            .map(record::node)
            .collect()
    }
}

/// When the next task of these queues and types is due.
#[derive(Debug)]
pub(crate) struct NextDueAt {
    pub(crate) queues: Vec<QueueName>,
    pub(crate) task_types: Vec<String>,
}

#[async_trait]
impl Operation for NextDueAt {
    type Output = Option<Timestamp>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_types(&self.task_types)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Option<Timestamp>, SqlError> {
        let queues = serde_json::to_string(&self.queues)?;
        let types = serde_json::to_string(&self.task_types)?;
        let rows = session
            .fetch(Statement::FindNextDue, &[(&queues).into(), (&types).into()])
            .await?;
        let due = rows.first().map(|row| row.int(0)).transpose()?.flatten();
        Ok(due.map(Timestamp::from_micros))
    }
}

/// How many tasks of its queue come before a task, up to a limit.
#[derive(Debug)]
pub(crate) struct CountAhead {
    pub(crate) queue: QueueName,
    pub(crate) priority: u8,
    pub(crate) due_at: Timestamp,
    pub(crate) id: TaskId,
    pub(crate) now: Timestamp,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for CountAhead {
    type Output = usize;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::COUNT)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
        let params = [
            self.queue.as_str().into(),
            i64::from(self.priority).into(),
            self.now.as_micros().into(),
            self.due_at.as_micros().into(),
            self.id.0.into(),
            self.limit.into(),
        ];

        count(&session.fetch(Statement::CountAhead, &params).await?)
    }
}

/// The single number of an answer.
pub(crate) fn count(rows: &[crate::row::SqlRow]) -> Result<usize, SqlError> {
    let number = rows
        .first()
        .map(|row| row.int(0))
        .transpose()?
        .flatten()
        .unwrap_or(0);
    Ok(usize::try_from(number).unwrap_or(0))
}

/// The store's time.
#[derive(Debug)]
pub(crate) struct Now;

#[async_trait]
impl Operation for Now {
    type Output = Timestamp;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Timestamp, SqlError> {
        session.now().await
    }
}
