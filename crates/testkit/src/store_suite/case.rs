//! A case of the suite and how it runs.

use std::sync::Arc;

use futures::future::BoxFuture;
use libtest_mimic::Trial;
use longhaul_domain::event::OutboxPolicy;
use tokio::runtime::{Builder, Runtime};

use super::invariants;
use crate::fixture::{Fixture, FixtureFactory};

/// A sentence about the contract and the code that checks it.
pub(super) struct Case {
    name: &'static str,
    outbox: OutboxPolicy,
    run: Run,
}

enum Run {
    OnOneStore(fn(Arc<Fixture>) -> BoxFuture<'static, ()>),
    /// For cases that compare many stores.
    OnManyStores(fn(&Runtime, &FixtureFactory)),
}

impl Case {
    pub(super) fn new(name: &'static str, run: fn(Arc<Fixture>) -> BoxFuture<'static, ()>) -> Self {
        Self {
            name,
            outbox: OutboxPolicy::default(),
            run: Run::OnOneStore(run),
        }
    }

    pub(super) fn on_many_stores(name: &'static str, run: fn(&Runtime, &FixtureFactory)) -> Self {
        Self {
            name,
            outbox: OutboxPolicy::default(),
            run: Run::OnManyStores(run),
        }
    }

    /// The case on a store that writes outbox messages.
    pub(super) fn with_outbox(self, outbox: OutboxPolicy) -> Self {
        Self { outbox, ..self }
    }

    pub(super) fn into_trial(self, backend: &str, group: &str, factory: FixtureFactory) -> Trial {
        let name = format!("{backend}::{group}::{}", self.name);
        Trial::test(name, move || {
            let runtime = Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()?;

            match self.run {
                Run::OnManyStores(run) => run(&runtime, &factory),
                Run::OnOneStore(run) => runtime.block_on(async {
                    let fixture = Arc::new(factory(self.outbox).await);
                    run(Arc::clone(&fixture)).await;
                    invariants::check(&fixture).await;
                }),
            }

            Ok(())
        })
    }
}

/// A table of cases, each named like its function.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        vec![$(
            $crate::store_suite::case::Case::new(stringify!($case), |fixture| {
                Box::pin($case(fixture))
            })
        ),*]
    };
}
pub(super) use cases;
