//! A node and its store with a line between them that the test holds: what the loops do when answers are late or never
//! come. Time is tokio's, which stands still and is moved together with the store's.

mod line;

mod silence;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::event::OutboxPolicy;
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use crate::Builder;
use line::Line;

/// A store in memory at the other end of a line.
struct Far {
    clock: TestClock,
    line: Arc<Line>,
    store: Arc<MemoryStore>,
}

impl Far {
    fn new() -> Self {
        let (clock, line) = (TestClock::fixed(), Arc::new(Line::default()));
        let watch: Arc<Line> = Arc::clone(&line);
        let store = Arc::new(MemoryStore::new(clock.clone(), OutboxPolicy::default()).with_node_watch(watch));
        Self { clock, line, store }
    }

    fn builder(&self) -> Builder {
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        Builder::on(store, Arc::new(self.clock.clone()))
    }

    /// Lets the time go on, for the node and for the store alike.
    async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(50);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.clock.advance_ms(50);
            tokio::time::sleep(step).await;
        }
    }
}
