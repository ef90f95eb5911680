//! Slots: how many tasks of which queue and type a node may claim now.
//!
//! A queue may have reserved slots; all queues share the rest. While tasks wait, each queue is
//! first asked for its fair share of the shared slots, so that a flood in one queue does not hold
//! up the others. What they leave is free for all.
//!
//! Types and named resources may have limits. A node therefore asks in scopes. Most nodes have one,
//! "all queues, all types". What has a limit of its own gets a scope of its own, so that an answer
//! never has more tasks than there is room for.

use std::collections::HashMap;

use crate::settings::QueueSlots;
use longhaul_domain::TaskRecord;

/// A type that a node runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeSlots {
    /// The name of the type.
    pub name: String,
    /// The most tasks of it that run at once.
    pub at_most: Option<usize>,
    /// Named resources, of each of which a running task uses one unit.
    pub resources: Vec<String>,
}

/// All slots of a node and their limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlotPlan {
    /// The most tasks that run at once.
    pub total: usize,
    /// The queues that the node serves.
    pub queues: Vec<QueueSlots>,
    /// The types that the node runs.
    pub types: Vec<TypeSlots>,
    /// How many running tasks may use each resource.
    pub resources: HashMap<String, usize>,
}

/// A group of queues and types that is asked for together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The queues.
    pub queues: Vec<String>,
    /// The types.
    pub task_types: Vec<String>,
    kind: ScopeKind,
}

/// Which slots a scope is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    /// Those reserved for a queue.
    Reserved,
    /// A queue's fair share of the shared ones.
    FairShare,
    /// All shared ones.
    Shared,
}

impl Scope {
    /// Whether it is a queue's fair share.
    pub fn is_fair_share(&self) -> bool {
        self.kind == ScopeKind::FairShare
    }

    /// Whether tasks of this queue and type belong to it.
    pub fn serves(&self, queue: &str, task_type: &str) -> bool {
        self.queues.iter().any(|name| name == queue)
            && self.task_types.iter().any(|name| name == task_type)
    }
}

/// The plan, and how many tasks run now.
#[derive(Debug, Clone)]
pub struct Slots {
    plan: SlotPlan,
    scopes: Vec<Scope>,
    fair_shares: Vec<Scope>,
    by_queue: HashMap<String, usize>,
    by_type: HashMap<String, usize>,
}

impl Slots {
    /// Free slots of this plan.
    pub fn new(plan: SlotPlan) -> Self {
        let scopes = scopes(&plan);
        let fair_shares = fair_shares(&plan);
        Self {
            scopes,
            fair_shares,
            plan,
            by_queue: HashMap::new(),
            by_type: HashMap::new(),
        }
    }

    /// The fair share of each queue, those that use the least of theirs first. Empty where there is
    /// one queue.
    pub fn fair_shares(&self) -> Vec<&Scope> {
        let mut fair_shares: Vec<&Scope> = self.fair_shares.iter().collect();
        let used = |scope: &&Scope| {
            let queue = self
                .plan
                .queues
                .iter()
                .find(|queue| scope.queues.contains(&queue.name));

            // Used slots per share, in millionths.
            queue.map_or(0, |queue| {
                self.shared_by(queue) * 1_000_000 / queue.share.max(1)
            })
        };

        fair_shares.sort_by_key(used);
        fair_shares
    }

    /// The scopes, in the order in which they are tried.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// Occupies the slot of a claimed task.
    pub fn take(&mut self, task: &TaskRecord) {
        self.occupy(&task.queue, &task.task_type);
    }

