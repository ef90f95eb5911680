//! Settings with which nothing would ever run, or no submit would be taken, are refused when the
//! program starts.

use std::time::Duration;

use longhaul::{
    Builder, Context, Longhaul, Outcome, QueueSlots, RetryPolicy, Task, TypeSettings,
    WorkerSettings,
};

struct Set(TypeSettings);

impl Task for Set {
    const TYPE: &'static str = "set";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        self.0.clone()
    }
}

/// Why a program with these settings does not start.
async fn refused(configure: impl FnOnce(Builder) -> Builder) -> String {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a.db").display());
    let builder = Longhaul::open(&url).await.unwrap();

    configure(builder).start().await.unwrap_err().to_string()
}

#[tokio::test]
async fn of_a_type() {
    let falling = RetryPolicy {
        factor: 0.5,
        ..RetryPolicy::default()
    };

    for (settings, named) in [
        (TypeSettings::new().concurrency(0), "concurrency"),
        (TypeSettings::new().max_attempts(0), "maxAttempts"),
        (TypeSettings::new().timeout(Duration::MAX), "timeout"),
        (TypeSettings::new().timeout(Duration::ZERO), "timeout"),
        (TypeSettings::new().retry(falling), "factor"),
        (TypeSettings::new().queue("no such name!"), "queue"),
    ] {
        let why = refused(|builder| builder.register(Set(settings))).await;
        assert!(why.contains(named) && why.contains("allowed"), "{why}");
    }
}

#[tokio::test]
async fn of_a_worker() {
    let set = || Set(TypeSettings::new());
    let why = refused(|builder| builder.register(set()).resource("gpu", 0)).await;
    assert!(why.contains("gpu"), "{why}");
    let shared = || QueueSlots::shared("vip");

    for queues in [
        vec![QueueSlots {
            reserved: 3,
            at_most: Some(2),
            ..shared()
        }],
        vec![QueueSlots {
            at_most: Some(0),
            ..shared()
        }],
        vec![
            QueueSlots {
                reserved: 4,
                ..QueueSlots::shared("all")
            },
            shared(),
        ],
        vec![QueueSlots::shared("vip!")],
    ] {
        let worker = WorkerSettings {
            slots: 4,
            queues,
            ..WorkerSettings::default()
        };
        let why = refused(|builder| builder.register(set()).worker(worker)).await;
        assert!(why.contains("vip"), "{why}");
    }
}
