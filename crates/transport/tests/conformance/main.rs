//! Every test of the transports in one program.
//!
//! The suites of the contracts come from the testkit; what only one implementation has (its bounds, its files) stands
//! beside them here. `cargo test -p longhaul-transport --features fleet --test conformance -- local::stream_log` runs a part.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod bounds;
mod fresh;
mod planted;
mod rabbitmq;
mod redis;

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul_testkit::{
    artifact_suite, broker_suite, clock::TestClock, doorbell_suite, event_bus_suite,
    progress_cache_suite, rate_limiter_suite, stream_log_suite, suite, suite::Fresh,
};
use longhaul_transport::local::{
    FolderArtifactStore, LocalDoorbell, MemoryBroker, MemoryEventBus, MemoryProgressCache,
    MemoryRateLimiter, MemoryStreamLog, StreamBounds,
};

use fresh::FreshFolder;

fn main() {
    let mut trials = local_trials();
    trials.extend(bounds::trials());
    trials.extend(planted::trials());
    trials.extend(rabbitmq::trials());
    trials.extend(redis::trials());
    // Last: servers that start take the processors from those that the others share, and there silence counts as a death.
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
    let doorbell: doorbell_suite::DoorbellFactory = Arc::new(move |()| {
        Box::pin(async move { Fresh::new(Arc::new(LocalDoorbell::new()) as _, clock(), None) })
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
    trials.extend(doorbell_suite::trials("local", &doorbell));
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
