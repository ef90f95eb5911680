//! What running attempts write before their end.

use async_trait::async_trait;
use longhaul_domain::{
    Json, Lease, LogLine, StoreError,
    artifact::{ArtifactNote, ArtifactRecord},
    contract::store::{AttemptData, Verdict},
};

use super::SqlStore;
use crate::operations::{
    logs::AppendLogs,
    progress::{SaveState, Saved},
};

#[async_trait]
impl AttemptData for SqlStore {
    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        let operation = SaveState {
            saved: Saved::Progress,
            reports: reports.to_vec(),
        };
        self.run("save_progress", operation).await
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        let operation = SaveState {
            saved: Saved::Checkpoint,
            reports: vec![(*lease, checkpoint.clone())],
        };
        Ok(self.run("save_checkpoint", operation).await?[0])
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        let entries = lines.to_vec();
        self.run("append_logs", AppendLogs { entries }).await
    }

    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        self.run("note_artifact", note.clone()).await
    }
}
