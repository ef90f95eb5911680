//! Progress as handlers report it, and how it comes into the store: seen at once, written seldom (R37).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use longhaul_domain::{Json, Lease};
use longhaul_engine::{Engine, pending_progress::PendingProgress};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::Notify;

use crate::patience;

/// How far a task has come. A number is a percentage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// Whatever the type wants to show besides, as JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<serde_json::Value>,
}

impl Progress {
    /// So many percent, from 0 to 100.
    pub fn percent(percent: f64) -> Self {
        Self {
            percent: percent.clamp(0.0, 100.0),
            message: None,
            details: None,
        }
    }

    /// So many of so many.
    pub fn of(done: usize, all: usize) -> Self {
        Self::percent(if all == 0 {
            100.0
        } else {
            done as f64 * 100.0 / all as f64
        })
    }

    /// Adds a line for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds a value of the type's own. [`TypeSettings::progress`](crate::TypeSettings::progress) has its schema published.
    #[must_use]
    pub fn details(mut self, details: &impl Serialize) -> Self {
        self.details = serde_json::to_value(details).ok();
        self
    }

    /// That value, as the Rust type that it was made of; nothing if there is none.
    pub fn read_details<D: DeserializeOwned>(&self) -> Result<Option<D>, serde_json::Error> {
        self.details.as_ref().map(D::deserialize).transpose()
    }

    /// Progress as it is kept. What another program has reported in a form of its own is shown as details, whole.
    pub(crate) fn read(kept: serde_json::Value) -> Self {
        if let Some(percent) = kept.as_f64() {
            return Self::percent(percent);
        }
        let is_known = |name: &String| matches!(name.as_str(), "percent" | "message" | "details");
        if kept
            .as_object()
            .is_some_and(|fields| fields.keys().all(is_known))
            && let Ok(progress) = Self::deserialize(&kept)
        {
            return progress;
        }
        let percent = kept
            .get("percent")
            .and_then(serde_json::Value::as_f64)
            .unwrap_or(0.0);
        Self {
            details: Some(kept),
            ..Self::percent(percent)
        }
    }
}

/// What progress with details of this type looks like.
pub(crate) fn schema_with<D: JsonSchema>() -> Schema {
    #[derive(JsonSchema)]
    #[schemars(rename = "Progress")]
    #[expect(dead_code, reason = "the form of `Progress`, for its schema alone")]
    struct With<D> {
        /// From 0 to 100.
        percent: f64,
        /// For people.
        message: Option<String>,
        /// What the type shows besides.
        details: Option<D>,
    }
    schema_for!(With<D>)
}

impl From<u8> for Progress {
    fn from(percent: u8) -> Self {
        Self::percent(f64::from(percent))
    }
}

impl From<i32> for Progress {
    fn from(percent: i32) -> Self {
        Self::percent(f64::from(percent))
    }
}

impl From<f64> for Progress {
    fn from(percent: f64) -> Self {
        Self::percent(percent)
    }
}

/// The newest progress of every task that runs on this node, on its way to the store.
#[derive(Debug, Default)]
pub(crate) struct ProgressKeeper {
    pending: Mutex<PendingProgress>,
    /// One write at a time: an older report must not land after a newer one.
    writing: tokio::sync::Mutex<()>,
    pub(crate) wake: Notify,
}

