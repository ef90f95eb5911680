//! Promises of the worker that are tried on the store in memory, where a test can stand between a
//! handler and the store.

mod children;
mod ends;
mod hooks;
mod limits;
mod questions;
mod reports;
mod saving;
mod settings;
mod stopping;

use std::sync::Arc;

use longhaul_domain::event::OutboxPolicy;
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use crate::{Builder, Context, Outcome, Task};

fn store() -> MemoryStore {
    MemoryStore::new(TestClock::new(), OutboxPolicy::default())
}

/// A program on this store, with a worker of its own.
fn on(store: &Arc<MemoryStore>) -> Builder {
    Builder::on(Arc::clone(store) as _, Arc::new(TestClock::new()))
}

/// Answers with its parameter.
struct Echo;

impl Task for Echo {
    const TYPE: &'static str = "echo";
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        Ok(ctx.params)
    }
}
