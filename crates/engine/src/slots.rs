//! Slots: how many tasks of which queue and type a node may take now (R13, R21).
//!
//! A queue may have slots of its own that nobody else gets; all share the rest. While tasks wait, each queue is first asked
//! for its portion of what is shared, so that a flood in one does not hold up the others (one that had nothing, not again at
//! once); what they do not use is anybody's. Types and named resources may have limits. A node therefore asks in scopes: most nodes have one, "all queues, all types"; what has a limit of its own
//! is asked for by itself, so that an answer can never be more than there is room for.

use std::collections::HashMap;

use longhaul_domain::Task;

/// What a node offers to one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSlots {
    /// The name of the queue.
    pub name: String,
    /// Slots that only this queue gets.
    pub reserved: usize,
    /// The most that it gets at once, its own and shared ones together.
    pub at_most: Option<usize>,
    /// How large its portion of the shared slots is beside those of the other queues, while all have tasks that wait.
    pub share: usize,
}

impl QueueSlots {
    /// A queue that only shares.
    pub fn shared(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            reserved: 0,
            at_most: None,
            share: 1,
        }
    }
}

/// What a type asks of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeSlots {
    pub name: String,
    pub at_most: Option<usize>,
    /// Named resources that each running task of this type uses one of.
    pub resources: Vec<String>,
}

/// The whole offer of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotPlan {
    pub total: usize,
    pub queues: Vec<QueueSlots>,
    pub types: Vec<TypeSlots>,
    /// How many tasks of this node may use a resource at once.
    pub resources: HashMap<String, usize>,
}

/// One way to ask for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub queues: Vec<String>,
    pub task_types: Vec<String>,
    kind: ScopeKind,
}

/// Which slots a scope is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    /// A queue's own.
    Own,
    /// A queue's portion of the shared ones.
    Portion,
    /// All that are shared.
    Shared,
}

impl Scope {
    /// Whether it asks for one queue's portion.
    pub fn is_portion(&self) -> bool {
        self.kind == ScopeKind::Portion
    }

    /// Whether tasks of this queue and type belong to it.
    pub fn serves(&self, queue: &str, task_type: &str) -> bool {
        self.queues.iter().any(|name| name == queue)
            && self.task_types.iter().any(|name| name == task_type)
    }
}

/// The plan and what runs now.
#[derive(Debug, Clone)]
pub struct Slots {
    plan: SlotPlan,
    scopes: Vec<Scope>,
    portions: Vec<Scope>,
    by_queue: HashMap<String, usize>,
    by_type: HashMap<String, usize>,
}

impl Slots {
    pub fn new(plan: SlotPlan) -> Self {
        let (scopes, portions) = (scopes(&plan), portions(&plan));
        Self {
            scopes,
            portions,
            plan,
            by_queue: HashMap::new(),
            by_type: HashMap::new(),
        }
    }

    /// The ways to ask while tasks wait, before all others: each queue for its portion, those that have the least of theirs
    /// first. Nothing where there is one queue.
    pub fn portions(&self) -> Vec<&Scope> {
        let mut portions: Vec<&Scope> = self.portions.iter().collect();
        let used = |scope: &&Scope| {
            let queue = self
                .plan
                .queues
                .iter()
                .find(|queue| scope.queues.contains(&queue.name));
            // In millionths: what is used for each share.
            queue.map_or(0, |queue| {
                self.shared_by(queue) * 1_000_000 / queue.share.max(1)
            })
        };
        portions.sort_by_key(used);
        portions
    }

