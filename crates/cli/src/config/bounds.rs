//! Values that are of the right kind and still make no sense: refused before anything starts, by the name of their key.

use anyhow::{Context as _, ensure};
use longhaul::operating::{TokenText, WireDuration, bounds};

use super::Config;

/// The largest share of a queue: more than anybody needs to say that one queue is nothing beside another.
const MOST_SHARE: usize = 1_000;

impl Config {
    /// Refuses waits of nothing, which would be loops without a rest, and shares that are not there.
    pub(super) fn check_bounds(&self) -> anyhow::Result<()> {
        let Self {
            artifacts,
            http,
            worker,
            duties,
            ..
        } = self;
        nonzero(&[
            ("artifacts.keep_free", artifacts.keep_free),
            ("artifacts.keep_vip", artifacts.keep_vip),
            ("artifacts.keep_enterprise", artifacts.keep_enterprise),
            ("http.header_timeout", http.header_timeout),
            ("http.write_timeout", http.write_timeout),
            ("worker.poll_least", worker.poll_least),
            ("worker.heartbeat", worker.heartbeat),
            ("worker.idle_heartbeat", worker.idle_heartbeat),
            ("worker.heartbeat_timeout", worker.heartbeat_timeout),
            ("duties.lease", duties.lease),
            ("duties.rescue_every", duties.rescue_every),
            ("duties.silent", duties.silent),
            ("duties.sweep_every", duties.sweep_every),
        ])?;
        ensure!(
            worker.poll_least.0 <= worker.poll_most.0,
            "worker.poll_least is longer than worker.poll_most"
        );
        for (name, count) in [
            ("http.connections", http.connections),
            ("http.connections_per_address", http.connections_per_address),
        ] {
            ensure!(count > 0, "{name} is 0; allowed: at least 1");
        }
        self.limit_rules().check().context("limits")?;
        TokenText::mint(&self.identity.environment, || 0).context("identity.environment")?;
        self.check_queues()
    }

    fn check_queues(&self) -> anyhow::Result<()> {
        for name in self.routing().queues() {
            bounds::check_label("queue", &name).context("routing")?;
        }
        for (name, share) in &self.worker.queues {
            bounds::check_label("queue", name).context("worker.queues")?;
            ensure!(
                (1..=MOST_SHARE).contains(&share.share),
                "worker.queues.{name}.share is {}; allowed: 1 to {MOST_SHARE}",
                share.share
            );
            let least = share.reserved.max(1);
            ensure!(
                share.at_most.is_none_or(|most| most >= least),
                "worker.queues.{name}.at_most is {}; allowed: at least {least}",
                share.at_most.unwrap_or_default()
            );
        }
        let (slots, queues) = (self.worker.slots, &self.worker.queues);
        let reserved = queues
            .values()
            .fold(0_usize, |sum, share| sum.saturating_add(share.reserved));
        ensure!(
            reserved <= slots,
            "worker.queues reserve {reserved} slots, and worker.slots is {slots}"
        );
        Ok(())
    }
}

fn nonzero(waits: &[(&str, WireDuration)]) -> anyhow::Result<()> {
    let zero = waits.iter().find(|(_, wait)| wait.as_millis() == 0);
    zero.map_or(Ok(()), |(name, _)| {
        anyhow::bail!("{name} is 0; allowed: at least 1ms")
    })
}
