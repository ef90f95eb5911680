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

use longhaul_domain::QueueName;

/// A queue that a node serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedQueue {
    /// The name of the queue.
    pub name: QueueName,
    /// Slots that only this queue uses.
    pub reserved: usize,
    /// The most slots it uses at once, reserved and shared ones together.
    pub at_most: Option<usize>,
    /// The weight of its fair share of the shared slots.
    pub share: usize,
}

impl ServedQueue {
    /// A queue without reserved slots.
    pub fn shared(name: QueueName) -> Self {
        Self {
            name,
            reserved: 0,
            at_most: None,
            share: 1,
        }
    }
}

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
    pub queues: Vec<ServedQueue>,
    /// The types that the node runs.
    pub types: Vec<TypeSlots>,
    /// How many running tasks may use each resource.
    pub resources: HashMap<String, usize>,
}

/// A group of queues and types that is asked for together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The queues.
    pub queues: Vec<QueueName>,
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

/// Whether a node has a slot for one more task of some queue and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It has one.
    Free,
    /// It has none now.
    Full,
    /// It does not serve the queue and type.
    NotServed,
}

/// The plan, and how many slots are occupied now.
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

    /// Occupies a slot, even where none is free: what the store has claimed for this node runs.
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
        let is_free = self.room_for(queue, task_type) == Room::Free;
        if is_free {
            self.occupy(queue, task_type);
        }
        is_free
    }

    /// Frees a slot.
    pub fn free(&mut self, queue: &str, task_type: &str) {
        for (counts, name) in [(&mut self.by_queue, queue), (&mut self.by_type, task_type)] {
            if let Some(count) = counts.get_mut(name) {
                *count = count.saturating_sub(1);
            }
        }
    }

    /// Occupied slots: those of running handlers and of threads that outlive their attempt, and
    /// slots that are reserved for a claim under way.
    pub fn occupied(&self) -> usize {
        self.by_queue.values().sum()
    }

    /// All slots.
    pub const fn total(&self) -> usize {
        self.plan.total
    }

    /// Whether a slot is free for a task of this queue and type.
    pub fn room_for(&self, queue: &str, task_type: &str) -> Room {
        let mut room = Room::NotServed;
        for scope in &self.scopes {
            if !scope.serves(queue, task_type) {
                continue;
            }
            if self.room(scope) > 0 {
                return Room::Free;
            }
            room = Room::Full;
        }

        room
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
    pub fn has_its_fair_share(&self, queue: &QueueName) -> bool {
        let queues = std::slice::from_ref(queue);
        self.reserved_room(queues) == 0 && self.fair_share_room(queues) == 0
    }

    /// The names of the served queues.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.plan.queues.iter().map(|queue| &queue.name)
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

    fn reserved_room(&self, queues: &[QueueName]) -> usize {
        let free = |queue: &ServedQueue| queue.reserved.saturating_sub(self.in_queue(&queue.name));
        self.plan.among(queues).map(free).sum()
    }

    /// Shared slots that the queue uses.
    fn shared_by(&self, queue: &ServedQueue) -> usize {
        self.in_queue(&queue.name).saturating_sub(queue.reserved)
    }

    /// Slots that are not reserved.
    fn all_shared(&self) -> usize {
        let reserved = self.plan.queues.iter().map(|queue| queue.reserved).sum();
        self.plan.total.saturating_sub(reserved)
    }

    /// What is left of the fair shares of these queues. A fair share is one slot at least: without
    /// any, a queue would wait for ever.
    fn fair_share_room(&self, queues: &[QueueName]) -> usize {
        let shares: usize = self.plan.queues.iter().map(|queue| queue.share).sum();
        let left = |queue: &ServedQueue| {
            let fair_share = (self.all_shared() * queue.share / shares.max(1)).max(1);
            fair_share.saturating_sub(self.shared_by(queue))
        };

        self.plan.among(queues).map(left).sum()
    }

    fn shared_room(&self, queues: &[QueueName]) -> usize {
        let all = self.plan.queues.iter();
        let used: usize = all.map(|queue| self.shared_by(queue)).sum();
        let shared = self.all_shared().saturating_sub(used);

        let below_cap =
            |queue: &ServedQueue| Some(queue.at_most?.saturating_sub(self.in_queue(&queue.name)));
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
    fn among(&self, names: &[QueueName]) -> impl Iterator<Item = &ServedQueue> {
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
fn with_types(plan: &SlotPlan, queues: &[&ServedQueue], kind: ScopeKind) -> Vec<Scope> {
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

    let names: Vec<QueueName> = queues.iter().map(|queue| queue.name.clone()).collect();
    let scope = |task_types| Scope {
        queues: names.clone(),
        task_types,
        kind,
    };
    groups.into_iter().map(scope).collect()
}

#[cfg(test)]
mod tests;