    /// The ways to ask, in the order in which they should be tried.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    pub fn take(&mut self, task: &Task) {
        self.occupy(&task.queue, &task.task_type);
    }

    /// Takes a slot, whether or not there is one.
    pub fn occupy(&mut self, queue: &str, task_type: &str) {
        for (counts, name) in [(&mut self.by_queue, queue), (&mut self.by_type, task_type)] {
            match counts.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = counts.insert(name.to_owned(), 1),
            }
        }
    }

    /// Takes a slot for a task of this queue and type that is yet to be claimed, if there is one.
    pub fn hold(&mut self, queue: &str, task_type: &str) -> bool {
        let has_room = self.has_room(queue, task_type) == Some(true);
        if has_room {
            self.occupy(queue, task_type);
        }
        has_room
    }

    pub fn free(&mut self, queue: &str, task_type: &str) {
        for (counts, name) in [(&mut self.by_queue, queue), (&mut self.by_type, task_type)] {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Tasks that run now.
    pub fn running(&self) -> usize {
        self.by_queue.values().sum()
    }

    /// The most that run at once.
    pub const fn total(&self) -> usize {
        self.plan.total
    }

    /// Whether there is a slot for a task of this queue and type; `None` when they are not served.
    pub fn has_room(&self, queue: &str, task_type: &str) -> Option<bool> {
        let mut serving = self
            .scopes
            .iter()
            .filter(|scope| scope.serves(queue, task_type))
            .peekable();
        serving.peek()?;
        Some(serving.any(|scope| self.room(scope) > 0))
    }

    /// How many tasks of this queue could start now, if they are of types that nothing else limits.
    pub fn room_in_queue(&self, queue: &str) -> usize {
        let most = |kind: ScopeKind| {
            let of_queue = |scope: &&Scope| {
                scope.kind == kind && scope.queues.iter().any(|name| name == queue)
            };
            self.scopes
                .iter()
                .filter(of_queue)
                .map(|scope| self.room(scope))
                .max()
                .unwrap_or(0)
        };
        most(ScopeKind::Own) + most(ScopeKind::Shared)
    }

    /// Whether the queue has all of its portion: others that wait go first.
    pub fn has_its_portion(&self, queue: &str) -> bool {
        self.own_room(&[queue.to_owned()]) == 0 && self.portion_room(&[queue.to_owned()]) == 0
    }

    /// The names of the queues that are served.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.plan.queues.iter().map(|queue| queue.name.as_str())
    }

    /// The names of the types that are served.
    pub fn task_types(&self) -> impl Iterator<Item = &str> {
        self.plan.types.iter().map(|kind| kind.name.as_str())
    }

    /// How many tasks may be asked for in `scope` now.
    pub fn room(&self, scope: &Scope) -> usize {
        let in_queues = match scope.kind {
            ScopeKind::Own => self.own_room(&scope.queues),
            ScopeKind::Portion => self
                .shared_room(&scope.queues)
                .min(self.portion_room(&scope.queues)),
            ScopeKind::Shared => self.shared_room(&scope.queues),
        };
        let in_types = scope
            .task_types
            .iter()
            .filter_map(|name| self.type_room(name))
            .min();
        in_types.map_or(in_queues, |room| room.min(in_queues))
    }

    fn in_queue(&self, name: &str) -> usize {
        self.by_queue.get(name).copied().unwrap_or(0)
    }

    fn own_room(&self, queues: &[String]) -> usize {
        let own = |queue: &&QueueSlots| queues.contains(&queue.name);
        self.plan
            .queues
            .iter()
            .filter(own)
            .map(|queue| queue.reserved.saturating_sub(self.in_queue(&queue.name)))
            .sum()
    }

    /// Shared slots that the queue uses.
    fn shared_by(&self, queue: &QueueSlots) -> usize {
        self.in_queue(&queue.name).saturating_sub(queue.reserved)
    }

    /// Slots that no queue has for itself.
    fn all_shared(&self) -> usize {
        self.plan
            .total
            .saturating_sub(self.plan.queues.iter().map(|queue| queue.reserved).sum())
    }

    /// What is left of the portions of these queues. A portion is one slot at least: a queue that gets nothing would wait
    /// for ever.
    fn portion_room(&self, queues: &[String]) -> usize {
        let shares: usize = self.plan.queues.iter().map(|queue| queue.share).sum();
        let left = |queue: &QueueSlots| {
            let portion = (self.all_shared() * queue.share / shares.max(1)).max(1);
            portion.saturating_sub(self.shared_by(queue))
        };
        self.plan
            .queues
            .iter()
            .filter(|queue| queues.contains(&queue.name))
            .map(left)
            .sum()
    }

    fn shared_room(&self, queues: &[String]) -> usize {
        let used: usize = self
            .plan
            .queues
            .iter()
            .map(|queue| self.shared_by(queue))
            .sum();
        let shared = self.all_shared().saturating_sub(used);
        let caps = self
            .plan
            .queues
            .iter()
            .filter(|queue| queues.contains(&queue.name));
        let capped = caps
            .filter_map(|queue| Some(queue.at_most?.saturating_sub(self.in_queue(&queue.name))))
            .min();
        capped.map_or(shared, |cap| cap.min(shared))
    }

    /// What a type's own limit and its resources leave; nothing when it has none.
    fn type_room(&self, name: &str) -> Option<usize> {
        let of_type = |name: &str| self.by_type.get(name).copied().unwrap_or(0);
        let settings = self.plan.types.iter().find(|known| known.name == name)?;
        let own = settings
            .at_most
            .map(|most| most.saturating_sub(of_type(name)));
        let resources = settings.resources.iter().filter_map(|resource| {
            let most = self.plan.resources.get(resource)?;
            let users = self
                .plan
                .types
                .iter()
                .filter(|user| user.resources.contains(resource));
            Some(most.saturating_sub(users.map(|user| of_type(&user.name)).sum()))
        });
        own.into_iter().chain(resources).min()
    }
}

