//! Ends that a handler did not choose: a timeout that it does not notice, a panic where it is
//! dropped, a full disk.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
    mpsc,
};
use std::time::Duration;

use async_trait::async_trait;
use longhaul::{Context, Outcome, Status, Task, TaskId, TypeSettings, testing::TestLonghaul};
use longhaul_domain::contract::{
    ArtifactStore,
    artifact_store::{Artifact, ArtifactError, NewArtifact},
};
use tokio::sync::oneshot;

use crate::memory_store::Echo;

/// Long enough for the thread to start on a busy machine.
const PAST: Duration = Duration::from_secs(1);

/// Blocks its thread past its timeout, and sends which calls are refused then.
struct Late {
    go_on: Mutex<mpsc::Receiver<()>>,
    refused: Mutex<Option<oneshot::Sender<[bool; 5]>>>,
}

impl Task for Late {
    const TYPE: &'static str = "late";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let mut state = ctx.state::<u32>()?;
        self.go_on.lock().unwrap().recv()?;
        let refused = [
            ctx.check().is_err(),
            ctx.is_cancelled(),
            ctx.progress(50).await.is_err(),
            state.change(|state| *state = 1).is_err(),
            ctx.save_checkpoint(&2).await.is_err(),
        ];

        let sender = self.refused.lock().unwrap().take();
        sender.unwrap().send(refused).unwrap();
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().blocking().timeout(PAST).max_attempts(1)
    }
}

#[tokio::test]
async fn a_handler_that_is_past_its_timeout_may_do_nothing_more() {
    let (go_on, gate) = mpsc::channel();
    let (sender, refused) = oneshot::channel();
    let late = Late {
        go_on: Mutex::new(gate),
        refused: Mutex::new(Some(sender)),
    };
    let longhaul = TestLonghaul::new().register(late).start();
    let handle = longhaul.submit::<Late>(()).await.unwrap();

    longhaul.run_until_idle().await;
    longhaul.assert_ended(&handle, Status::DeadLetter);
    go_on.send(()).unwrap();
    assert_eq!(refused.await.unwrap(), [true; 5]);
    assert_eq!(
        longhaul.engine().progress_here(handle.id()),
        None,
        "progress of an ended task is never removed"
    );
}

#[tokio::test]
async fn a_thread_that_goes_on_after_its_timeout_keeps_its_slot() {
    let (go_on, gate) = mpsc::channel();
    let (sender, refused) = oneshot::channel();
    let late = Late {
        go_on: Mutex::new(gate),
        refused: Mutex::new(Some(sender)),
    };
    let longhaul = TestLonghaul::new()
        .register(late)
        .register(Echo)
        .configure(|builder| builder.slots(1))
        .start();

    let hung = longhaul.submit::<Late>(()).await.unwrap();
    longhaul.run_until_idle().await;
    longhaul.assert_ended(&hung, Status::DeadLetter);
    let next = longhaul.submit::<Echo>(7).await.unwrap();
    longhaul.run_until_idle().await;
    assert_eq!(
        longhaul.record(&next).status,
        Status::Queued,
        "its slot is taken"
    );

    go_on.send(()).unwrap();
    refused.await.unwrap();
    let is_run = async {
        while longhaul.record(&next).status != Status::Completed {
            longhaul.run_until_idle().await;
            tokio::task::yield_now().await;
        }
    };

    tokio::time::timeout(Duration::from_secs(60), is_run)
        .await
        .expect("the slot is free again");
}

/// Panics where it is dropped.
struct Fragile;

impl Task for Fragile {
    const TYPE: &'static str = "fragile";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        struct Glass;
        impl Drop for Glass {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }

        let _glass = Glass;
        std::future::pending().await
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new()
            .timeout(Duration::from_millis(20))
            .max_attempts(1)
    }
}

#[tokio::test]
async fn a_panic_of_a_handler_that_is_dropped_ends_its_attempt_and_frees_its_slot() {
    let builder = TestLonghaul::new().register(Fragile).register(Echo);
    let longhaul = builder.configure(|builder| builder.slots(1)).start();
    let fragile = longhaul.submit::<Fragile>(()).await.unwrap();
    longhaul.run_until_idle().await;
    longhaul.assert_ended(&fragile, Status::DeadLetter);
    let error = longhaul.record(&fragile).error.unwrap();

    assert_eq!(
        (error.class.as_str(), error.message.as_str()),
        ("panic", "dropped")
    );
    let next = longhaul.submit::<Echo>(1).await.unwrap();

    longhaul.run_until_idle().await;
    longhaul.assert_ended(&next, Status::Completed);
}

/// A disk that is full at first.
#[derive(Debug, Default)]
struct FullDisk(AtomicBool);

#[async_trait]
impl ArtifactStore for FullDisk {
    async fn put(&self, artifact: NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        if !self.0.swap(true, Ordering::SeqCst) {
            return Err(ArtifactError::Unavailable(
                "no space left on device".to_owned(),
            ));
        }

        let file_name = artifact.file_name.to_owned();
        let content_type = artifact.content_type.to_owned();
        Ok(Artifact {
            key: artifact.key(),
            file_name,
            content_type,
            bytes: 1,
        })
    }

    async fn get(&self, _key: &str) -> Result<(Artifact, Vec<u8>), ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn read(&self, _key: &str, _offset: u64, _length: u64) -> Result<Vec<u8>, ArtifactError> {
        Err(ArtifactError::NotFound)
    }

    async fn remove(&self, _key: &str) -> Result<(), ArtifactError> {
        Ok(())
    }

    async fn remove_all(&self, _task: TaskId) -> Result<(), ArtifactError> {
        Ok(())
    }
}

/// Stores one file.
struct Draw;

impl Task for Draw {
    const TYPE: &'static str = "draw";
    type Params = ();
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        Ok(ctx.store_artifact("a.txt", "text/plain", b"a").await?.key)
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_kept_now_is_worth_a_retry() {
    let longhaul = TestLonghaul::new()
        .register(Draw)
        .artifact_store(Arc::new(FullDisk::default()))
        .start();
    let handle = longhaul.submit::<Draw>(()).await.unwrap();

    longhaul.run_until_done().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert_eq!(longhaul.record(&handle).retry_count, 1);
}
