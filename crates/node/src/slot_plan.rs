//! The slots that a node offers, by its settings and the registered types.

use std::collections::BTreeSet;

use longhaul_sdk::{Client, TypeInfo};

use crate::{
    settings::{QueueSlots, WorkerSettings},
    slots::{SlotPlan, TypeSlots},
};

pub(crate) fn slot_plan(client: &Client, settings: &WorkerSettings) -> SlotPlan {
    let mut types = Vec::new();
    for info in client.registry.types() {
        warn_about_unlimited_resources(info, settings);
        let configured = settings.types.get(&info.name).copied();
        types.push(TypeSlots {
            name: info.name.clone(),
            at_most: configured.or(info.settings.concurrency),
            resources: info.settings.resources.clone(),
        });
    }

    let queues = if settings.queues.is_empty() {
        every_known_queue(client)
    } else {
        settings.queues.clone()
    };

    SlotPlan {
        total: settings.slots,
        queues,
        types,
        resources: settings.resources.clone(),
    }
}

/// Every queue that the routing or a registered type names.
fn every_known_queue(client: &Client) -> Vec<QueueSlots> {
    let mut names: BTreeSet<String> = client.routing.queues().into_iter().collect();
    for info in client.registry.types() {
        names.extend(info.settings.queue.clone());
    }

    names.iter().map(|name| QueueSlots::shared(name)).collect()
}

fn warn_about_unlimited_resources(info: &TypeInfo, settings: &WorkerSettings) {
    for resource in &info.settings.resources {
        if !settings.resources.contains_key(resource) {
            let task_type = &info.name;
            tracing::warn!(
                task_type,
                resource,
                "a type needs a resource that this node sets no limit for; it is not limited"
            );
        }
    }
}
