//! A store in memory that a test can stand before, and programs on it.

use std::sync::Arc;

use longhaul::{Builder, Context, Outcome, Task, testing};
use longhaul_domain::event::OutboxPolicy;
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

pub(crate) fn store() -> MemoryStore {
    MemoryStore::new(TestClock::new(), OutboxPolicy::default())
}

/// A program on this store. It starts its own worker.
pub(crate) fn on(store: &Arc<MemoryStore>) -> Builder {
    testing::on(Arc::clone(store) as _, Arc::new(TestClock::new()))
}

/// Returns its parameter.
pub(crate) struct Echo;

impl Task for Echo {
    const TYPE: &'static str = "echo";
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        Ok(ctx.params)
    }
}
