//! Files of attempts whose process dies.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::FutureExt as _;
use longhaul_domain::{
    Json, NewTask, NodeId, TaskId,
    contract::{
        ArtifactStore, Store as _,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
        store::ClaimRequest,
    },
    event::OutboxPolicy,
    ids::ArtifactId,
};
use longhaul_engine::{
    Files,
    files::FileLife,
    service::Duty as _,
    services::{DutySettings, Sweeper},
    signer::UrlSigner,
};
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use crate::quiet;

/// A process that dies while it writes a file: the write is never answered.
#[derive(Debug, Default)]
struct Dying {
    removed: Mutex<Vec<String>>,
}

#[async_trait]
impl ArtifactStore for Dying {
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
        self.removed.lock().unwrap().push(key.to_owned());
        Ok(())
    }

    async fn remove_all(&self, _: TaskId) -> Result<(), ArtifactError> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_crash_leaves_of_a_file_is_swept_when_it_would_have_expired() {
    let clock = TestClock::new();
    let store = MemoryStore::new(clock.clone(), OutboxPolicy::default());
    let node_id = NodeId(uuid::Uuid::nil());
    store.register_node(node_id, "n", "h", None).await.unwrap();
    store
        .submit_task(NewTask::new(
            "u-1",
            "t",
            "q",
            Json::trusted("null".to_owned()),
        ))
        .await
        .unwrap();
    let (queues, task_types) = (vec!["q".to_owned()], vec!["t".to_owned()]);
    let request = ClaimRequest {
        node_id,
        host: "h".to_owned(),
        queues,
        task_types,
        limit: 1,
    };
    let task = store.claim_tasks(&request).await.unwrap().remove(0);
    let engine = quiet::engine(store);
    let dying = Arc::new(Dying::default());
    let (signer, life) = (UrlSigner::new(|| Ok([7; 32])), FileLife::default());
    let files = Files {
        store: dying.clone(),
        signer,
        life,
    };
    let id = ArtifactId(uuid::Uuid::from_u128(9));
    let (file_name, content_type) = ("a.txt", "text/plain");
    let new = NewArtifact {
        id,
        task_id: task.id,
        attempt: task.attempt,
        file_name,
        content_type,
        bytes: b"half",
    };
    let kept = files
        .keep(&engine, &task, task.lease().unwrap(), new)
        .now_or_never();
    assert!(kept.is_none(), "the process dies in the middle of it");
    let sweeper = Sweeper::new(&DutySettings::default(), dying.clone());
    sweeper.pass(&engine).await.unwrap();
    assert!(
        dying.removed.lock().unwrap().is_empty(),
        "its time is not over"
    );
    clock.advance_ms(u64::try_from(life.free.as_millis()).unwrap());
    sweeper.pass(&engine).await.unwrap();
    assert_eq!(*dying.removed.lock().unwrap(), [new.key()]);
}
