//! Hints that reach nodes without a free slot, or without the type.

use longhaul::{QueueSlots, TypeSettings};
use tokio::sync::Semaphore;

use super::*;

/// Runs one at a time, and ends when it may.
struct Gated(Arc<Semaphore>, Arc<AtomicUsize>);

impl Task for Gated {
    const TYPE: &'static str = "gated";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0
            .acquire()
            .await
            .map(tokio::sync::SemaphorePermit::forget)
            .map_err(|_| Stop::fatal("closed"))
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().concurrency(1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_full_holds_up_no_other_and_goes_on_when_it_has_room() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let types = |registry: &mut Registry| {
        registry.register(runs.clone()).unwrap();
        registry
            .register(Gated(Arc::clone(&gate), Arc::clone(&started)))
            .unwrap();
    };

    let client = fleet.client(types);
    let node = fleet.node(slots(3), types).await;
    fleet.pass(Duration::from_millis(500)).await;
    client
        .submit_all((0..10).map(|_| client.submit::<Gated>(())))
        .await
        .unwrap();
    fleet.pass(Duration::from_millis(200)).await;
    client
        .submit_all((0..10).map(|_| client.submit::<Counted>(())))
        .await
        .unwrap();

    fleet.pass(Duration::from_millis(500)).await;
    assert_eq!((started.load(Ordering::SeqCst), runs.runs()), (1, 10));
    for done in 1..10 {
        gate.add_permits(1);
        fleet.pass(Duration::from_millis(100)).await;
        assert_eq!(
            started.load(Ordering::SeqCst),
            done + 1,
            "the next one starts when one has ended"
        );
    }

    gate.add_permits(1);
    fleet.pass(Duration::from_millis(100)).await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_behind_a_node_that_is_full() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let busy_types = |registry: &mut Registry| {
        registry.register(runs.clone()).unwrap();
        registry
            .register(Gated(Arc::clone(&gate), Arc::clone(&started)))
            .unwrap();
    };

    let client = fleet.client(busy_types);
    let busy = fleet.node(slots(1), busy_types).await;
    client.submit::<Gated>(()).await.unwrap();
    while started.load(Ordering::SeqCst) == 0 {
        fleet.pass(Duration::from_millis(50)).await;
    }

    let handle = client.submit::<Counted>(()).await.unwrap();
    fleet.pass(Duration::from_millis(500)).await;
    assert!(
        fleet.broker.depth("free_default").await.unwrap() > 0,
        "its hint is in the broker"
    );
    let free = fleet.node(slots(1), counted(&runs)).await;

    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(fleet.status(handle.id()), Status::Completed);
    gate.add_permits(1);
    busy.stop().await;
    free.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_meets_a_node_without_its_type_finds_one_that_has_it() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));

    // Without maintenance: no dispatcher helps.
    let settings = WorkerSettings {
        maintenance: false,
        ..slots(10)
    };
    let knows = fleet.node(settings.clone(), counted(&runs)).await;
    let knows_not = fleet
        .node(settings, |registry| registry.register(Unserved).unwrap())
        .await;

    fleet.pass(Duration::from_millis(500)).await;
    // One of them has the hint.
    let handle = client.submit::<Counted>(()).await.unwrap();
    fleet.pass(Duration::from_millis(50)).await;
    knows_not.stop().await;
    fleet.pass(Duration::from_millis(500)).await;
    assert_eq!(fleet.status(handle.id()), Status::Completed);
    knows.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_a_type_that_nobody_serves_does_not_hold_up_the_others() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(|registry| {
        registry.register(runs.clone()).unwrap();
        registry.register(Unserved).unwrap();
    });
    let node = fleet.node(slots(10), counted(&runs)).await;

    // More than the dispatcher lists at once.
    for _ in 0..6 {
        client
            .submit_all((0..1_000).map(|_| client.submit::<Unserved>(())))
            .await
            .unwrap();
    }

    fleet.pass(A_WHILE).await;
    client
        .submit_all((0..300).map(|_| client.submit::<Counted>(())))
        .await
        .unwrap();
    fleet.pass(Duration::from_secs(5)).await;
    assert_eq!((runs.runs(), fleet.count(Status::Queued)), (300, 6_000));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_in_one_queue_leaves_another_its_fair_share() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(AtomicUsize::new(0));
    let types = |registry: &mut Registry| {
        registry.register(runs.clone()).unwrap();
        registry
            .register(Slow(Arc::clone(&gate), Arc::clone(&started)))
            .unwrap();
    };

    let client = fleet.client(types);
    let queues = vec![
        QueueSlots::shared("free_default"),
        QueueSlots::shared("vip_short"),
    ];
    let node = fleet
        .node(WorkerSettings { queues, ..slots(4) }, types)
        .await;

    fleet.pass(Duration::from_millis(500)).await;
    client
        .submit_all((0..100).map(|_| client.submit::<Slow>(())))
        .await
        .unwrap();
    fleet.pass(Duration::from_millis(500)).await;
    assert_eq!(
        started.load(Ordering::SeqCst),
        4,
        "the flood has every slot while nobody else wants one"
    );

    let handle = client
        .submit::<Counted>(())
        .queue("vip_short")
        .await
        .unwrap();

    gate.add_permits(1);
    fleet.pass(Duration::from_millis(200)).await;
    assert_eq!(
        fleet.status(handle.id()),
        Status::Completed,
        "the first slot that is free is the other queue's"
    );
    gate.close();
    node.stop().await;
}

/// Ends when it may.
struct Slow(Arc<Semaphore>, Arc<AtomicUsize>);

impl Task for Slow {
    const TYPE: &'static str = "slow";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0
            .acquire()
            .await
            .map(tokio::sync::SemaphorePermit::forget)
            .map_err(|_| Stop::fatal("closed"))
    }
}
