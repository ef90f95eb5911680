//! Prune: removes tasks that ended long ago, in batches. Children only go with their parent.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, TaskId, TaskRecord, bounds,
    filter::{Page, Retention},
    lifecycle::prune,
};
use uuid::Uuid;

use super::{check_limit, read::id_floor};
use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    record::{self, hex_list},
    row::Columns as _,
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// Lists tasks that could be removed.
#[derive(Debug)]
pub(crate) struct ListPrunable {
    pub(crate) keep: Retention,
    pub(crate) after: Option<TaskId>,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListPrunable {
    type Output = Page<TaskRecord>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Page<TaskRecord>, SqlError> {
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
        let next = match items.last() {
            Some(task) if items.len() == self.limit => Some(task.id),
            Some(_) | None => None,
        };

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

/// Removes tasks that are old enough, with their descendants.
#[derive(Debug)]
pub(crate) struct PruneTasks {
    pub(crate) keep: Retention,
    pub(crate) ids: Vec<TaskId>,
}

#[async_trait]
impl Operation for PruneTasks {
    type Output = usize;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("ids", self.ids.len(), bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
        let mut effects = TransactionEffects::default();
        // Locked, so that no retry reopens a root after the decision.
        effects.lock(session, self.ids.iter().copied()).await?;
        let now = session.now().await?;

        let old = |id: &&TaskId| {
            effects
                .get(**id)
                .is_some_and(|task| prune::decide(task, &self.keep, now).is_ok())
        };
        let roots: Vec<TaskId> = self.ids.iter().filter(old).copied().collect();

        let mut doomed: Vec<TaskId> = Vec::new();
        for root in roots {
            let tree = locked_tree(session, &mut effects, root).await?;
            let open = tree
                .iter()
                .any(|id| effects.get(*id).is_none_or(|task| !task.status.is_ended()));
            if !open {
                doomed.extend(tree);
            }
        }

        // Trees may overlap: each task is removed once.
        doomed.sort_unstable();
        doomed.dedup();
        if doomed.is_empty() {
            return Ok(0);
        }

        for id in &doomed {
            let task = effects.get(*id).cloned();
            task.iter().for_each(|task| effects.count_removed(task));
        }

        // Attempts and logs go before their tasks.
        let list = hex_list(doomed.iter().copied());
        session
            .execute(Statement::DeleteAttempts, &[(&list).into()])
            .await?;
        session
            .execute(Statement::DeleteLogs, &[(&list).into()])
            .await?;
        let clock = session.clock();

        // The row of a file stays until the file is deleted. What still has a file is swept next.
        session
            .execute(Statement::ExpireArtifacts, &[clock.into(), (&list).into()])
            .await?;
        session
            .execute(Statement::DeleteCleanArtifacts, &[(&list).into()])
            .await?;
        session
            .execute(Statement::DeleteTasks, &[(&list).into()])
            .await?;

        effects.save(session, now).await?;
        Ok(doomed.len())
    }
}

/// Locks a root and all its descendants.
async fn locked_tree(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    root: TaskId,
) -> Result<Vec<TaskId>, SqlError> {
    let mut tree = vec![root];
    let has_children = effects
        .get(root)
        .is_some_and(|task| task.children.total > 0);
    let mut level = if has_children { vec![root] } else { Vec::new() };

    while !level.is_empty() {
        let list = hex_list(level);
        let rows = session
            .fetch(Statement::FindChildren, &[(&list).into()])
            .await?;
        level = rows
            .iter()
            .map(|row| Ok(TaskId(row.must_id(0)?)))
            .collect::<Result<_, SqlError>>()?;
        // Locked, so that no retry reopens a descendant before the delete.
        effects.lock(session, level.iter().copied()).await?;

        tree.extend(&level);
    }

    Ok(tree)
}

/// The roots that have an open descendant.
async fn roots_with_open_descendants(
    session: &mut dyn Session,
    roots: &[TaskId],
) -> Result<HashSet<TaskId>, SqlError> {
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

/// Removes expired idempotency keys.
#[derive(Debug)]
pub(crate) struct PruneIdempotencyKeys {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for PruneIdempotencyKeys {
    type Output = usize;
    const MODE: Mode = Mode::OneStatement;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
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
