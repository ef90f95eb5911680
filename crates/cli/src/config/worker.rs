//! The section `worker`: what a worker offers, and how it looks for work.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use longhaul::{
    QueueSlots, WorkerSettings,
    operating::{PollSettings, WireDuration, bounds},
};

use super::{Config, check_waits, keys::section};

/// The largest share of a queue. Beside it, a queue with a share of 1 gets next to nothing.
const MAX_SHARE: usize = 1_000;

section! {
    /// What a worker offers.
    pub struct Worker with settings: WorkerSettings {
        /// The name of this node, for people. By default the name of the machine.
        pub name: Option<String> = None,
        /// Tasks that run at once in this process. Handlers that mostly wait for other services can
        /// have hundreds; handlers that compute, about one per core.
        pub slots: usize = settings.slots,
        /// What each queue gets.
        pub queues: BTreeMap<String, QueueShare> = BTreeMap::new(),
        /// How many tasks of a type run at once in this process, whatever the type itself says. The
        /// name is quoted: `"sample.sleep" = 4`.
        pub types: BTreeMap<String, usize> = BTreeMap::new(),
        /// How many tasks of this process may use a named resource at once.
        pub resources: BTreeMap<String, usize> = BTreeMap::new(),
        /// The shortest wait between two polls of the store when no hint arrives.
        pub poll_least: WireDuration = WireDuration(settings.poll.least),
        /// The longest wait between two polls. On PostgreSQL a notification shortens it; on other
        /// databases a task of another process may start this much later.
        pub poll_most: WireDuration = WireDuration(settings.poll.most),
        /// How often leases are renewed while tasks run; a cancel from another node reaches the
        /// handler within this time.
        pub heartbeat: WireDuration = WireDuration(settings.heartbeat),
        /// The same while nothing runs.
        pub idle_heartbeat: WireDuration = WireDuration(settings.idle_heartbeat),
        /// How long a heartbeat may take.
        pub heartbeat_timeout: WireDuration = WireDuration(settings.heartbeat_timeout),
        /// How old a claim must be to be handed back if this worker does not know of it.
        pub stray_age: WireDuration = WireDuration(settings.stray_age),
        /// How long a stop waits for running tasks. Supervisors must wait longer before they kill.
        pub drain: WireDuration = WireDuration(settings.drain),
    }
}

section! {
    /// What one queue gets of a worker.
    #[derive(Copy, PartialEq, Eq)]
    pub struct QueueShare {
        /// Slots that only this queue gets. Naming queues binds the worker to them; otherwise it
        /// serves all queues that the routing and the types name.
        pub reserved: usize = 0,
        /// The most slots that this queue gets at once, reserved and shared together.
        pub at_most: Option<usize> = None,
        /// The weight of this queue for the slots that are not reserved, while all queues have
        /// tasks waiting. The default is 1; a queue with 3 gets three times as much. What one queue
        /// does not use, the others do.
        pub share: usize = 1,
    }
}

impl Worker {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.slots >= 1,
            "worker.slots is 0; a node without a worker has other --roles"
        );
        check_waits(&[
            ("worker.poll_least", self.poll_least),
            ("worker.heartbeat", self.heartbeat),
            ("worker.idle_heartbeat", self.idle_heartbeat),
            ("worker.heartbeat_timeout", self.heartbeat_timeout),
        ])?;
        ensure!(
            self.poll_least.0 <= self.poll_most.0,
            "worker.poll_least is longer than worker.poll_most"
        );

        self.check_queues()
    }

    fn check_queues(&self) -> anyhow::Result<()> {
        let mut reserved = 0_usize;

        for (name, queue) in &self.queues {
            bounds::check_label("queue", name).context("worker.queues")?;
            ensure!(
                (1..=MAX_SHARE).contains(&queue.share),
                "worker.queues.{name}.share is {}; allowed: 1 to {MAX_SHARE}",
                queue.share
            );

            if let Some(most) = queue.at_most {
                let least = queue.reserved.max(1);
                ensure!(
                    most >= least,
                    "worker.queues.{name}.at_most is {most}; allowed: at least {least}"
                );
            }

            reserved = reserved.saturating_add(queue.reserved);
        }

        ensure!(
            reserved <= self.slots,
            "worker.queues reserve {reserved} slots, and worker.slots is {}",
            self.slots
        );

        Ok(())
    }

    fn queue_slots(&self) -> Vec<QueueSlots> {
        let slots = self.queues.iter().map(|(name, queue)| QueueSlots {
            name: name.clone(),
            reserved: queue.reserved,
            at_most: queue.at_most,
            share: queue.share,
        });

        slots.collect()
    }
}

impl Config {
    /// `host` is the name of this machine.
    pub fn worker_settings(&self, host: &str, maintenance: bool) -> WorkerSettings {
        let worker = &self.worker;

        WorkerSettings {
            name: worker.name.clone().unwrap_or_else(|| host.to_owned()),
            host: host.to_owned(),
            slots: worker.slots,
            queues: worker.queue_slots(),
            resources: worker.resources.clone().into_iter().collect(),
            types: worker.types.clone().into_iter().collect(),
            poll: PollSettings {
                least: worker.poll_least.0,
                most: worker.poll_most.0,
            },
            heartbeat: worker.heartbeat.0,
            idle_heartbeat: worker.idle_heartbeat.0,
            heartbeat_timeout: worker.heartbeat_timeout.0,
            stray_age: worker.stray_age.0,
            drain: worker.drain.0,
            maintenance,
            asks_for_host_affinity: !self.maintenance.host_affinity.0.is_zero(),
        }
    }
}
