//! A node over the reference store, for unit tests. It is not registered, and its loops do not run.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    Json, LeaseToken, NewTask, NodeId, TaskId, TaskIdSequence, TaskRecord, Timestamp,
    contract::{
        ArtifactStore,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
    },
    event::OutboxPolicy,
    lifecycle::{claim, submit},
};
use longhaul_engine::{
    EngineBuilder, Files,
    files::{FileLife, UrlSigner},
    routing::Routing,
};
use longhaul_sdk::{Client, Registry};
use longhaul_testkit::{clock::TestClock, names::queue_name, reference::MemoryStore};
use longhaul_transport::local::{
    LocalNotifier, MemoryEventBus, MemoryRateLimiter, MemoryStreamLog, StreamBounds,
};

use crate::{
    node::Node,
    settings::{QueueSlots, WorkerSettings},
};

/// A node that serves the queue `q` and these types. The store refuses its claims, because it is
/// not registered.
pub(crate) fn unregistered(registry: Registry) -> Arc<Node> {
    let clock = TestClock::fixed();
    let limiter = MemoryRateLimiter::new(Arc::new(clock.clone()), Default::default()).unwrap();
    let store = MemoryStore::new(clock, OutboxPolicy::default());
    let bus = Arc::new(MemoryEventBus::new(10));
    let engine = EngineBuilder::new(Arc::new(store), bus, Arc::new(LocalNotifier::new()));
    let files = Files {
        store: Arc::new(NoFiles),
        signer: UrlSigner::new(|| Ok([0; 32])),
        life: FileLife::default(),
    };

    let streams = Arc::new(MemoryStreamLog::new(StreamBounds::default()));
    let make_client = |engine| {
        Client::new(
            engine,
            streams,
            Arc::new(files),
            Routing::default(),
            registry,
        )
    };
    let settings = WorkerSettings {
        queues: vec![QueueSlots::shared("q")],
        ..WorkerSettings::default()
    };
    Node::new(engine, make_client, Arc::new(limiter), settings, true)
}

/// A task of the type `t` in the queue `q`, in its attempt of this number.
pub(crate) fn claimed_task(attempt: u32) -> TaskRecord {
    let now = Timestamp::from_micros(1);
    let new = NewTask::new("ann", "t", queue_name("q"), Json::trusted("1".to_owned()));
    let id = TaskIdSequence::default().next_id(now, 1);
    let task = TaskRecord {
        attempt: attempt - 1,
        ..submit::decide(&new, id, now).unwrap().after
    };
    let token = LeaseToken(uuid::Uuid::from_u128(attempt.into()));

    claim::decide(&task, NodeId(uuid::Uuid::nil()), "host", token, now)
        .unwrap()
        .after
}

#[derive(Debug)]
struct NoFiles;

#[async_trait]
impl ArtifactStore for NoFiles {
    async fn put(&self, _: NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn get(&self, _: &str) -> Result<(Artifact, Vec<u8>), ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn read(&self, _: &str, _: u64, _: u64) -> Result<Vec<u8>, ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn remove(&self, _: &str) -> Result<(), ArtifactError> {
        Ok(())
    }

    async fn remove_all(&self, _: TaskId) -> Result<(), ArtifactError> {
        Ok(())
    }
}
