//! Slots that become free: reports that wait, and tasks that start in them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul::{Context, Outcome, Status, Task, TypeSettings};
use tokio::sync::Semaphore;

use crate::{
    remote_store::{Counted, RemoteStore, without_polling},
    store_link::Leg,
};

/// Counts how often it runs.
#[derive(Default, Clone)]
struct Quick(Arc<AtomicUsize>);

impl Task for Quick {
    const TYPE: &'static str = "quick";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn reports_that_wait_take_room_until_they_are_delivered() {
    let remote = RemoteStore::new();
    let quick = Quick::default();
    let longhaul = remote
        .builder()
        .register(quick.clone())
        .worker(without_polling(10))
        .start()
        .await
        .unwrap();

    remote.link.hold("finish_tasks", Leg::Request);
    let handles = longhaul
        .submit_all((0..3_000).map(|_| longhaul.submit::<Quick>(())))
        .await
        .unwrap();

    remote.pass(Duration::from_secs(5)).await;
    let ran = quick.0.load(Ordering::SeqCst);
    assert!(
        (1_000..1_600).contains(&ran),
        "{ran} ran while no end was reported"
    );
    remote.link.free("finish_tasks", Leg::Request);
    remote.pass(Duration::from_secs(5)).await;
    assert_eq!(quick.0.load(Ordering::SeqCst), handles.len());

    longhaul.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ends_that_come_together_are_reported_together() {
    let remote = RemoteStore::new();
    let quick = Quick::default();
    let longhaul = remote
        .builder()
        .register(quick.clone())
        .worker(without_polling(1_000))
        .start()
        .await
        .unwrap();

    let handles = longhaul
        .submit_all((0..1_000).map(|_| longhaul.submit::<Quick>(())))
        .await
        .unwrap();
    remote.pass(Duration::from_secs(5)).await;

    for handle in handles {
        assert_eq!(handle.status().await.unwrap(), Status::Completed);
    }

    let finishes = remote.link.count("finish_tasks", Leg::Answer);
    assert!(
        (1..=10).contains(&finishes),
        "{finishes} calls for 1,000 ends"
    );
    longhaul.stop().await;
}

/// Ends when it may.
struct Gated(Arc<Semaphore>, Arc<AtomicUsize>);

impl Task for Gated {
    const TYPE: &'static str = "gated";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.acquire().await?.forget();
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().concurrency(1)
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_task_of_a_full_type_starts_at_once_though_another_type_is_idle() {
    let remote = RemoteStore::new();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let gated = Gated(Arc::clone(&gate), Arc::clone(&started));

    let longhaul = remote
        .builder()
        .register(gated)
        .register(Counted::default())
        .worker(without_polling(10))
        .start()
        .await
        .unwrap();

    longhaul
        .submit_all((0..3).map(|_| longhaul.submit::<Gated>(())))
        .await
        .unwrap();
    for running in 1..=3 {
        remote.pass(Duration::from_secs(1)).await;
        assert_eq!(started.load(Ordering::SeqCst), running);
        gate.add_permits(1);
    }

    longhaul.stop().await;
}
