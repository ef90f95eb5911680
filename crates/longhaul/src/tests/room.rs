//! Room for more tasks: what takes it, and who hears when there is some again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::{Counted, Far, deaf, line::Way};
use crate::{Context, Outcome, Status, Task, TypeSettings};

/// Many at once, as many as there are slots.
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
    let far = Far::new();
    let quick = Quick::default();
    let longhaul = far
        .builder()
        .register(quick.clone())
        .worker(deaf(10))
        .start()
        .await
        .unwrap();

    far.line.hold("finish_tasks", Way::There);
    let handles = longhaul
        .submit_all((0..3_000).map(|_| longhaul.submit::<Quick>(())))
        .await
        .unwrap();

    far.pass(Duration::from_secs(5)).await;
    let ran = quick.0.load(Ordering::SeqCst);
    assert!(
        (1_000..1_600).contains(&ran),
        "{ran} ran and nobody was told of their ends"
    );
    far.line.free("finish_tasks", Way::There);
    far.pass(Duration::from_secs(5)).await;
    assert_eq!(quick.0.load(Ordering::SeqCst), handles.len());

    longhaul.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ends_that_come_together_are_reported_together() {
    let far = Far::new();
    let quick = Quick::default();
    let longhaul = far
        .builder()
        .register(quick.clone())
        .worker(deaf(1_000))
        .start()
        .await
        .unwrap();

    let handles = longhaul
        .submit_all((0..1_000).map(|_| longhaul.submit::<Quick>(())))
        .await
        .unwrap();
    far.pass(Duration::from_secs(5)).await;

    for handle in handles {
        assert_eq!(handle.status().await.unwrap(), Status::Completed);
    }

    let finishes = far.line.count("finish_tasks", Way::Back);
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
    let far = Far::new();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let gated = Gated(Arc::clone(&gate), Arc::clone(&started));

    let longhaul = far
        .builder()
        .register(gated)
        .register(Counted::default())
        .worker(deaf(10))
        .start()
        .await
        .unwrap();

    longhaul
        .submit_all((0..3).map(|_| longhaul.submit::<Gated>(())))
        .await
        .unwrap();
    for running in 1..=3 {
        far.pass(Duration::from_secs(1)).await;
        assert_eq!(started.load(Ordering::SeqCst), running);
        gate.add_permits(1);
    }

    longhaul.stop().await;
}
