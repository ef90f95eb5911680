//! Which changes of which tasks are told to the world. Asked with every change, so the common answer, none, is one look.

use std::{collections::HashSet, sync::Arc};

use crate::{bounds, error::Invalid, event::EventKind};

/// Rules of one selection: what a person writes and reads.
const RULES: usize = 100;
/// Types in one rule.
const TYPES: usize = 1_000;

/// Some events of some types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventRule {
    /// Of these types; of all when there is none.
    pub task_types: Vec<String>,
    /// These events; all that the world can be told when there is none.
    pub events: Vec<EventKind>,
}

/// The events that at least one of some rules names. Without rules, none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventSelection(Option<Arc<[Kind; EventKind::ALL.len()]>>);

/// Whose events of one kind are selected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Kind {
    of_all_types: bool,
    of_types: HashSet<String>,
}

impl EventSelection {
    pub fn new(rules: &[EventRule]) -> Result<Self, Invalid> {
        bounds::check_batch("events.external", rules.len(), RULES)?;
        let mut kinds: [Kind; EventKind::ALL.len()] = Default::default();
        for rule in rules {
            bounds::check_batch("events.external.types", rule.task_types.len(), TYPES)?;
            rule.task_types
                .iter()
                .try_for_each(|name| bounds::check_label("events.external.types", name))?;
            if let Some(kind) = rule
                .events
                .iter()
                .find(|kind| EventKind::external().all(|known| known != **kind))
            {
                let allowed: Vec<_> = EventKind::external().map(EventKind::as_str).collect();
                let found = format!(
                    "names {}, which only live listeners are told",
                    kind.as_str()
                );
                return Err(Invalid::new(
                    "events.external.events",
                    found,
                    allowed.join(", "),
                ));
            }
            let all: Vec<_> = EventKind::external().collect();
            for kind in if rule.events.is_empty() {
                &all
            } else {
                &rule.events
            } {
                kinds[*kind as usize].add(&rule.task_types);
            }
        }
        Ok(Self((!rules.is_empty()).then(|| Arc::new(kinds))))
    }

    /// Every event of every type.
    pub fn everything() -> Self {
        let mut kinds: [Kind; EventKind::ALL.len()] = Default::default();
        EventKind::external().for_each(|kind| kinds[kind as usize].of_all_types = true);
        Self(Some(Arc::new(kinds)))
    }

    /// Whether no event is selected at all.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the event of a task of this type is selected.
    pub fn selects(&self, event: EventKind, task_type: &str) -> bool {
        self.0.as_ref().is_some_and(|kinds| {
            let kind = &kinds[event as usize];
            kind.of_all_types || kind.of_types.contains(task_type)
        })
    }

    /// Whether the event is selected for tasks of any type.
    pub fn selects_some(&self, event: EventKind) -> bool {
        self.0.as_ref().is_some_and(|kinds| {
            let kind = &kinds[event as usize];
            kind.of_all_types || !kind.of_types.is_empty()
        })
    }
}

impl Kind {
    fn add(&mut self, task_types: &[String]) {
        self.of_all_types |= task_types.is_empty();
        self.of_types.extend(task_types.iter().cloned());
    }
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
    fn kinds_stand_where_their_numbers_say() {
        for (index, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(EventKind::parse(kind.as_str()), Some(kind));
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
    fn nothing_is_selected_without_rules() {
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
    fn progress_is_never_told() {
        let refused = EventSelection::new(&[rule(&[], &[EventKind::Failed, EventKind::Progress])])
            .unwrap_err();
        assert_eq!(refused.field, "events.external.events");
        let told = refused.to_string();
        assert!(
            told.contains("names progress")
                && told.contains("submitted, started, waiting, requeued"),
            "{told}"
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
    fn types_that_no_task_has_are_refused() {
        let refused = EventSelection::new(&[rule(&["a type"], &[])]).unwrap_err();
        assert_eq!(refused.field, "events.external.types");
    }
}