/// Every group of queues with every group of types, queues' own slots first.
fn scopes(plan: &SlotPlan) -> Vec<Scope> {
    let own = plan
        .queues
        .iter()
        .filter(|queue| queue.reserved > 0)
        .map(|queue| (vec![queue], ScopeKind::Own));
    let open = plan
        .queues
        .iter()
        .filter(|queue| queue.at_most.is_none())
        .collect();
    let capped = plan.queues.iter().filter(|queue| queue.at_most.is_some());
    let shared = std::iter::once(open)
        .chain(capped.map(|queue| vec![queue]))
        .map(|group| (group, ScopeKind::Shared));
    own.chain(shared)
        .flat_map(|(queues, kind)| with_types(plan, &queues, kind))
        .collect()
}

/// Each queue by itself, where there are several.
fn portions(plan: &SlotPlan) -> Vec<Scope> {
    let queues = plan.queues.iter().filter(|_| plan.queues.len() > 1);
    queues
        .flat_map(|queue| with_types(plan, &[queue], ScopeKind::Portion))
        .collect()
}

/// The queues with every group of types: what has no limit together, all others by themselves.
fn with_types(plan: &SlotPlan, queues: &[&QueueSlots], kind: ScopeKind) -> Vec<Scope> {
    let limited = |kind: &&TypeSlots| {
        kind.at_most.is_some()
            || kind
                .resources
                .iter()
                .any(|resource| plan.resources.contains_key(resource))
    };
    let free: Vec<String> = plan
        .types
        .iter()
        .filter(|kind| !limited(kind))
        .map(|kind| kind.name.clone())
        .collect();
    let mut type_groups: Vec<Vec<String>> = vec![free];
    type_groups.extend(
        plan.types
            .iter()
            .filter(limited)
            .map(|kind| vec![kind.name.clone()]),
    );
    type_groups.retain(|group| !group.is_empty() && !queues.is_empty());
    let names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
    type_groups
        .into_iter()
        .map(|task_types| Scope {
            queues: names.clone(),
            task_types,
            kind,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(
        queues: &[(&str, usize, Option<usize>)],
        types: &[(&str, Option<usize>, &[&str])],
    ) -> SlotPlan {
        let queue = |(name, reserved, at_most): &(&str, usize, Option<usize>)| QueueSlots {
            name: (*name).to_owned(),
            reserved: *reserved,
            at_most: *at_most,
            share: 1,
        };
        let kind = |(name, at_most, resources): &(&str, Option<usize>, &[&str])| TypeSlots {
            name: (*name).to_owned(),
            at_most: *at_most,
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        };
        SlotPlan {
            total: 10,
            queues: queues.iter().map(queue).collect(),
            types: types.iter().map(kind).collect(),
            resources: HashMap::from([("gpu".to_owned(), 2)]),
        }
    }

    fn run(slots: &mut Slots, queue: &str, task_type: &str, count: usize) {
        *slots.by_queue.entry(queue.to_owned()).or_default() += count;
        *slots.by_type.entry(task_type.to_owned()).or_default() += count;
    }

    #[test]
    fn a_held_slot_is_nobody_elses_until_it_is_freed() {
        let mut slots = Slots::new(plan(&[("a", 0, None)], &[("t", Some(1), &[])]));
        assert!(!slots.hold("a", "unknown") && !slots.hold("unknown", "t"));
        assert!(slots.hold("a", "t"));
        assert!(
            !slots.hold("a", "t"),
            "the type's limit counts what is held"
        );
        assert_eq!(slots.room(&slots.scopes()[0].clone()), 0);
        slots.free("a", "t");
        assert!(slots.hold("a", "t"));
    }

    #[test]
    fn a_plain_node_asks_once_for_everything() {
        let mut slots = Slots::new(plan(
            &[("a", 0, None), ("b", 0, None)],
            &[("t", None, &[]), ("u", None, &[])],
        ));
        assert_eq!(slots.scopes().len(), 1);
        assert_eq!(slots.room(&slots.scopes()[0]), 10);
        run(&mut slots, "a", "t", 7);
        assert_eq!(slots.room(&slots.scopes()[0]), 3);
        slots.free("a", "t");
        assert_eq!(slots.room(&slots.scopes()[0]), 4);
    }

    #[test]
    fn a_flood_of_one_queue_leaves_the_others_own_slots_alone() {
        let mut slots = Slots::new(plan(
            &[("vip", 4, None), ("free", 0, None)],
            &[("t", None, &[])],
        ));
        let shared = slots
            .scopes()
            .iter()
            .find(|scope| scope.kind == ScopeKind::Shared)
            .cloned()
            .unwrap();
        let own = slots
            .scopes()
            .iter()
            .find(|scope| scope.kind == ScopeKind::Own)
            .cloned()
            .unwrap();
        assert_eq!((slots.room(&own), slots.room(&shared)), (4, 6));
        run(&mut slots, "free", "t", 6);
        assert_eq!((slots.room(&own), slots.room(&shared)), (4, 0));
        run(&mut slots, "vip", "t", 4);
        assert_eq!((slots.room(&own), slots.room(&shared)), (0, 0));
    }

    #[test]
    fn a_queue_has_its_own_room_and_the_shared_one() {
        let mut slots = Slots::new(plan(
            &[("vip", 4, None), ("free", 0, Some(5))],
            &[("t", None, &[])],
        ));
        assert_eq!(
            (
                slots.room_in_queue("vip"),
                slots.room_in_queue("free"),
                slots.room_in_queue("x")
            ),
            (10, 5, 0)
        );
        run(&mut slots, "free", "t", 5);
        assert_eq!(
            (slots.room_in_queue("vip"), slots.room_in_queue("free")),
            (5, 0)
        );
        run(&mut slots, "vip", "t", 5);
        assert_eq!(slots.room_in_queue("vip"), 0);
    }

    #[test]
    fn a_type_that_is_full_takes_no_room_from_the_others_of_its_queue() {
        let mut slots = Slots::new(plan(
            &[("a", 0, None)],
            &[("mail", Some(1), &[]), ("text", None, &[])],
        ));
        run(&mut slots, "a", "mail", 1);
        assert_eq!(slots.room_in_queue("a"), 9);
        assert_eq!(
            (slots.has_room("a", "mail"), slots.has_room("a", "text")),
            (Some(false), Some(true))
        );
    }

    #[test]
    fn a_queue_that_has_less_than_its_portion_goes_before_a_flood() {
        let mut plan = plan(
            &[("vip", 1, None), ("slow", 0, Some(1)), ("free", 0, None)],
            &[("t", None, &[])],
        );
        plan.queues[0].share = 7;
        let mut slots = Slots::new(plan);
        run(&mut slots, "free", "t", 8);
        let asked = |slots: &Slots| -> Vec<(String, usize)> {
            slots
                .portions()
                .iter()
                .map(|scope| (scope.queues[0].clone(), slots.room(scope)))
                .collect()
        };
        let of = |name: &str, room| (name.to_owned(), room);
        // Nine slots are shared, and one of them is free. Portions are 7, 1 and 1 of them.
        assert_eq!(asked(&slots), [of("vip", 1), of("slow", 1), of("free", 0)]);
        run(&mut slots, "vip", "t", 2);
        assert_eq!(asked(&slots), [of("slow", 0), of("vip", 0), of("free", 0)]);
        (0..3).for_each(|_| slots.free("free", "t"));
        assert_eq!(asked(&slots), [of("slow", 1), of("vip", 3), of("free", 0)]);
        // What the others do not want is the flood's.
        assert_eq!(slots.has_room("free", "t"), Some(true));
    }

    #[test]
    fn one_queue_has_no_portions() {
        assert!(
            Slots::new(plan(&[("a", 0, None)], &[("t", None, &[])]))
                .portions()
                .is_empty()
        );
    }

    #[test]
    fn a_queue_never_gets_more_than_its_most() {
        let mut slots = Slots::new(plan(
            &[("slow", 0, Some(2)), ("free", 0, None)],
            &[("t", None, &[])],
        ));
        let slow = slots
            .scopes()
            .iter()
            .find(|scope| scope.queues == ["slow"])
            .cloned()
            .unwrap();
        assert_eq!(slots.room(&slow), 2);
        run(&mut slots, "slow", "t", 2);
        assert_eq!(slots.room(&slow), 0);
    }

    #[test]
    fn types_that_share_a_resource_share_its_limit() {
        let types: &[(&str, Option<usize>, &[&str])] = &[
            ("draw", None, &["gpu"]),
            ("film", None, &["gpu"]),
            ("text", None, &[]),
            ("mail", Some(1), &[]),
        ];
        let mut slots = Slots::new(plan(&[("a", 0, None)], types));
        let of = |slots: &Slots, name: &str| {
            let scope = slots
                .scopes()
                .iter()
                .find(|scope| scope.task_types == [name])
                .cloned()
                .unwrap();
            slots.room(&scope)
        };
        assert_eq!(
            (of(&slots, "draw"), of(&slots, "text"), of(&slots, "mail")),
            (2, 10, 1)
        );
        run(&mut slots, "a", "film", 1);
        run(&mut slots, "a", "mail", 1);
        assert_eq!(
            (of(&slots, "draw"), of(&slots, "text"), of(&slots, "mail")),
            (1, 8, 0)
        );
    }
}