    /// Occupies a slot, even where none is free.
    pub fn occupy(&mut self, queue: &str, task_type: &str) {
        for (counts, name) in [(&mut self.by_queue, queue), (&mut self.by_type, task_type)] {
            match counts.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = counts.insert(name.to_owned(), 1),
            }
        }
    }

    /// Reserves a slot for a task that is yet to be claimed, if one is free.
    pub fn reserve(&mut self, queue: &str, task_type: &str) -> bool {
        let has_room = self.has_room(queue, task_type) == Some(true);
        if has_room {
            self.occupy(queue, task_type);
        }
        has_room
    }

    /// Frees a slot.
    pub fn free(&mut self, queue: &str, task_type: &str) {
        for (counts, name) in [(&mut self.by_queue, queue), (&mut self.by_type, task_type)] {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Occupied slots.
    pub fn running(&self) -> usize {
        self.by_queue.values().sum()
    }

    /// All slots.
    pub const fn total(&self) -> usize {
        self.plan.total
    }

    /// Whether a slot is free for a task of this queue and type; `None` when they are not served.
    pub fn has_room(&self, queue: &str, task_type: &str) -> Option<bool> {
        let mut has_room = None;
        for scope in &self.scopes {
            if scope.serves(queue, task_type) {
                has_room = Some(self.room(scope) > 0);
            }
            if has_room == Some(true) {
                break;
            }
        }

        has_room
    }

    /// How many tasks of this queue could start now, if their types have no limit.
    pub fn room_in_queue(&self, queue: &str) -> usize {
        let mut reserved = 0;
        let mut shared = 0;
        for scope in &self.scopes {
            if !scope.queues.iter().any(|name| name == queue) {
                continue;
            }
            match scope.kind {
                ScopeKind::Reserved => reserved = reserved.max(self.room(scope)),
                ScopeKind::Shared => shared = shared.max(self.room(scope)),
                ScopeKind::FairShare => {}
            }
        }

        reserved + shared
    }

    /// Whether the queue uses all of its fair share. Tasks of other queues then go first.
    pub fn has_its_fair_share(&self, queue: &str) -> bool {
        let queue = [queue.to_owned()];
        self.reserved_room(&queue) == 0 && self.fair_share_room(&queue) == 0
    }

    /// The names of the served queues.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        self.plan.queues.iter().map(|queue| queue.name.as_str())
    }

    /// The names of the served types.
    pub fn task_types(&self) -> impl Iterator<Item = &str> {
        self.plan
            .types
            .iter()
            .map(|settings| settings.name.as_str())
    }

    /// How many tasks may be claimed in `scope` now.
    pub fn room(&self, scope: &Scope) -> usize {
        let in_queues = match scope.kind {
            ScopeKind::Reserved => self.reserved_room(&scope.queues),
            ScopeKind::FairShare => self
                .shared_room(&scope.queues)
                .min(self.fair_share_room(&scope.queues)),
            ScopeKind::Shared => self.shared_room(&scope.queues),
        };

        let limits = scope.task_types.iter().map(|name| self.type_room(name));
        let in_types = limits.flatten().min();
        in_types.map_or(in_queues, |room| room.min(in_queues))
    }

    fn in_queue(&self, name: &str) -> usize {
        self.by_queue.get(name).copied().unwrap_or(0)
    }

    fn reserved_room(&self, queues: &[String]) -> usize {
        let free = |queue: &QueueSlots| queue.reserved.saturating_sub(self.in_queue(&queue.name));
        self.plan.among(queues).map(free).sum()
    }

    /// Shared slots that the queue uses.
    fn shared_by(&self, queue: &QueueSlots) -> usize {
        self.in_queue(&queue.name).saturating_sub(queue.reserved)
    }

    /// Slots that are not reserved.
    fn all_shared(&self) -> usize {
        let reserved = self.plan.queues.iter().map(|queue| queue.reserved).sum();
        self.plan.total.saturating_sub(reserved)
    }

    /// What is left of the fair shares of these queues. A fair share is one slot at least: without
    /// any, a queue would wait for ever.
    fn fair_share_room(&self, queues: &[String]) -> usize {
        let shares: usize = self.plan.queues.iter().map(|queue| queue.share).sum();
        let left = |queue: &QueueSlots| {
            let fair_share = (self.all_shared() * queue.share / shares.max(1)).max(1);
            fair_share.saturating_sub(self.shared_by(queue))
        };

        self.plan.among(queues).map(left).sum()
    }

    fn shared_room(&self, queues: &[String]) -> usize {
        let all = self.plan.queues.iter();
        let used: usize = all.map(|queue| self.shared_by(queue)).sum();
        let shared = self.all_shared().saturating_sub(used);

        let below_cap =
            |queue: &QueueSlots| Some(queue.at_most?.saturating_sub(self.in_queue(&queue.name)));
        let capped = self.plan.among(queues).filter_map(below_cap).min();
        capped.map_or(shared, |cap| cap.min(shared))
    }

    /// What a type's own limit and its resources leave; `None` when it has no limit.
    fn type_room(&self, name: &str) -> Option<usize> {
        let settings = self.plan.types.iter().find(|known| known.name == name)?;
        let own = settings
            .at_most
            .map(|most| most.saturating_sub(self.of_type(name)));

        let resources = settings.resources.iter();
        let left = resources.filter_map(|resource| self.resource_room(resource));
        own.into_iter().chain(left).min()
    }

    /// The free units of a resource; `None` when it has no limit.
    fn resource_room(&self, resource: &String) -> Option<usize> {
        let most = self.plan.resources.get(resource)?;
        let types = self.plan.types.iter();
        let users = types.filter(|user| user.resources.contains(resource));
        let used = users.map(|user| self.of_type(&user.name)).sum();
        Some(most.saturating_sub(used))
    }

    fn of_type(&self, name: &str) -> usize {
        self.by_type.get(name).copied().unwrap_or(0)
    }
}

impl SlotPlan {
    /// The plan's queues with these names.
    fn among(&self, names: &[String]) -> impl Iterator<Item = &QueueSlots> {
        let queues = self.queues.iter();
        queues.filter(|queue| names.contains(&queue.name))
    }

    /// Whether a type has a limit of its own or uses a limited resource.
    fn is_limited(&self, settings: &TypeSlots) -> bool {
        let mut resources = settings.resources.iter();
        settings.at_most.is_some() || resources.any(|name| self.resources.contains_key(name))
    }
}

