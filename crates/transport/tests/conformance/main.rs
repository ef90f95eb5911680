//! All tests of the transports in one program.
//!
//! The suites of the contracts come from the testkit. Tests of one implementation (its bounds, its
//! files) are here. `cargo test -p longhaul-transport --features fleet --test conformance --
//! local::stream_log` runs some of them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure stops the test"
)]

mod bounds;
mod fresh;
mod planted;
mod rabbitmq;
mod redis;

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul_testkit::{
    artifact_suite, broker_suite, clock::TestClock, event_bus_suite, memory_broker::MemoryBroker,
    notifier_suite, progress_cache_suite, rate_limiter_suite, stream_log_suite, suite,
    suite::Fresh,
};
use longhaul_transport::local::{
    FolderArtifactStore, LocalNotifier, MemoryEventBus, MemoryProgressCache, MemoryRateLimiter,
    MemoryStreamLog, StreamBounds,
};

use fresh::FreshFolder;

fn main() {
    let mut trials = local_trials();
    trials.extend(bounds::trials());
    trials.extend(planted::trials());
    trials.extend(rabbitmq::trials());
    trials.extend(redis::trials());

    // These come last: a server that starts takes processor time from the shared servers, and a
    // shared server that is slow to answer counts as away.
    trials.extend(redis::breaking::trials());
    trials.extend(rabbitmq::breaking::trials());
    libtest_mimic::run(&suite::arguments(), trials).exit();
}

fn local_trials() -> Vec<Trial> {
    let clock = TestClock::new;
    let rate_limiter: rate_limiter_suite::RateLimiterFactory = Arc::new(move |rules| {
        let clock = clock();
        let limiter = MemoryRateLimiter::new(Arc::new(clock.clone()), rules).unwrap();
        Box::pin(async { Fresh::new(Arc::new(limiter) as _, clock, None) })
    });
    let event_bus: event_bus_suite::EventBusFactory = Arc::new(move |capacity| {
        Box::pin(
            async move { Fresh::new(Arc::new(MemoryEventBus::new(capacity)) as _, clock(), None) },
        )
    });

    let stream_log: stream_log_suite::StreamLogFactory = Arc::new(move |stream_entries| {
        let bounds = StreamBounds {
            stream_entries,
            ..StreamBounds::default()
        };
        Box::pin(
            async move { Fresh::new(Arc::new(MemoryStreamLog::new(bounds)) as _, clock(), None) },
        )
    });

    let artifacts: artifact_suite::ArtifactStoreFactory = Arc::new(move |()| {
        let folder = FreshFolder::make();
        let store = FolderArtifactStore::open(folder.path()).unwrap();
        Box::pin(async move { Fresh::new(Arc::new(store) as _, clock(), Some(Box::new(folder))) })
    });
    let progress_cache: progress_cache_suite::ProgressCacheFactory = Arc::new(move |()| {
        Box::pin(
            async move { Fresh::new(Arc::new(MemoryProgressCache::default()) as _, clock(), None) },
        )
    });

    let notifier: notifier_suite::NotifierFactory = Arc::new(move |()| {
        Box::pin(async move { Fresh::new(Arc::new(LocalNotifier::new()) as _, clock(), None) })
    });
    let broker: broker_suite::BrokerFactory = Arc::new(move |()| {
        Box::pin(async move { Fresh::new(Arc::new(MemoryBroker::new()) as _, clock(), None) })
    });

    let mut trials = rate_limiter_suite::trials("local", &rate_limiter);
    trials.extend(broker_suite::trials(
        "local",
        broker_suite::Lanes::ByPriority,
        &broker,
    ));
    trials.extend(event_bus_suite::trials("local", &event_bus));
    trials.extend(stream_log_suite::trials("local", &stream_log));
    trials.extend(artifact_suite::trials("local", &artifacts));
    trials.extend(notifier_suite::trials("local", &notifier));
    trials.extend(progress_cache_suite::trials("local", &progress_cache));

    trials
}

/// One case on its own runtime.
fn trial<F: Future<Output = ()>>(name: &str, case: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on(case());
        Ok(())
    })
}
