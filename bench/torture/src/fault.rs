//! The faults, and the record of those that happened.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU32};

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use serde::Serialize;

use crate::{links::NetworkFault, server::Service};

/// A fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum ServerFault {
    /// kill -9 and a restart after a while.
    Kill,
    /// SIGSTOP for a while.
    Freeze,
    /// kill -9 and a restart without its data.
    Wipe,
    /// Its contents are deleted while it runs: waiting hints, or all of Redis.
    Empty,
}

/// A fault of a node, a server or the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum Fault {
    /// kill -9 of a node, which restarts at once.
    Kill,
    /// SIGSTOP of a node for longer than its lease, then SIGCONT.
    Freeze,
    /// The running node is declared dead. This makes the zombies of an embedded store, where a
    /// frozen process keeps the file's lock and no other process can take over.
    DeclareDead,
    Server(Service, ServerFault),
    /// The network between one node and a server.
    Partition(Service),
}

impl Fault {
    /// The faults of one round, for the servers of the run.
    pub(crate) fn round(servers: &[Service]) -> Vec<Self> {
        let many = |fault: Self, times: usize| vec![fault; times];
        let Some(database) = servers
            .iter()
            .copied()
            .find(|service| service.is_database())
        else {
            return [
                many(Self::Kill, 3),
                many(Self::Freeze, 1),
                many(Self::DeclareDead, 2),
            ]
            .concat();
        };
        if servers.len() == 1 {
            return [
                many(Self::Kill, 3),
                many(Self::Freeze, 3),
                many(Self::Server(database, ServerFault::Kill), 2),
                many(Self::Server(database, ServerFault::Freeze), 1),
            ]
            .concat();
        }

        // An outage of the database hides other faults, so there are few.
        let fleet = [
            Self::Kill,
            Self::Kill,
            Self::Kill,
            Self::Kill,
            Self::Freeze,
            Self::Freeze,
            Self::Server(database, ServerFault::Kill),
            Self::Server(database, ServerFault::Freeze),
            Self::Server(Service::Rabbitmq, ServerFault::Kill),
            Self::Server(Service::Rabbitmq, ServerFault::Freeze),
            Self::Server(Service::Rabbitmq, ServerFault::Wipe),
            Self::Server(Service::Rabbitmq, ServerFault::Empty),
            Self::Server(Service::Redis, ServerFault::Kill),
            Self::Server(Service::Redis, ServerFault::Freeze),
            Self::Server(Service::Redis, ServerFault::Empty),
            Self::Partition(database),
            Self::Partition(database),
            Self::Partition(Service::Rabbitmq),
            Self::Partition(Service::Rabbitmq),
            Self::Partition(Service::Redis),
        ];
        fleet.to_vec()
    }

    /// Every kind of fault of a run with these servers.
    pub(crate) fn kinds(servers: &[Service]) -> BTreeSet<Self> {
        Self::round(servers).into_iter().collect()
    }

    /// Whether it is this fault of the database server.
    pub(crate) fn is_of_database(self, wanted: ServerFault) -> bool {
        match self {
            Self::Server(service, fault) => fault == wanted && service.is_database(),
            Self::Kill | Self::Freeze | Self::DeclareDead | Self::Partition(_) => false,
        }
    }

    /// Whether no task can be claimed during the fault.
    pub(crate) const fn stops_the_database(self) -> bool {
        match self {
            Self::Server(service, _) => service.is_database(),
            Self::Kill | Self::Freeze | Self::DeclareDead | Self::Partition(_) => false,
        }
    }

    /// Whether no hint is delivered during the fault.
    pub(crate) const fn stops_the_broker(self) -> bool {
        matches!(
            self,
            Self::Server(
                Service::Rabbitmq,
                ServerFault::Kill | ServerFault::Freeze | ServerFault::Wipe
            )
        )
    }
}

/// A fault that was injected.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FaultRecord {
    /// Microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) fault: Fault,
    /// The planned duration in milliseconds.
    pub(crate) ms: u64,
    /// The kind of a network fault.
    pub(crate) network_fault: Option<NetworkFault>,
    /// The process, for a fault of a node.
    pub(crate) incarnation: Option<String>,
    /// When the server answered again, or the network was healed.
    pub(crate) over: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct FaultCounts {
    pub(crate) kills: AtomicU32,
    pub(crate) freezes: AtomicU32,
    pub(crate) servers: AtomicU32,
    pub(crate) partitions: AtomicU32,
}

/// All faults so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultLog(Arc<Mutex<Vec<FaultRecord>>>);

impl FaultLog {
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<FaultRecord>> {
        // Held for one look or change, never across an await.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the database is killed or frozen now.
    pub(crate) fn is_database_down(&self) -> bool {
        let fault_log = self.list();
        fault_log
            .iter()
            .any(|record| record.fault.stops_the_database() && record.over.is_none())
    }

    /// Records that a fault has ended.
    pub(crate) fn mark_ended(&self, number: usize) {
        if let Some(record) = self.list().get_mut(number) {
            record.over = Some(SystemClock::default().now().as_micros());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_killed_and_frozen_in_every_setup() {
        for service in [Service::Postgres, Service::Mariadb] {
            for servers in [
                vec![service],
                vec![service, Service::Rabbitmq, Service::Redis],
            ] {
                let kinds = Fault::kinds(&servers);
                assert!(
                    kinds.contains(&Fault::Server(service, ServerFault::Kill)),
                    "{servers:?}"
                );
                assert!(
                    kinds.contains(&Fault::Server(service, ServerFault::Freeze)),
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
    fn a_frozen_database_is_down_until_it_answers_again() {
        let fault_log = FaultLog::default();
        let record = |fault| FaultRecord {
            at: 1,
            fault,
            ms: 0,
            network_fault: None,
            incarnation: None,
            over: None,
        };

        fault_log.list().extend(
            [
                Fault::Kill,
                Fault::Freeze,
                Fault::Server(Service::Redis, ServerFault::Freeze),
            ]
            .map(record),
        );

        assert!(!fault_log.is_database_down());
        fault_log.list().push(record(Fault::Server(
            Service::Postgres,
            ServerFault::Freeze,
        )));
        assert!(fault_log.is_database_down());
        fault_log.mark_ended(3);
        assert!(!fault_log.is_database_down());
    }
}
