//! The link between a node and its store: a test can block calls on their way, count them and
//! refuse them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use longhaul_domain::StoreError;
use longhaul_testkit::reference::NodeWatch;
use tokio::sync::watch;

/// The two ways of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leg {
    /// To the store, before it has changed anything.
    Request,
    /// Back, after the change.
    Answer,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    /// Where calls of an operation wait until they are freed.
    blocked: BTreeSet<(&'static str, Leg)>,
    /// All calls so far, in order.
    passed: Vec<(&'static str, Leg)>,
}

impl State {
    fn count(&self, operation: &'static str, leg: Leg) -> usize {
        let is_it = |passed: &&(&'static str, Leg)| **passed == (operation, leg);
        self.passed.iter().filter(is_it).count()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Link(watch::Sender<State>);

impl Link {
    /// Lets all calls fail at once, or no longer.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.0.send_modify(|state| state.is_cut = is_cut);
    }

    /// Blocks the calls of an operation.
    pub(crate) fn hold(&self, operation: &'static str, leg: Leg) {
        self.0
            .send_modify(|state| state.blocked.extend([(operation, leg)]));
    }

    /// Lets the blocked calls of an operation go on.
    pub(crate) fn free(&self, operation: &'static str, leg: Leg) {
        self.0
            .send_modify(|state| state.blocked.retain(|blocked| *blocked != (operation, leg)));
    }

    /// How many calls of the operation there were.
    pub(crate) fn count(&self, operation: &'static str, leg: Leg) -> usize {
        self.0.borrow().count(operation, leg)
    }

    /// Waits until there were this many calls of the operation.
    pub(crate) async fn wait_for(&self, operation: &'static str, leg: Leg, times: usize) {
        let mut state = self.0.subscribe();
        let is_enough = |state: &State| state.count(operation, leg) >= times;
        state.wait_for(is_enough).await.map(drop).unwrap();
    }

    async fn pass(&self, operation: &'static str, leg: Leg) {
        self.0
            .send_modify(|state| state.passed.push((operation, leg)));

        let mut state = self.0.subscribe();
        let is_free = |state: &State| !state.blocked.contains(&(operation, leg));
        state.wait_for(is_free).await.map(drop).unwrap();
    }
}

#[async_trait]
impl NodeWatch for Link {
    async fn before(&self, operation: &'static str) -> Result<(), StoreError> {
        self.pass(operation, Leg::Request).await;
        match self.0.borrow().is_cut {
            true => Err(StoreError::Unavailable("the link is cut".to_owned())),
            false => Ok(()),
        }
    }

    async fn after(&self, operation: &'static str) {
        self.pass(operation, Leg::Answer).await;
    }
}
