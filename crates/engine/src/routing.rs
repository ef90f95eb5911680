//! Which queue a task goes to when its submitter names none: by tier first, then by expected
//! duration.

use std::time::Duration;

use longhaul_domain::QueueName;

/// One rule. A condition that is `None` matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Only tasks of this tier.
    pub tier: Option<String>,
    /// Only tasks that are expected to take at most this long.
    pub at_most: Option<Duration>,
    /// The queue of tasks that match.
    pub queue: QueueName,
}

/// The rules; the first one that matches decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    pub rules: Vec<Rule>,
    /// The queue of all other tasks.
    pub otherwise: QueueName,
}

/// The default limit of a short task.
const SHORT: Duration = Duration::from_secs(60);

impl Default for Routing {
    fn default() -> Self {
        let rule = |tier: &str, at_most, queue: &str| Rule {
            tier: Some(tier.to_owned()),
            at_most,
            queue: known(queue),
        };

        Self {
            rules: vec![
                rule("enterprise", None, "enterprise_exclusive"),
                rule("vip", Some(SHORT), "vip_short"),
                rule("vip", None, "vip_long"),
            ],
            otherwise: known("free_default"),
        }
    }
}

#[expect(
    clippy::expect_used,
    reason = "the names of the default rules are valid"
)]
fn known(queue: &str) -> QueueName {
    QueueName::parse(queue).expect("a valid name")
}

impl Routing {
    /// Whether tasks of this tier may be submitted to the queue: a rule of the tier leads there, or
    /// no rule of another tier does.
    pub fn is_open_to(&self, tier: &str, queue: &str) -> bool {
        if self.otherwise == *queue {
            return true;
        }

        let to_queue = |rule: &&Rule| rule.queue == *queue;
        let is_own = |rule: &Rule| rule.tier.as_deref().is_none_or(|of| of == tier);
        let mut is_routed = false;
        for rule in self.rules.iter().filter(to_queue) {
            if is_own(rule) {
                return true;
            }
            is_routed = true;
        }

        !is_routed
    }

    /// The queue for a task of this tier and expected duration. An unknown duration counts as
    /// short.
    pub fn queue(&self, tier: Option<&str>, expected: Option<Duration>) -> &QueueName {
        let expected = expected.unwrap_or_default();
        for rule in &self.rules {
            let tier_matches = rule.tier.is_none() || rule.tier.as_deref() == tier;
            let duration_matches = rule.at_most.is_none_or(|most| expected <= most);
            if tier_matches && duration_matches {
                return &rule.queue;
            }
        }

        &self.otherwise
    }

    /// Every queue that the rules can choose.
    pub fn queues(&self) -> Vec<QueueName> {
        let mut names: Vec<QueueName> = self.rules.iter().map(|rule| rule.queue.clone()).collect();
        names.push(self.otherwise.clone());
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tier_decides_first_then_the_expected_duration() {
        let routing = Routing::default();
        let queue = |tier, expected| routing.queue(tier, expected).as_str();
        let minute = |n: u64| Some(Duration::from_secs(60 * n));
        assert_eq!(
            queue(Some("enterprise"), minute(100)),
            "enterprise_exclusive"
        );
        assert_eq!(queue(Some("vip"), minute(1)), "vip_short");
        assert_eq!(queue(Some("vip"), minute(2)), "vip_long");
        assert_eq!(queue(Some("vip"), None), "vip_short");

        assert_eq!(queue(Some("free"), None), "free_default");
        assert_eq!(queue(None, None), "free_default");
        assert_eq!(
            routing.queues(),
            [
                "enterprise_exclusive",
                "vip_short",
                "vip_long",
                "free_default"
            ]
        );
    }
}
