//! Writes the newest progress of each running task to the store. Listeners see progress at once;
//! the store gets it every few seconds.

use std::time::Instant;

use longhaul_domain::{Json, Lease};
use longhaul_engine::{Engine, progress::WriteBehind};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::deadlines::{WRITE_TIMEOUT, within};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ProgressWriter {
    reports: Mutex<WriteBehind>,
    /// One write at a time: an older report must not land after a newer one.
    writing: tokio::sync::Mutex<()>,
    due: Notify,
}

impl ProgressWriter {
    fn reports(&self) -> MutexGuard<'_, WriteBehind> {
        // No caller holds it while it writes, so a handler that reports never waits for the store.
        self.reports.lock()
    }

    /// Adds a report. The first one of an attempt, and its first complete one, are due at once.
    pub(crate) fn add(&self, lease: Lease, progress: Json, is_complete: bool) {
        if self.reports().note(lease, progress, is_complete) {
            self.due.notify_one();
        }
    }

    /// Waits for a report that is due at once.
    pub(crate) async fn wait_for_due(&self) {
        self.due.notified().await;
    }

    /// Writes the reports that are due. A report that cannot be written is written with the next
    /// ones.
    pub(crate) async fn write(&self, engine: &Engine) {
        // Locked before the due reports are taken: what is taken later is written later.
        let _writing = self.writing.lock().await;
        let due = self.reports().due(Instant::now());
        if due.is_empty() {
            return;
        }

        let written = within(WRITE_TIMEOUT, engine.save_progress(&due)).await;
        if let Err(error) = &written {
            tracing::debug!(
                %error,
                "progress could not be written; retrying with the next reports"
            );
        }

        let mut reports = self.reports();
        for (lease, _) in &due {
            reports.answered(lease, written.is_ok());
        }
    }

    /// Forgets an attempt that is about to be reported. If its complete report is not known to be
    /// written, it is written now.
    pub(crate) async fn close(&self, engine: &Engine, lease: &Lease) {
        // A write under way may have taken the report: then this one comes after it.
        let has_unwritten_complete = self.reports().has_unwritten_complete(lease);
        let _writing = if has_unwritten_complete {
            Some(self.writing.lock().await)
        } else {
            None
        };

        let Some(last) = self.reports().close(lease) else {
            return;
        };
        if let Err(error) = within(WRITE_TIMEOUT, engine.save_progress(&[last])).await {
            tracing::debug!(
                %error,
                task_id = %lease.task_id.0,
                "the last progress could not be written"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_domain::{
        NewTask, NodeId,
        contract::store::{Access, ClaimRequest, Leases, TaskCommands},
        event::OutboxPolicy,
    };
    use longhaul_testkit::{clock::TestClock, names::queue_name, reference::MemoryStore};
    use longhaul_transport::local::{LocalNotifier, MemoryEventBus};

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse("progress", text).unwrap()
    }

    /// An engine with one task that runs, and its lease.
    async fn running() -> (Arc<Engine>, Lease) {
        let store = MemoryStore::new(TestClock::new(), OutboxPolicy::default());
        store
            .submit_task(NewTask::new("u-1", "t", queue_name("q"), json("{}")))
            .await
            .unwrap();
        let node_id = NodeId(uuid::Uuid::nil());

        store.register_node(node_id, "n", "h", None).await.unwrap();
        let queues = vec![queue_name("q")];
        let task_types = vec!["t".to_owned()];
        let request = ClaimRequest {
            node_id,
            host: "h".to_owned(),
            queues,
            task_types,
            limit: 1,
        };

        let lease = store.claim_tasks(&request).await.unwrap()[0]
            .lease()
            .unwrap();
        let bus = Arc::new(MemoryEventBus::new(10));
        let notifier = Arc::new(LocalNotifier::new());
        let engine = Engine::new(Arc::new(store), bus, notifier);
        (engine, lease)
    }

    #[tokio::test]
    async fn a_complete_report_is_written_before_the_attempt_is_reported() {
        let (engine, lease) = running().await;
        let writer = ProgressWriter::default();
        writer.add(lease, json("100"), true);
        writer.close(&engine, &lease).await;
        let task = engine
            .reads()
            .get_task(&Access::All, lease.task_id)
            .await
            .unwrap();

        assert_eq!(task.progress, Some(json("100")));
    }

    #[tokio::test]
    async fn a_complete_report_is_written_after_the_write_under_way() {
        let (engine, lease) = running().await;
        let writer = ProgressWriter::default();
        writer.add(lease, json("100"), true);
        let under_way = writer.writing.lock().await;
        let mut closing = Box::pin(writer.close(&engine, &lease));
        assert!(futures::poll!(closing.as_mut()).is_pending());
        engine.save_progress(&[(lease, json("1"))]).await.unwrap();
        drop(under_way);
        closing.await;

        let task = engine
            .reads()
            .get_task(&Access::All, lease.task_id)
            .await
            .unwrap();

        assert_eq!(task.progress, Some(json("100")));
    }
}
