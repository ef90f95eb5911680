//! The network of one node of a fleet: a fault proxy before each server that it speaks to.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use longhaul_testkit::fault_proxy::{Fault, FaultProxy, Way};
use rand::{RngExt as _, rngs::StdRng};
use serde::Serialize;

use crate::server::{Server, Service};

/// How late everything is on a slow link.
const SLOW: Duration = Duration::from_millis(500);
/// How many connections of a hundred a bad link loses.
const LOST_PERCENT: u8 = 20;

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Trouble {
    /// Connections are reset, and no new ones come about.
    Cut,
    /// Nothing passes and nobody is told; it goes on where it stopped.
    Blackhole,
    /// The server has dropped the connections, and the node is never told.
    HalfOpen,
    /// Questions arrive, answers do not.
    Deaf,
    /// Answers would arrive, questions do not.
    Mute,
    /// Everything is late by half a second.
    Slow,
    /// A fifth of the connections breaks.
    Lossy,
}

impl Trouble {
    const ALL: [Self; 7] = [
        Self::Cut,
        Self::Blackhole,
        Self::HalfOpen,
        Self::Deaf,
        Self::Mute,
        Self::Slow,
        Self::Lossy,
    ];

    /// Any of them.
    pub(crate) fn draw(random: &mut StdRng) -> Self {
        Self::ALL[random.random_range(0..Self::ALL.len())]
    }

    const fn fault(self) -> Fault {
        match self {
            Self::Cut => Fault::Cut,
            Self::Blackhole => Fault::Blackhole,
            Self::HalfOpen => Fault::HalfOpen,
            Self::Deaf => Fault::OneWay {
                held: Way::ToClient,
            },
            Self::Mute => Fault::OneWay {
                held: Way::ToServer,
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
        let (mut proxies, mut urls) = (BTreeMap::new(), BTreeMap::new());
        for server in servers {
            let proxy = FaultProxy::before(server.address(), seed).await?;
            let (theirs, ours) = (server.address().to_string(), proxy.address().to_string());
            urls.insert(server.service, server.work_url()?.replace(&theirs, &ours));
            proxies.insert(server.service, proxy);
        }
        Ok(Self { proxies, urls })
    }

    pub(crate) fn url(&self, service: Service) -> anyhow::Result<String> {
        self.urls
            .get(&service)
            .cloned()
            .with_context(|| format!("no way to {}", service.name()))
    }

    /// Breaks the way to a server; `false` when it is broken already.
    pub(crate) fn trouble(&self, service: Service, trouble: Trouble) -> bool {
        let Some(proxy) = self
            .proxies
            .get(&service)
            .filter(|proxy| proxy.fault() == Fault::None)
        else {
            return false;
        };
        proxy.set(trouble.fault());
        true
    }

    pub(crate) fn heal(&self, service: Service) {
        if let Some(proxy) = self.proxies.get(&service) {
            proxy.heal();
        }
    }
}