impl ProgressKeeper {
    fn pending(&self) -> MutexGuard<'_, PendingProgress> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, lease: Lease, progress: Json, is_full: bool) {
        if self.pending().note(lease, progress, is_full) {
            self.wake.notify_one();
        }
    }

    /// Writes what is due. Progress is not the truth: what cannot be written now is written with the next.
    pub(crate) async fn write(&self, engine: &Engine) {
        let _turn = self.writing.lock().await;
        let due = self.pending().due(Instant::now());
        if due.is_empty() {
            return;
        }
        let written = patience::within(patience::WRITE, engine.save_progress(&due)).await;
        if let Err(error) = &written {
            tracing::debug!(%error, "progress could not be written and waits for the next time");
        }
        let mut pending = self.pending();
        due.iter()
            .for_each(|(lease, _)| pending.answered(lease, written.is_ok()));
    }

    /// The task's attempt is about to be reported: a 100 % that is not known to be written goes first, after whatever is
    /// under way.
    pub(crate) async fn close(&self, engine: &Engine, lease: &Lease) {
        let is_owed = self.pending().is_owed(lease);
        let _turn = if is_owed {
            Some(self.writing.lock().await)
        } else {
            None
        };
        let last = self.pending().close(lease);
        if let Some(last) = last
            && let Err(error) =
                patience::within(patience::WRITE, engine.save_progress(&[last])).await
        {
            tracing::debug!(%error, "the last progress could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_domain::{
        NewTask, NodeId,
        contract::{
            Store as _,
            store::{Access, ClaimRequest},
        },
        event::OutboxPolicy,
    };
    use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

    use super::*;
    use crate::quiet;

    fn json(text: &str) -> Json {
        Json::parse("progress", text).unwrap()
    }

    /// An engine with one task that runs, and its lease.
    async fn running() -> (Arc<Engine>, Lease) {
        let store = MemoryStore::new(TestClock::new(), OutboxPolicy::default());
        store
            .submit_task(NewTask::new("u-1", "t", "q", json("{}")))
            .await
            .unwrap();
        let node_id = NodeId(uuid::Uuid::nil());
        store.register_node(node_id, "n", "h", None).await.unwrap();
        let (queues, task_types) = (vec!["q".to_owned()], vec!["t".to_owned()]);
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
        (quiet::engine(store), lease)
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    struct Pages {
        read: u32,
    }

    #[test]
    fn details_come_back_as_the_type_that_they_were_made_of() {
        let told = Progress::of(1, 2)
            .message("reading")
            .details(&Pages { read: 7 });
        let kept = Progress::read(serde_json::to_value(&told).unwrap());
        assert_eq!(kept, told);
        assert_eq!(
            kept.read_details::<Pages>().unwrap(),
            Some(Pages { read: 7 })
        );
        assert!(kept.read_details::<String>().is_err());
        assert_eq!(
            Progress::percent(1.0).read_details::<Pages>().unwrap(),
            None
        );
    }

    #[test]
    fn progress_of_another_form_is_shown_all_the_same() {
        assert_eq!(
            Progress::read(serde_json::json!(40)),
            Progress::percent(40.0)
        );
        assert_eq!(
            Progress::read(serde_json::json!("half")).details,
            Some(serde_json::json!("half"))
        );
        let theirs = serde_json::json!({ "percent": 40, "stage": "second" });
        assert_eq!(
            Progress::read(theirs.clone()),
            Progress {
                details: Some(theirs),
                ..Progress::percent(40.0)
            }
        );
    }

    #[test]
    fn the_schema_of_progress_is_that_of_its_form_and_details() {
        let schema = schema_with::<Pages>().to_value();
        assert_eq!(schema["required"], serde_json::json!(["percent"]));
        assert_eq!(
            schema["$defs"]["Pages"]["properties"]["read"]["type"],
            "integer"
        );
        let (plain, own) = (schema_for!(Progress).to_value(), &schema["properties"]);
        for field in ["percent", "message"] {
            assert_eq!(
                plain["properties"][field]["type"], own[field]["type"],
                "{field}"
            );
        }
        assert_eq!(
            plain["properties"].as_object().unwrap().len(),
            own.as_object().unwrap().len()
        );
    }

    #[tokio::test]
    async fn a_full_that_is_not_written_yet_goes_before_the_report() {
        let (engine, lease) = running().await;
        let keeper = ProgressKeeper::default();
        keeper.note(lease, json("100"), true);
        keeper.close(&engine, &lease).await;
        let task = engine
            .store
            .get_task(&Access::All, lease.task_id)
            .await
            .unwrap();
        assert_eq!(task.progress, Some(json("100")));
    }

    #[tokio::test]
    async fn a_full_comes_after_whatever_is_under_way() {
        let (engine, lease) = running().await;
        let keeper = ProgressKeeper::default();
        keeper.note(lease, json("100"), true);
        let under_way = keeper.writing.lock().await;
        let mut closing = Box::pin(keeper.close(&engine, &lease));
        assert!(futures::poll!(closing.as_mut()).is_pending());
        engine.save_progress(&[(lease, json("1"))]).await.unwrap();
        drop(under_way);
        closing.await;
        let task = engine
            .store
            .get_task(&Access::All, lease.task_id)
            .await
            .unwrap();
        assert_eq!(task.progress, Some(json("100")));
    }
}
