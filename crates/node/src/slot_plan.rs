//! The slots that a node offers, by its settings and the registered types.

use std::collections::BTreeSet;

use longhaul_domain::QueueName;
use longhaul_sdk::{Client, TypeInfo};

use crate::{
    settings::{QueueSlots, WorkerSettings},
    slots::{ServedQueue, SlotPlan, TypeSlots},
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
        settings.queues.iter().filter_map(served_queue).collect()
    };

    SlotPlan {
        total: settings.slots,
        queues,
        types,
        resources: settings.resources.clone(),
    }
}

/// Every queue that the routing or a registered type names.
fn every_known_queue(client: &Client) -> Vec<ServedQueue> {
    let mut names: BTreeSet<QueueName> = client.routing.queues().into_iter().collect();
    for info in client.registry.types() {
        let queue = info.settings.queue.as_deref();
        names.extend(queue.and_then(|name| QueueName::parse(name).ok()));
    }

    names.into_iter().map(ServedQueue::shared).collect()
}

/// The queue that the settings name. No task can be in a queue with a wrong name: there is nothing
/// to serve.
fn served_queue(settings: &QueueSlots) -> Option<ServedQueue> {
    Some(ServedQueue {
        name: QueueName::parse(&settings.name).ok()?,
        reserved: settings.reserved,
        at_most: settings.at_most,
        share: settings.share,
    })
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
