//! What can be broken, and what was.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32};

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use serde::Serialize;

use crate::{links::Trouble, server::Service};

/// What is done to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum Blow {
    /// kill -9, and started again after a while.
    Kill,
    /// SIGSTOP for a while.
    Freeze,
    /// kill -9, and started again with nothing of what it had kept.
    Wipe,
    /// What it holds is thrown away while it runs: waiting bells, or all of Redis.
    Empty,
}

/// Something that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum Fault {
    /// kill -9 of a node, which is started again at once.
    Kill,
    /// SIGSTOP of a node for longer than its lease, then SIGCONT.
    Freeze,
    /// The node is declared dead while it lives. A frozen process keeps the lock of an embedded store, so nobody else
    /// can take over its tasks; this makes the zombies there.
    Disown,
    Server(Service, Blow),
    /// The network between one node and a server.
    Partition(Service),
}

impl Fault {
    /// What each bag holds, for the servers that the run has.
    pub(crate) fn bag(servers: &[Service]) -> Vec<Self> {
        let many = |fault: Self, times: usize| vec![fault; times];
        let Some(database) = servers
            .iter()
            .copied()
            .find(|service| service.is_database())
        else {
            return [
                many(Self::Kill, 3),
                many(Self::Freeze, 1),
                many(Self::Disown, 2),
            ]
            .concat();
        };
        if servers.len() == 1 {
            let server = [
                Self::Server(database, Blow::Kill),
                Self::Server(database, Blow::Freeze),
            ];
            return [
                many(Self::Kill, 3),
                many(Self::Freeze, 3),
                many(server[0], 2),
                many(server[1], 1),
            ]
            .concat();
        }
        // Each outage of the database hides what else happens, so there are few.
        let fleet = [
            Self::Kill,
            Self::Kill,
            Self::Kill,
            Self::Kill,
            Self::Freeze,
            Self::Freeze,
            Self::Server(database, Blow::Kill),
            Self::Server(database, Blow::Freeze),
            Self::Server(Service::Rabbitmq, Blow::Kill),
            Self::Server(Service::Rabbitmq, Blow::Freeze),
            Self::Server(Service::Rabbitmq, Blow::Wipe),
            Self::Server(Service::Rabbitmq, Blow::Empty),
            Self::Server(Service::Redis, Blow::Kill),
            Self::Server(Service::Redis, Blow::Freeze),
            Self::Server(Service::Redis, Blow::Empty),
            Self::Partition(database),
            Self::Partition(database),
            Self::Partition(Service::Rabbitmq),
            Self::Partition(Service::Rabbitmq),
            Self::Partition(Service::Redis),
        ];
        fleet.to_vec()
    }

    /// Every kind of fault that a run with these servers must have seen.
    pub(crate) fn kinds(servers: &[Service]) -> BTreeSet<Self> {
        Self::bag(servers).into_iter().collect()
    }

    /// Whether tasks cannot be claimed anywhere while it lasts.
    pub(crate) const fn stops_the_database(self) -> bool {
        match self {
            Self::Server(service, _) => service.is_database(),
            Self::Kill | Self::Freeze | Self::Disown | Self::Partition(_) => false,
        }
    }

    /// Whether no bell reaches anybody while it lasts.
    pub(crate) const fn stops_the_broker(self) -> bool {
        matches!(
            self,
            Self::Server(Service::Rabbitmq, Blow::Kill | Blow::Freeze | Blow::Wipe)
        )
    }
}

/// What was done.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Deed {
    /// Microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) fault: Fault,
    /// How long it was meant to last, in milliseconds.
    pub(crate) ms: u64,
    /// What the network did.
    pub(crate) trouble: Option<Trouble>,
    /// The process that it happened to, if it was a node's.
    pub(crate) incarnation: Option<String>,
    /// When the server answered again.
    pub(crate) over: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: AtomicU32,
    pub(crate) freezes: AtomicU32,
    pub(crate) servers: AtomicU32,
    pub(crate) partitions: AtomicU32,
}

/// Everything that was done so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deeds(Arc<Mutex<Vec<Deed>>>);

impl Deeds {
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Deed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the database is killed or frozen now: tasks cannot be claimed anywhere, nor submitted.
    pub(crate) fn is_database_away(&self) -> bool {
        self.list()
            .iter()
            .any(|deed| deed.fault.stops_the_database() && deed.over.is_none())
    }

    /// It is mended now.
    pub(crate) fn is_over(&self, number: usize) {
        if let Some(deed) = self.list().get_mut(number) {
            deed.over = Some(SystemClock::default().now().as_micros());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_killed_and_frozen_with_and_without_other_servers() {
        for service in [Service::Postgres, Service::Mariadb] {
            for servers in [
                vec![service],
                vec![service, Service::Rabbitmq, Service::Redis],
            ] {
                let kinds = Fault::kinds(&servers);
                assert!(
                    kinds.contains(&Fault::Server(service, Blow::Kill)),
                    "{servers:?}"
                );
                assert!(
                    kinds.contains(&Fault::Server(service, Blow::Freeze)),
                    "{servers:?}"
                );
            }
        }
        assert!(
            !Fault::kinds(&[])
                .iter()
                .any(|kind| kind.stops_the_database()),
            "an embedded store has no server"
        );
    }

    #[test]
    fn a_database_is_away_from_its_freeze_until_it_answers_again() {
        let deeds = Deeds::default();
        let deed = |fault| Deed {
            at: 1,
            fault,
            ms: 0,
            trouble: None,
            incarnation: None,
            over: None,
        };
        deeds.list().extend(
            [
                Fault::Kill,
                Fault::Freeze,
                Fault::Server(Service::Redis, Blow::Freeze),
            ]
            .map(deed),
        );
        assert!(!deeds.is_database_away());
        deeds
            .list()
            .push(deed(Fault::Server(Service::Postgres, Blow::Freeze)));
        assert!(deeds.is_database_away());
        deeds.is_over(3);
        assert!(!deeds.is_database_away());
    }
}