/// Every group of queues with every group of types, reserved slots first.
fn scopes(plan: &SlotPlan) -> Vec<Scope> {
    let mut groups = Vec::new();
    for queue in &plan.queues {
        if queue.reserved > 0 {
            groups.push((vec![queue], ScopeKind::Reserved));
        }
    }

    let (capped, open): (Vec<_>, Vec<_>) = plan
        .queues
        .iter()
        .partition(|queue| queue.at_most.is_some());
    groups.push((open, ScopeKind::Shared));
    for queue in capped {
        groups.push((vec![queue], ScopeKind::Shared));
    }

    let mut scopes = Vec::new();
    for (queues, kind) in groups {
        scopes.extend(with_types(plan, &queues, kind));
    }
    scopes
}

/// Each queue by itself, where there are several.
fn fair_shares(plan: &SlotPlan) -> Vec<Scope> {
    if plan.queues.len() < 2 {
        return Vec::new();
    }

    let mut shares = Vec::new();
    for queue in &plan.queues {
        shares.extend(with_types(plan, &[queue], ScopeKind::FairShare));
    }
    shares
}

/// The queues with every group of types: those without a limit together, each of the others by
/// itself.
fn with_types(plan: &SlotPlan, queues: &[&QueueSlots], kind: ScopeKind) -> Vec<Scope> {
    if queues.is_empty() {
        return Vec::new();
    }

    let mut unlimited = Vec::new();
    let mut groups = Vec::new();
    for settings in &plan.types {
        if plan.is_limited(settings) {
            groups.push(vec![settings.name.clone()]);
        } else {
            unlimited.push(settings.name.clone());
        }
    }
    if !unlimited.is_empty() {
        groups.insert(0, unlimited);
    }

    let names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
    let scope = |task_types| Scope {
        queues: names.clone(),
        task_types,
        kind,
    };
    groups.into_iter().map(scope).collect()
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
    fn a_reserved_slot_is_used_until_it_is_freed() {
        let mut slots = Slots::new(plan(&[("a", 0, None)], &[("t", Some(1), &[])]));
        assert!(!slots.reserve("a", "unknown") && !slots.reserve("unknown", "t"));
        assert!(slots.reserve("a", "t"));
        assert!(
            !slots.reserve("a", "t"),
            "the type's limit counts reserved slots"
        );
        assert_eq!(slots.room(&slots.scopes()[0].clone()), 0);
        slots.free("a", "t");

        assert!(slots.reserve("a", "t"));
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
    fn a_flood_of_one_queue_leaves_the_reserved_slots_of_others() {
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
            .find(|scope| scope.kind == ScopeKind::Reserved)
            .cloned()
            .unwrap();

        assert_eq!((slots.room(&own), slots.room(&shared)), (4, 6));
        run(&mut slots, "free", "t", 6);
        assert_eq!((slots.room(&own), slots.room(&shared)), (4, 0));
        run(&mut slots, "vip", "t", 4);
        assert_eq!((slots.room(&own), slots.room(&shared)), (0, 0));
    }

    #[test]
    fn a_queue_has_its_reserved_room_and_the_shared_one() {
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
    fn a_full_type_takes_no_room_from_other_types_of_its_queue() {
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
    fn a_queue_that_uses_less_than_its_fair_share_goes_before_a_flood() {
        let mut plan = plan(
            &[("vip", 1, None), ("slow", 0, Some(1)), ("free", 0, None)],
            &[("t", None, &[])],
        );
        plan.queues[0].share = 7;
        let mut slots = Slots::new(plan);

        run(&mut slots, "free", "t", 8);
        let asked = |slots: &Slots| -> Vec<(String, usize)> {
            slots
                .fair_shares()
                .iter()
                .map(|scope| (scope.queues[0].clone(), slots.room(scope)))
                .collect()
        };

        let of = |name: &str, room| (name.to_owned(), room);
        // Nine slots are shared, and one of them is free. The fair shares are 7, 1 and 1 of them.
        assert_eq!(asked(&slots), [of("vip", 1), of("slow", 1), of("free", 0)]);
        run(&mut slots, "vip", "t", 2);
        assert_eq!(asked(&slots), [of("slow", 0), of("vip", 0), of("free", 0)]);
        (0..3).for_each(|_| slots.free("free", "t"));
        assert_eq!(asked(&slots), [of("slow", 1), of("vip", 3), of("free", 0)]);

        // The flood may use what the others leave.
        assert_eq!(slots.has_room("free", "t"), Some(true));
    }

    #[test]
    fn a_single_queue_has_no_fair_share() {
        assert!(
            Slots::new(plan(&[("a", 0, None)], &[("t", None, &[])]))
                .fair_shares()
                .is_empty()
        );
    }

    #[test]
    fn a_queue_never_exceeds_its_limit() {
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
