//! Prune: what ended long ago goes, in batches; a child only with its parent.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{
    Task, TaskId,
    filter::{Page, Retention},
    lifecycle::prune,
};
use uuid::Uuid;

use super::read::id_floor;
use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record::{self, hex_list},
    row::Columns as _,
    session::{Operation, Session},
};

/// Lists what could be removed.
#[derive(Debug)]
pub(crate) struct ListPrunable {
    pub(crate) keep: Retention,
    pub(crate) after: Option<TaskId>,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListPrunable {
    type Output = Page<Task>;

    async fn run(&self, session: &mut dyn Session) -> Result<Page<Task>, Failure> {
        let micros = |ms: u64| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
        let shortest_ms = self.keep.ended_ms.min(self.keep.dead_letter_ms);
        let ceiling = id_floor(session.now().await?.minus_ms(shortest_ms), true);
        let params = [
            session.clock().into(),
            micros(self.keep.ended_ms).into(),
            micros(self.keep.dead_letter_ms).into(),
            self.after.map_or(Uuid::nil(), |id| id.0).into(),
            ceiling.into(),
            self.limit.into(),
        ];
        let rows = session.fetch(Statement::FindPrunable, &params).await?;
        let mut items = rows
            .iter()
            .map(record::task)
            .collect::<Result<Vec<_>, _>>()?;
        let next = items
            .last()
            .map(|task| task.id)
            .filter(|_| items.len() == self.limit);
        let parents: Vec<TaskId> = items
            .iter()
            .filter(|task| task.children.total > 0)
            .map(|task| task.id)
            .collect();
        let protected = roots_with_open_descendants(session, &parents).await?;
        items.retain(|task| !protected.contains(&task.id));
        Ok(Page { items, next })
    }
}

/// Removes tasks that are old enough, with all below them.
#[derive(Debug)]
pub(crate) struct PruneTasks {
    pub(crate) keep: Retention,
    pub(crate) ids: Vec<TaskId>,
}

#[async_trait]
impl Operation for PruneTasks {
    type Output = usize;

    async fn run(&self, session: &mut dyn Session) -> Result<usize, Failure> {
        let mut ledger = Ledger::default();
        ledger.lock(session, self.ids.iter().copied()).await?;
        let now = session.now().await?;
        let old = |id: &&TaskId| {
            ledger
                .get(**id)
                .is_some_and(|task| prune::decide(task, &self.keep, now).is_ok())
        };
        let roots: Vec<TaskId> = self.ids.iter().filter(old).copied().collect();
        let mut doomed: Vec<TaskId> = Vec::new();
        for root in roots {
            let tree = locked_tree(session, &mut ledger, root).await?;
            let open = tree
                .iter()
                .any(|id| ledger.get(*id).is_none_or(|task| !task.status.is_ended()));
            if !open {
                doomed.extend(tree);
            }
        }
        doomed.sort_unstable();
        doomed.dedup();
        if doomed.is_empty() {
            return Ok(0);
        }
        for id in &doomed {
            let task = ledger.get(*id).cloned();
            task.iter().for_each(|task| ledger.count_removed(task));
        }
        let list = hex_list(doomed.iter().copied());
        session
            .execute(Statement::DeleteAttempts, &[(&list).into()])
            .await?;
        session
            .execute(Statement::DeleteLogs, &[(&list).into()])
            .await?;
        let clock = session.clock();
        session
            .execute(Statement::ExpireArtifacts, &[clock.into(), (&list).into()])
            .await?;
        session
            .execute(Statement::DeleteCleanArtifacts, &[(&list).into()])
            .await?;
        session
            .execute(Statement::DeleteTasks, &[(&list).into()])
            .await?;
        ledger.save(session, now).await?;
        Ok(doomed.len())
    }
}

/// A root and everything below it, locked.
async fn locked_tree(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    root: TaskId,
) -> Result<Vec<TaskId>, Failure> {
    let mut tree = vec![root];
    let has_children = ledger.get(root).is_some_and(|task| task.children.total > 0);
    let mut level = if has_children { vec![root] } else { Vec::new() };
    while !level.is_empty() {
        let list = hex_list(level);
        let rows = session
            .fetch(Statement::FindChildren, &[(&list).into()])
            .await?;
        level = rows
            .iter()
            .map(|row| Ok(TaskId(row.must_id(0)?)))
            .collect::<Result<_, Failure>>()?;
        ledger.lock(session, level.iter().copied()).await?;
        tree.extend(&level);
    }
    Ok(tree)
}

/// Which of the roots have an open task somewhere below.
async fn roots_with_open_descendants(
    session: &mut dyn Session,
    roots: &[TaskId],
) -> Result<HashSet<TaskId>, Failure> {
    let mut protected = HashSet::new();
    let mut level: Vec<(TaskId, TaskId)> = roots.iter().map(|root| (*root, *root)).collect();
    while !level.is_empty() {
        let root_of: std::collections::HashMap<TaskId, TaskId> = level.iter().copied().collect();
        let list = hex_list(root_of.keys().copied());
        let mut below = Vec::new();
        for row in session
            .fetch(Statement::FindChildren, &[(&list).into()])
            .await?
        {
            let Some(root) = root_of.get(&TaskId(row.must_id(1)?)) else {
                continue;
            };
            if !record::status(&row, 2)?.is_ended() {
                protected.insert(*root);
            }
            below.push((TaskId(row.must_id(0)?), *root));
        }
        level = below;
    }
    Ok(protected)
}

/// Removes idempotency keys whose promise has run out.
#[derive(Debug)]
pub(crate) struct PruneIdempotencyKeys {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for PruneIdempotencyKeys {
    type Output = usize;

    async fn run(&self, session: &mut dyn Session) -> Result<usize, Failure> {
        let clock = session.clock();
        let removed = session
            .execute(
                Statement::PruneIdempotencyKeys,
                &[clock.into(), self.limit.into()],
            )
            .await?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}
