//! Which queue a task goes to when its submitter names none: by tier first, then by expected duration (R13).

use std::time::Duration;

/// One rule. What it leaves open matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Matches tasks of this tier.
    pub tier: Option<String>,
    /// Matches tasks that are expected to take at most this long.
    pub at_most: Option<Duration>,
    /// Where what matches goes.
    pub queue: String,
}

/// The rules in their order; the first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// Tried in this order.
    pub rules: Vec<Rule>,
    /// Where everything else goes.
    pub otherwise: String,
}

/// What counts as short when nobody says otherwise.
const SHORT: Duration = Duration::from_secs(60);

impl Default for Routing {
    fn default() -> Self {
        let rule = |tier: &str, at_most, queue: &str| Rule {
            tier: Some(tier.to_owned()),
            at_most,
            queue: queue.to_owned(),
        };
        Self {
            rules: vec![
                rule("enterprise", None, "enterprise_exclusive"),
                rule("vip", Some(SHORT), "vip_short"),
                rule("vip", None, "vip_long"),
            ],
            otherwise: "free_default".to_owned(),
        }
    }
}

impl Routing {
    /// Whether tasks of this tier may be in the queue: it is one that their own rules lead to, or that no rule keeps for
    /// another tier.
    pub fn is_open_to(&self, tier: &str, queue: &str) -> bool {
        let leads_there = |is_wanted: &dyn Fn(Option<&str>) -> bool| {
            self.rules
                .iter()
                .any(|rule| rule.queue == queue && is_wanted(rule.tier.as_deref()))
        };
        let is_own = self.otherwise == queue || leads_there(&|of| of.is_none_or(|of| of == tier));
        is_own || !leads_there(&|of| of.is_some_and(|of| of != tier))
    }

    /// The queue for a task of this tier that is expected to take so long. What nobody knows counts as short.
    pub fn queue(&self, tier: Option<&str>, expected: Option<Duration>) -> &str {
        let fits = |rule: &&Rule| {
            let tier_fits = rule
                .tier
                .as_deref()
                .is_none_or(|wanted| tier == Some(wanted));
            tier_fits
                && rule
                    .at_most
                    .is_none_or(|most| expected.unwrap_or_default() <= most)
        };
        self.rules
            .iter()
            .find(fits)
            .map_or(&self.otherwise, |rule| &rule.queue)
    }

    /// Every queue that a task can be sent to.
    pub fn queues(&self) -> Vec<String> {
        let mut names: Vec<String> = self.rules.iter().map(|rule| rule.queue.clone()).collect();
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
        let minute = |n: u64| Some(Duration::from_secs(60 * n));
        assert_eq!(
            routing.queue(Some("enterprise"), minute(100)),
            "enterprise_exclusive"
        );
        assert_eq!(routing.queue(Some("vip"), minute(1)), "vip_short");
        assert_eq!(routing.queue(Some("vip"), minute(2)), "vip_long");
        assert_eq!(routing.queue(Some("vip"), None), "vip_short");
        assert_eq!(routing.queue(Some("free"), None), "free_default");
        assert_eq!(routing.queue(None, None), "free_default");
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
