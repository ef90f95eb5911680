//! The section `events`: what other systems receive over the broker.

use anyhow::{Context as _, ensure};
use longhaul::{EventKind, EventRule, EventSelection};

use super::{Config, keys::section};

section! {
    /// Events for other systems.
    #[derive(PartialEq, Eq)]
    pub struct Events {
        /// Which events are published for other systems, as CloudEvents on the broker's exchange
        /// `tasks.events.exchange`. A rule selects events of task types; without rules none are
        /// published.
        pub external: Vec<ExternalEvents> = Vec::new(),
    }
}

section! {
    /// Some events of some types.
    #[derive(PartialEq, Eq)]
    pub struct ExternalEvents {
        /// The task types whose events are published; all types if empty.
        pub types: Vec<String> = Vec::new(),
        /// The events to publish, such as `completed` and `failed`; all events if empty.
        pub events: Vec<String> = Vec::new(),
    }
}

impl ExternalEvents {
    fn rule(&self) -> anyhow::Result<EventRule> {
        let events = self.events.iter().map(|name| parse_event(name));

        Ok(EventRule {
            task_types: self.types.clone(),
            events: events.collect::<anyhow::Result<_>>()?,
        })
    }
}

fn parse_event(name: &str) -> anyhow::Result<EventKind> {
    EventKind::parse(name).with_context(|| {
        let known: Vec<_> = EventKind::external().map(EventKind::as_str).collect();
        format!(
            "events.external names {name:?}; allowed: {}",
            known.join(", ")
        )
    })
}

impl Config {
    /// The events that are published for other systems.
    pub fn external_events(&self) -> anyhow::Result<Vec<EventRule>> {
        let rules = self.events.external.iter().map(ExternalEvents::rule);
        let rules: Vec<EventRule> = rules.collect::<anyhow::Result<_>>()?;

        EventSelection::new(&rules)?;
        Ok(rules)
    }

    pub(super) fn check_events(&self) -> anyhow::Result<()> {
        let has_events = !self.external_events()?.is_empty();
        ensure!(
            self.broker.is_rabbitmq() || !has_events,
            "events.external needs a broker, and broker.url is {}; allowed: \
             amqp://user:password@host/vhost, amqps://…",
            self.broker.url
        );

        Ok(())
    }
}
