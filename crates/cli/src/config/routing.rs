//! The sections `routing` and `limits`: which queue a task goes to, and how often providers may be
//! called.

use anyhow::Context as _;
use longhaul::{Invalid, Limit, LimitRules, QueueName, Routing, Rule, operating::WireDuration};

use super::{Config, keys::section};

/// The name under `limits` that is for keys without a limit of their own.
const DEFAULT_LIMIT: &str = "default";

section! {
    /// Which queue a task goes to.
    pub struct Routes with routing: Routing {
        /// Which queue a task goes to if its submitter names none. The first rule that fits
        /// decides; setting any rules replaces the default ones.
        pub rules: Vec<RoutingRule> = routing.rules.iter().map(RoutingRule::of).collect(),
        /// The queue of tasks that no rule fits.
        pub otherwise: String = routing.otherwise.to_string(),
    }
}

section! {
    /// A rule of the routing.
    #[derive(PartialEq, Eq)]
    pub struct RoutingRule {
        /// The rule is for tasks of this tier; without it, of any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tier: Option<String>,
        /// The rule is for tasks that are expected to take at most this long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at_most: Option<WireDuration>,
        /// The queue of these tasks.
        pub queue: String,
    }
}

section! {
    /// The rate limit of a provider or a model.
    #[derive(Copy, PartialEq, Eq)]
    pub struct LimitRule {
        /// Calls to a provider (`openai`) or one of its models (`"openai/gpt-4"`) in each period.
        /// `limits.default` is for keys without a limit of their own.
        pub rate: u32,
        /// How long a period is; by default one second.
        #[serde(default = "a_second")]
        pub per: WireDuration,
        /// Calls that an idle key saves up and that may then come at once; by default 1.
        #[serde(default = "one")]
        pub burst: u32,
    }
}

const fn a_second() -> WireDuration {
    WireDuration::from_millis(1_000)
}

const fn one() -> u32 {
    1
}

impl RoutingRule {
    fn of(rule: &Rule) -> Self {
        Self {
            tier: rule.tier.clone(),
            at_most: rule.at_most.map(WireDuration),
            queue: rule.queue.to_string(),
        }
    }

    fn rule(&self) -> Result<Rule, Invalid> {
        Ok(Rule {
            tier: self.tier.clone(),
            at_most: self.at_most.map(|most| most.0),
            queue: QueueName::parse(&self.queue)?,
        })
    }
}

impl LimitRule {
    fn limit(self) -> Limit {
        Limit {
            permits: self.rate,
            per_ms: self.per.as_millis(),
            burst: self.burst,
        }
    }
}

impl Config {
    pub fn routing(&self) -> anyhow::Result<Routing> {
        let rules: Result<_, Invalid> = self.routing.rules.iter().map(RoutingRule::rule).collect();
        Ok(Routing {
            rules: rules.context("routing")?,
            otherwise: QueueName::parse(&self.routing.otherwise).context("routing")?,
        })
    }

    /// Every queue that the configuration names.
    pub fn queues(&self) -> Vec<String> {
        let rules = self.routing.rules.iter();
        let mut queues: Vec<String> = rules.map(|rule| rule.queue.clone()).collect();
        queues.push(self.routing.otherwise.clone());
        queues.dedup();
        queues.extend(self.worker.queues.keys().cloned());
        queues
    }

    pub fn limit_rules(&self) -> LimitRules {
        let mut limits = LimitRules::default();
        for (name, rule) in &self.limits {
            if name == DEFAULT_LIMIT {
                limits.default = Some(rule.limit());
            } else {
                limits.limits.insert(name.clone(), rule.limit());
            }
        }

        limits
    }

    pub(super) fn check_routing(&self) -> anyhow::Result<()> {
        self.routing().map(drop)
    }

    pub(super) fn check_limits(&self) -> anyhow::Result<()> {
        self.limit_rules().check().context("limits")
    }
}
