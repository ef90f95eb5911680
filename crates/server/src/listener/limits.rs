//! Limits on connections, in all and by address, and the slots that are reserved for probes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ListenerSettings;

/// One address may have half of the slots for probes: the caller that fills the limits must not
/// take these slots, too.
const ADDRESSES_OF_PROBES: usize = 2;

/// Counts connections.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    total: usize,
    per_address: usize,
    probes: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    probes: usize,
    probes_by_address: HashMap<IpAddr, usize>,
}

impl ConnectionLimits {
    pub(super) fn new(settings: ListenerSettings) -> Self {
        Self {
            total: settings.connections,
            per_address: settings.connections_per_address,
            probes: settings.probe_connections,
            open: Mutex::default(),
        }
    }

    /// A slot for a connection from this address. Beyond a limit it is one of those for probes, if
    /// any is free.
    pub(super) fn try_acquire(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        // One lock for check and count, so that two connections cannot take the last slot.
        let mut open = self.open.lock();
        let from_address = open.by_address.get(&address).copied().unwrap_or(0);
        let is_within = open.total < self.total && from_address < self.per_address;

        if is_within {
            open.total += 1;
            open.by_address.insert(address, from_address + 1);
        } else {
            let of_address = open.probes_by_address.get(&address).copied().unwrap_or(0);
            let most = self.probes.div_ceil(ADDRESSES_OF_PROBES);
            if open.probes >= self.probes || of_address >= most {
                return None;
            }

            open.probes += 1;
            open.probes_by_address.insert(address, of_address + 1);
        }

        Some(ConnectionSlot {
            limits: Arc::clone(self),
            address,
            is_for_probes: !is_within,
        })
    }
}

/// One counted connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limits: Arc<ConnectionLimits>,
    address: IpAddr,
    is_for_probes: bool,
}

impl ConnectionSlot {
    /// Whether only probes may use the connection.
    pub(super) const fn is_for_probes(&self) -> bool {
        self.is_for_probes
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // One lock for all counts, so that no other thread sees them disagree.
        let mut open = self.limits.open.lock();
        if self.is_for_probes {
            open.probes -= 1;
            count_down(&mut open.probes_by_address, self.address);
        } else {
            open.total -= 1;
            count_down(&mut open.by_address, self.address);
        }
    }
}

fn count_down(by_address: &mut HashMap<IpAddr, usize>, address: IpAddr) {
    let count = by_address.entry(address).or_default();
    *count = count.saturating_sub(1);
    // An address without connections is forgotten, or the map would grow for ever.
    if *count == 0 {
        by_address.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_all_and_by_address() {
        let settings = ListenerSettings {
            connections: 3,
            connections_per_address: 2,
            probe_connections: 0,
            ..ListenerSettings::default()
        };
        let limits = Arc::new(ConnectionLimits::new(settings));
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));

        let first = limits.try_acquire(one);
        let _second = limits.try_acquire(one).unwrap();
        assert!(limits.try_acquire(one).is_none(), "limit of the address");

        let _third = limits.try_acquire(two).unwrap();
        assert!(limits.try_acquire(two).is_none(), "limit of the server");

        drop(first);
        assert!(limits.try_acquire(two).is_some());
        assert_eq!(limits.open.lock().by_address.len(), 2);
    }

    #[test]
    fn slots_for_probes_come_after_the_limits() {
        let settings = ListenerSettings {
            connections: 1,
            probe_connections: 4,
            ..ListenerSettings::default()
        };
        let limits = Arc::new(ConnectionLimits::new(settings));
        let address = IpAddr::from([10, 0, 0, 1]);

        let normal = limits.try_acquire(address).unwrap();
        let probe = limits.try_acquire(address).unwrap();
        let _probe = limits.try_acquire(address).unwrap();
        assert!(!normal.is_for_probes() && probe.is_for_probes());
        assert!(limits.try_acquire(address).is_none(), "half of them");
        let other = IpAddr::from([10, 0, 0, 2]);
        assert!(limits.try_acquire(other).unwrap().is_for_probes());

        drop((normal, probe));
        assert!(!limits.try_acquire(address).unwrap().is_for_probes());
        assert_eq!(limits.open.lock().probes, 1);
    }
}
