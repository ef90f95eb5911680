//! The line between a node and its store.

use std::collections::BTreeSet;

use async_trait::async_trait;
use longhaul_domain::StoreError;
use longhaul_testkit::reference::NodeWatch;
use tokio::sync::watch;

/// Where a call is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    There,
    Back,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    /// Where calls of an operation stop until it is freed.
    held: BTreeSet<(&'static str, Way)>,
    /// Everything that has come by, in its order.
    seen: Vec<(&'static str, Way)>,
}

/// Calls over it can be held, counted and refused.
#[derive(Debug, Default)]
pub(crate) struct Line(watch::Sender<State>);

impl Line {
    /// Calls fail at once, or no longer do.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.0.send_modify(|state| state.is_cut = is_cut);
    }

    pub(crate) fn hold(&self, operation: &'static str, way: Way) {
        self.0
            .send_modify(|state| state.held.extend([(operation, way)]));
    }

    pub(crate) fn free(&self, operation: &'static str, way: Way) {
        self.0
            .send_modify(|state| state.held.retain(|held| *held != (operation, way)));
    }

    /// How many calls of the operation have come by.
    pub(crate) fn count(&self, operation: &'static str, way: Way) -> usize {
        self.0
            .borrow()
            .seen
            .iter()
            .filter(|seen| **seen == (operation, way))
            .count()
    }

    /// Waits until so many calls of the operation have come by.
    pub(crate) async fn comes_by(&self, operation: &'static str, way: Way, times: usize) {
        let enough = |state: &State| {
            state
                .seen
                .iter()
                .filter(|seen| **seen == (operation, way))
                .count()
                >= times
        };

        self.0.subscribe().wait_for(enough).await.map(drop).unwrap();
    }

    async fn pass(&self, operation: &'static str, way: Way) {
        self.0
            .send_modify(|state| state.seen.push((operation, way)));
        self.0
            .subscribe()
            .wait_for(|state| !state.held.contains(&(operation, way)))
            .await
            .map(drop)
            .unwrap();
    }
}

#[async_trait]
impl NodeWatch for Line {
    async fn before(&self, operation: &'static str) -> Result<(), StoreError> {
        self.pass(operation, Way::There).await;
        match self.0.borrow().is_cut {
            true => Err(StoreError::Unavailable("the line is cut".to_owned())),
            false => Ok(()),
        }
    }

    async fn after(&self, operation: &'static str) {
        self.pass(operation, Way::Back).await;
    }
}
