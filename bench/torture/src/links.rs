//! The network of one node of a fleet: a fault proxy before each server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use longhaul_testkit::fault_proxy::{Fault, FaultProxy, Way};
use rand::{RngExt as _, rngs::StdRng};
use serde::Serialize;

use crate::server::{Server, Service};

/// The delay of a slow link.
const SLOW: Duration = Duration::from_millis(500);
/// The share of connections that a lossy link resets, in percent.
const LOST_PERCENT: u8 = 20;

/// A fault of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum NetworkFault {
    /// Connections are reset, and new ones fail.
    Cut,
    /// No bytes pass, but connections stay open and continue afterwards.
    Blackhole,
    /// The server's side of the connections is closed, the node's side stays open.
    HalfOpen,
    /// Requests arrive, answers do not.
    AnswersBlocked,
    /// Requests do not arrive, answers would.
    RequestsBlocked,
    /// All bytes are delayed by half a second.
    Slow,
    /// A fifth of the connections is reset.
    Lossy,
}

impl NetworkFault {
    const ALL: [Self; 7] = [
        Self::Cut,
        Self::Blackhole,
        Self::HalfOpen,
        Self::AnswersBlocked,
        Self::RequestsBlocked,
        Self::Slow,
        Self::Lossy,
    ];

    /// A random one.
    pub(crate) fn draw(random: &mut StdRng) -> Self {
        Self::ALL[random.random_range(0..Self::ALL.len())]
    }

    const fn fault(self) -> Fault {
        match self {
            Self::Cut => Fault::Cut,
            Self::Blackhole => Fault::Blackhole,
            Self::HalfOpen => Fault::HalfOpen,
            Self::AnswersBlocked => Fault::OneWay {
                blocked: Way::ToClient,
            },
            Self::RequestsBlocked => Fault::OneWay {
                blocked: Way::ToServer,
            },
            Self::Slow => Fault::Delay(SLOW),
            Self::Lossy => Fault::Lossy {
                percent: LOST_PERCENT,
            },
        }
    }
}

#[derive(Debug)]
pub(crate) struct Links {
    proxies: BTreeMap<Service, FaultProxy>,
    /// The URLs by which the node reaches each server.
    urls: BTreeMap<Service, String>,
}

impl Links {
    /// A healthy network between one node and these servers.
    pub(crate) async fn to(servers: &[&Server], seed: u64) -> anyhow::Result<Self> {
        let mut proxies = BTreeMap::new();
        let mut urls = BTreeMap::new();
        for server in servers {
            let proxy = FaultProxy::before(server.address(), seed).await?;
            let theirs = server.address().to_string();
            let ours = proxy.address().to_string();
            urls.insert(server.service, server.work_url()?.replace(&theirs, &ours));
            proxies.insert(server.service, proxy);
        }

        Ok(Self { proxies, urls })
    }

    pub(crate) fn url(&self, service: Service) -> anyhow::Result<String> {
        self.urls
            .get(&service)
            .cloned()
            .with_context(|| format!("there is no link to {}", service.name()))
    }

    /// Breaks the link to a server. Returns false when it is broken already.
    pub(crate) fn break_link(&self, service: Service, network_fault: NetworkFault) -> bool {
        match self.proxies.get(&service) {
            Some(proxy) if proxy.fault() == Fault::None => {
                proxy.set(network_fault.fault());
                true
            }
            _ => false,
        }
    }

    pub(crate) fn heal(&self, service: Service) {
        if let Some(proxy) = self.proxies.get(&service) {
            proxy.heal();
        }
    }
}
