//! `longhaul worker`: a node that only runs tasks.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};

use super::{
    config_file::ConfigFile,
    node::{Node, Role},
    serve::greet,
};
use crate::config::{self, Config, QueueShare};

/// Options of `longhaul worker`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul worker --queues vip_short=4,free_default=2")]
pub struct Worker {
    #[command(flatten)]
    config: ConfigFile,
    /// The queues to serve, each with its own slots, instead of worker.queues of the configuration.
    #[arg(long, value_delimiter = ',', value_name = "NAME=SLOTS")]
    queues: Vec<String>,
    /// Register the sample task types and the novel application.
    #[arg(long)]
    samples: bool,
}

impl Worker {
    /// The configuration of the node.
    pub fn config(&self) -> anyhow::Result<Config> {
        let mut config = config::load(&self.config.sources())?;
        if !self.queues.is_empty() {
            config.worker.queues = queues(&self.queues)?;
            let reserved = config.worker.queues.values().map(|queue| queue.reserved);
            config.worker.slots = reserved.sum();
        }

        Ok(config)
    }
}

pub async fn run(worker: Worker, config: Config) -> anyhow::Result<()> {
    Node {
        config,
        roles: vec![Role::Worker],
        samples: worker.samples,
        greet,
    }
    .run()
    .await
}

fn queues(given: &[String]) -> anyhow::Result<BTreeMap<String, QueueShare>> {
    let mut shares = BTreeMap::new();
    for text in given {
        let refuse = || {
            format!(
                "--queues has {text:?}; allowed: NAME=SLOTS with at least one slot, such as \
                 vip_short=4"
            )
        };
        let (name, slots) = text.split_once('=').with_context(refuse)?;
        let slots: usize = slots.parse().with_context(refuse)?;
        let is_label = longhaul::operating::bounds::check_label("queue", name).is_ok();
        ensure!(slots > 0 && is_label, refuse());

        let share = QueueShare {
            reserved: slots,
            at_most: Some(slots),
            ..QueueShare::default()
        };
        let before = shares.insert(name.to_owned(), share);
        ensure!(before.is_none(), "--queues names {name} twice");
    }

    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_named_with_their_slots() {
        let read = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
            queues(&given)
        };

        let shares = read(&["vip_short=4", "free_default=2"]).unwrap();
        assert_eq!(
            shares["vip_short"],
            QueueShare {
                reserved: 4,
                at_most: Some(4),
                share: 1
            }
        );

        for bad in [
            &["vip_short"][..],
            &["=4"],
            &["a=0"],
            &["a=many"],
            &["a=1", "a=2"],
            &["a b=1"],
        ] {
            assert!(
                read(bad).unwrap_err().to_string().contains("--queues"),
                "{bad:?}"
            );
        }
    }
}
