//! What running attempts write beside their end.

use async_trait::async_trait;
use longhaul_domain::{
    Json, Lease, LogLine, StoreError,
    artifact::{ArtifactNote, ArtifactRecord},
    contract::store::{AttemptData, Verdict},
};

use super::MemoryStore;

#[async_trait]
impl AttemptData for MemoryStore {
    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        self.node_call("save_progress", |state, now| {
            state.save_progress(reports, now)
        })
        .await
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        if let Some(watch) = &self.checkpoint_watch {
            watch.before().await;
        }

        // The lock must be released before the watch is awaited.
        let verdict = {
            let (mut state, now) = self.begin();
            state.save_checkpoint(lease, checkpoint, now)
        };

        if let Some(watch) = &self.checkpoint_watch
            && verdict.is_accepted()
        {
            watch.after().await;
        }

        Ok(verdict)
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        let (mut state, now) = self.begin();
        state.append_logs(lines, now)
    }

    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        let (mut state, now) = self.begin();
        state.note_artifact(note, now)
    }
}
