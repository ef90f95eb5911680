//! What other nodes tell at once, and what this process does about it.

use std::sync::Weak;
use std::time::Duration;

use longhaul_domain::contract::broker::{Signal, Signals};
use tokio::time::Instant;

use crate::Engine;

/// However many cancels are told, the leases are looked at this often and not more: each look is a statement.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Hears signals until the broker is closed or the engine is gone.
pub(crate) async fn listen(mut signals: Box<dyn Signals>, engine: Weak<Engine>) {
    let mut looked_at = Instant::now();
    let mut look_at: Option<Instant> = None;
    loop {
        tokio::select! {
            signal = signals.next() => {
                let (Some(signal), Some(engine)) = (signal, engine.upgrade()) else { return };
                match signal {
                    Signal::Cancelled { .. } => {
                        look_at.get_or_insert((looked_at + BETWEEN_LOOKS).max(Instant::now()));
                    }
                    Signal::QueueChanged { queue } => {
                        engine.doorbell.ring(&queue);
                        engine.look_at_lanes.notify_one();
                    }
                    Signal::Held { queues } => {
                        let has_backlog = !queues.is_empty();
                        if let Some(ring) = &engine.direct_ring {
                            ring.heard(queues);
                        }
                        if has_backlog {
                            engine.look_at_backlog.notify_one();
                        }
                    }
                }
            }
            () = tokio::time::sleep_until(look_at.unwrap_or(looked_at)), if look_at.is_some() => {
                let Some(engine) = engine.upgrade() else { return };
                (looked_at, look_at) = (Instant::now(), None);
                engine.look_at_leases.notify_one();
            }
        }
    }
}
