//! Which changes of which tasks are published to the broker. It is consulted on every change, so
//! the common case, none, is one comparison.

use std::{collections::HashSet, sync::Arc};

use super::EventKind;
use crate::{bounds, error::Invalid};

/// Rules of one selection: what a person writes and reads.
const RULES: usize = 100;
/// Types in one rule.
const TYPES: usize = 1_000;

/// Some events of some types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventRule {
    /// The types; empty for all.
    pub task_types: Vec<String>,
    /// The events; empty for all that can be published.
    pub events: Vec<EventKind>,
}

/// The events that at least one of some rules names. Without rules, none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventSelection(Option<Arc<[SelectedTypes; EventKind::ALL.len()]>>);

/// The types for which events of one kind are selected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SelectedTypes {
    all: bool,
    names: HashSet<String>,
}

impl EventSelection {
    pub fn new(rules: &[EventRule]) -> Result<Self, Invalid> {
        bounds::check_batch("events.external", rules.len(), RULES)?;
        let all_events: Vec<EventKind> = EventKind::external().collect();
        let mut by_kind: [SelectedTypes; EventKind::ALL.len()] = Default::default();

        for rule in rules {
            check_rule(rule, &all_events)?;
            let events = if rule.events.is_empty() {
                &all_events
            } else {
                &rule.events
            };
            for kind in events {
                by_kind[*kind as usize].add(&rule.task_types);
            }
        }

        Ok(Self((!rules.is_empty()).then(|| Arc::new(by_kind))))
    }

    /// Every event of every type.
    pub fn everything() -> Self {
        let mut by_kind: [SelectedTypes; EventKind::ALL.len()] = Default::default();
        for kind in EventKind::external() {
            by_kind[kind as usize].all = true;
        }

        Self(Some(Arc::new(by_kind)))
    }

    /// Whether no event is selected at all.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this event is selected for tasks of this type.
    pub fn selects(&self, event: EventKind, task_type: &str) -> bool {
        let Some(by_kind) = &self.0 else {
            return false;
        };
        let types = &by_kind[event as usize];
        types.all || types.names.contains(task_type)
    }

    /// Whether this event is selected for tasks of any type.
    pub fn selects_some(&self, event: EventKind) -> bool {
        let Some(by_kind) = &self.0 else {
            return false;
        };
        let types = &by_kind[event as usize];
        types.all || !types.names.is_empty()
    }
}

impl SelectedTypes {
    fn add(&mut self, task_types: &[String]) {
        self.all |= task_types.is_empty();
        self.names.extend(task_types.iter().cloned());
    }
}

fn check_rule(rule: &EventRule, allowed: &[EventKind]) -> Result<(), Invalid> {
    bounds::check_batch("events.external.types", rule.task_types.len(), TYPES)?;
    for name in &rule.task_types {
        bounds::check_label("events.external.types", name)?;
    }

    let Some(kind) = rule.events.iter().find(|kind| !allowed.contains(kind)) else {
        return Ok(());
    };
    let names: Vec<_> = allowed.iter().map(|kind| kind.as_str()).collect();
    Err(Invalid::new(
        "events.external.events",
        format!("names {}, which is for live listeners only", kind.as_str()),
        names.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(task_types: &[&str], events: &[EventKind]) -> EventRule {
        EventRule {
            task_types: task_types.iter().map(|name| (*name).to_owned()).collect(),
            events: events.to_vec(),
        }
    }

    #[test]
    fn rules_add_up_and_an_empty_list_means_all() {
        let rules = [
            rule(&["mail"], &[EventKind::Completed, EventKind::Failed]),
            rule(&[], &[EventKind::Failed]),
        ];
        let selection = EventSelection::new(&rules).unwrap();

        assert!(
            selection.selects(EventKind::Completed, "mail")
                && selection.selects(EventKind::Failed, "other")
        );
        assert!(
            !selection.selects(EventKind::Completed, "other")
                && !selection.selects(EventKind::Started, "mail")
        );
        assert!(
            selection.selects_some(EventKind::Completed)
                && !selection.selects_some(EventKind::Started)
        );

        let all_of_mail = EventSelection::new(&[rule(&["mail"], &[])]).unwrap();
        assert!(
            all_of_mail.selects(EventKind::Started, "mail")
                && !all_of_mail.selects(EventKind::Started, "x")
        );
    }

    #[test]
    fn without_rules_nothing_is_selected() {
        let nothing = EventSelection::new(&[]).unwrap();
        assert_eq!(nothing, EventSelection::default());
        assert!(nothing.is_empty() && !EventSelection::everything().is_empty());
        assert!(
            !EventKind::ALL
                .into_iter()
                .any(|kind| nothing.selects_some(kind))
        );
    }

    #[test]
    fn progress_cannot_be_published() {
        let refused = EventSelection::new(&[rule(&[], &[EventKind::Failed, EventKind::Progress])])
            .unwrap_err();
        assert_eq!(refused.field, "events.external.events");
        let message = refused.to_string();
        assert!(
            message.contains("names progress")
                && message.contains("submitted, started, waiting, requeued"),
            "{message}"
        );

        for all in [
            EventSelection::everything(),
            EventSelection::new(&[rule(&[], &[])]).unwrap(),
        ] {
            let selected: Vec<_> = EventKind::ALL
                .into_iter()
                .filter(|kind| all.selects(*kind, "mail"))
                .collect();
            assert_eq!(selected, EventKind::external().collect::<Vec<_>>());
            assert!(selected.len() == 10 && !all.selects_some(EventKind::Progress));
        }
    }

    #[test]
    fn an_invalid_type_name_is_refused() {
        let refused = EventSelection::new(&[rule(&["a type"], &[])]).unwrap_err();
        assert_eq!(refused.field, "events.external.types");
    }
}
