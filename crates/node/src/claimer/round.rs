//! One round of claims: a claim for each scope, and what they found together.

use std::sync::Arc;

use longhaul_domain::StoreError;

use crate::{
    admission::{ClaimFor, ScopeClaim},
    claimed::ClaimedTasks,
    node::Node,
    slots::Scope,
};

/// What the claims of one round found.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) claimed: usize,
    /// Some scope returned as many tasks as were asked for: the store may have more.
    pub(super) may_have_more: bool,
    /// Scopes in which no task is left.
    emptied: Vec<Scope>,
    /// Those of them in which there was none before the claim, either.
    pub(super) empty: Vec<Scope>,
    /// Some scope was not asked for, because no slot was left.
    pub(super) has_skipped: bool,
}

impl Round {
    fn add(&mut self, scope: &Scope, claim: Option<ScopeClaim>) {
        let Some(ScopeClaim { asked_for, claimed }) = claim else {
            self.has_skipped = true;
            return;
        };

        self.claimed += claimed;
        if claimed == 0 {
            self.empty.push(scope.clone());
        }
        if claimed == asked_for {
            self.may_have_more = true;
        } else {
            self.emptied.push(scope.clone());
        }
    }

    /// Whether no task of this queue and type is left.
    pub(super) fn settles(&self, queue: &str, task_type: &str) -> bool {
        self.emptied
            .iter()
            .any(|scope| scope.serves(queue, task_type))
    }
}

/// Claims as many tasks as there are free slots in each scope, and adds them to the batch.
pub(crate) async fn claim_scopes(
    node: &Arc<Node>,
    scopes: &[Scope],
    batch: &mut ClaimedTasks,
) -> Result<Round, StoreError> {
    let mut round = Round::default();
    for scope in scopes {
        let claim = node.claim_scope(scope, ClaimFor::AnyHost, batch).await?;
        round.add(scope, claim);
    }

    Ok(round)
}
