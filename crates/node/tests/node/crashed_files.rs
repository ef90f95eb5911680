//! Files of attempts whose process crashes.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use longhaul_domain::{
    Json, NewTask, NodeId, TaskId,
    contract::{
        ArtifactStore,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
        store::{ClaimRequest, Leases, TaskCommands},
    },
    event::OutboxPolicy,
    ids::ArtifactId,
};
use longhaul_engine::{
    Engine, Files,
    files::{FileLife, UrlSigner},
};
use longhaul_node::maintenance::{MaintenanceSettings, Sweeper, job::MaintenanceJob as _};
use longhaul_testkit::{clock::TestClock, names::queue_name, reference::MemoryStore};
use longhaul_transport::local::{LocalNotifier, MemoryEventBus};
use parking_lot::Mutex;

/// The files of a process that crashes during a write: the write is never answered.
#[derive(Debug, Default)]
struct Unanswered {
    removed: Mutex<Vec<String>>,
}

#[async_trait]
impl ArtifactStore for Unanswered {
    async fn put(&self, _: NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        std::future::pending().await
    }

    async fn get(&self, _: &str) -> Result<(Artifact, Vec<u8>), ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn read(&self, _: &str, _: u64, _: u64) -> Result<Vec<u8>, ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn remove(&self, key: &str) -> Result<(), ArtifactError> {
        self.removed.lock().push(key.to_owned());
        Ok(())
    }

    async fn remove_all(&self, _: TaskId) -> Result<(), ArtifactError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_half_written_file_is_removed_when_it_would_have_expired() {
    let clock = TestClock::new();
    let store = MemoryStore::new(clock.clone(), OutboxPolicy::default());
    let node_id = NodeId(uuid::Uuid::nil());
    store.register_node(node_id, "n", "h", None).await.unwrap();

    store
        .submit_task(NewTask::new(
            "u-1",
            "t",
            queue_name("q"),
            Json::trusted("null".to_owned()),
        ))
        .await
        .unwrap();

    let queues = vec![queue_name("q")];
    let task_types = vec!["t".to_owned()];
    let request = ClaimRequest {
        node_id,
        host: "h".to_owned(),
        queues,
        task_types,
        limit: 1,
    };

    let task = store.claim_tasks(&request).await.unwrap().remove(0);
    let bus = Arc::new(MemoryEventBus::new(10));
    let notifier = Arc::new(LocalNotifier::new());
    let engine = Engine::new(Arc::new(store), bus, notifier);
    let files_store = Arc::new(Unanswered::default());
    let signer = UrlSigner::new(|| Ok([7; 32]));
    let life = FileLife::default();
    let files = Files {
        store: files_store.clone(),
        signer,
        life,
    };

    let id = ArtifactId(uuid::Uuid::from_u128(9));
    let file_name = "a.txt";
    let content_type = "text/plain";

    let new = NewArtifact {
        id,
        task_id: task.id,
        attempt: task.attempt,
        file_name,
        content_type,
        bytes: b"half",
    };

    let stored = files
        .keep(&engine, &task, task.lease().unwrap(), new)
        .now_or_never();
    assert!(stored.is_none(), "the process crashes during the write");
    let sweeper = Sweeper::new(&MaintenanceSettings::default(), files_store.clone());

    sweeper.pass(&engine).await.unwrap();
    assert!(
        files_store.removed.lock().is_empty(),
        "the file has not expired"
    );
    clock.advance_ms(u64::try_from(life.free.as_millis()).unwrap());
    sweeper.pass(&engine).await.unwrap();
    assert_eq!(*files_store.removed.lock(), [new.key()]);
}
