//! Fair shares in which there was no task a moment ago. The claimer leaves them out for a while.

use std::time::Duration;

use tokio::time::Instant;

use crate::slots::Scope;

/// How long an empty fair share is not asked for again. Most queues are empty while one is full.
const REST: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct EmptyFairShares(Vec<(Scope, Instant)>);

impl EmptyFairShares {
    /// Adds the fair shares among these scopes.
    pub(super) fn add(&mut self, empty: &[Scope]) {
        let now = Instant::now();
        for scope in empty.iter().filter(|scope| scope.is_fair_share()) {
            self.0.push((scope.clone(), now));
        }
    }

    /// The others of these fair shares.
    pub(super) fn leave_out(&mut self, mut fair_shares: Vec<Scope>) -> Vec<Scope> {
        self.0.retain(|(_, at)| at.elapsed() < REST);
        fair_shares.retain(|fair_share| self.0.iter().all(|(scope, _)| scope != fair_share));
        fair_shares
    }
}

#[cfg(test)]
mod tests {
    use longhaul_testkit::names::queue_name;

    use super::*;
    use crate::{
        in_flight::InFlight,
        slots::{ServedQueue, SlotPlan, TypeSlots},
    };

    #[tokio::test(start_paused = true)]
    async fn an_empty_fair_share_is_left_out_for_a_while() {
        let queues = ["full", "empty"]
            .map(|name| ServedQueue::shared(queue_name(name)))
            .to_vec();
        let types = vec![TypeSlots {
            name: "t".to_owned(),
            at_most: None,
            resources: Vec::new(),
        }];
        let in_flight = InFlight::new(SlotPlan {
            total: 8,
            queues,
            types,
            ..SlotPlan::default()
        });

        let fair_shares = in_flight.open_fair_shares();
        let shared = in_flight.open_scopes();
        assert_eq!((fair_shares.len(), shared.len()), (2, 1));
        let mut empty = EmptyFairShares::default();
        empty.add(&[fair_shares[1].clone(), shared[0].clone()]);
        assert_eq!(empty.leave_out(fair_shares.clone()), fair_shares[..1]);
        assert_eq!(
            empty.leave_out(shared.clone()),
            shared,
            "only fair shares are left out"
        );

        tokio::time::advance(REST).await;
        assert_eq!(empty.leave_out(fair_shares.clone()), fair_shares);
    }
}
