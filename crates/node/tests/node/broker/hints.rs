//! Tasks that a node claims by their hints.

use longhaul::{RetryPolicy, TypeSettings};
use longhaul_domain::{
    Clock as _,
    contract::store::{Access, Queues as _},
    lifecycle::reschedule::Reschedule,
};
use longhaul_node::dispatch_window;
use longhaul_testkit::names::queue_name;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_task_of_another_process_starts_by_its_hint() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    let client = fleet.client(counted(&runs));
    fleet.pass(Duration::from_millis(500)).await;
    let polls = fleet.remote.link.count("claim_tasks", Leg::Request);
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.runs()),
        (Status::Completed, 1)
    );
    assert_eq!(
        (
            fleet.remote.link.count("claim_tasks", Leg::Request),
            fleet.claims_by_hint()
        ),
        (polls, 1)
    );

    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_statement_claims_for_all_hints_that_are_there() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(50), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    client
        .submit_all((0..40).map(|_| client.submit::<Counted>(())))
        .await
        .unwrap();

    fleet.pass(Duration::from_millis(500)).await;
    assert_eq!(runs.runs(), 40);
    assert!(
        fleet.claims_by_hint() <= 2,
        "{} statements",
        fleet.claims_by_hint()
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_is_lost_is_published_again() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    let client = fleet.client(counted(&runs));
    fleet.pass(Duration::from_millis(500)).await;
    fleet.broker.lose_next(1);
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(
        fleet.status(handle.id()),
        Status::Queued,
        "its hint is lost"
    );
    fleet.pass(Duration::from_millis(2_000)).await;
    assert_eq!(
        (fleet.status(handle.id()), fleet.claims_by_hint()),
        (Status::Completed, 1)
    );

    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_hint_hints_twice_runs_once() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet.remote.link.hold("claim_named", Leg::Request);
    client.submit::<Counted>(()).await.unwrap();
    let hints = fleet
        .remote
        .store
        .list_due(&queue_name("free_default"), 10)
        .await
        .unwrap();

    assert_eq!(hints.len(), 1);
    fleet.broker.publish_hints(&hints).await;
    fleet.remote.link.free("claim_named", Leg::Request);
    for _ in 0..5 {
        fleet.broker.publish_hints(&hints).await;
        fleet.pass(Duration::from_millis(50)).await;
    }

    assert_eq!(runs.runs(), 1);
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "all were acknowledged"
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn behind_a_backlog_a_hint_is_worth_more_than_one_task() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    for _ in 0..10 {
        client
            .submit_all((0..1_000).map(|_| client.submit::<Counted>(())))
            .await
            .unwrap();
    }

    let nodes = [
        fleet.node(slots(100), counted(&runs)).await,
        fleet.node(slots(100), counted(&runs)).await,
    ];
    while runs.runs() < 10_000 {
        fleet.pass(Duration::from_millis(50)).await;
    }

    let traffic = fleet.broker.traffic();
    let published: u64 = traffic
        .iter()
        .filter(|(name, _)| name.contains("free_default"))
        .map(|(_, t)| t.published)
        .sum();

    assert!(
        (1..=2_000).contains(&published),
        "{published} hints for 10,000 tasks"
    );

    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deep_backlog_stays_in_the_store_and_is_worked_off() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let maintenance = fleet.node(slots(0), no_types).await;
    for _ in 0..20 {
        client
            .submit_all((0..1_000).map(|_| client.submit::<Counted>(())))
            .await
            .unwrap();
    }

    for _ in 0..10 {
        fleet.pass(Duration::from_secs(1)).await;
        let depth = fleet.broker.depth("free_default").await.unwrap();
        // The burst before the queue was backlogged, and the few hints published since.
        assert!(
            (1..=dispatch_window::MAX_TARGET + dispatch_window::MIN_TARGET).contains(&depth),
            "{depth} hints are out"
        );
    }

    let node = fleet.node(slots(100), counted(&runs)).await;
    while runs.runs() < 20_000 {
        fleet.pass(Duration::from_millis(50)).await;
        assert!(
            fleet.broker.depth("free_default").await.unwrap()
                <= dispatch_window::MAX_TARGET + dispatch_window::MIN_TARGET
        );
    }

    fleet.pass(A_WHILE).await;
    assert_eq!(
        (runs.runs(), fleet.count(Status::Completed)),
        (20_000, 20_000)
    );
    node.stop().await;
    maintenance.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_after_the_submit_wins_over_the_hint() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let mut handles = Vec::new();
    for _ in 0..3 {
        handles.push(client.submit::<Counted>(()).await.unwrap().id());
    }

    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(3),
        "all hints have been published"
    );
    client.cancel(handles[0]).await.unwrap();
    let later = Reschedule {
        run_at: Some(fleet.remote.clock.now().plus_ms(3_600_000)),
        ..Reschedule::default()
    };

    client
        .engine()
        .reschedule(&Access::All, handles[1], &later)
        .await
        .unwrap();
    let node = fleet.node(slots(10), counted(&runs)).await;

    fleet.pass(A_WHILE).await;
    let statuses: Vec<Status> = handles.iter().map(|id| fleet.status(*id)).collect();
    assert_eq!(
        statuses,
        [Status::Cancelled, Status::Queued, Status::Completed]
    );
    assert_eq!(runs.runs(), 1);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_starts_nothing_and_goes_on_when_it_is_resumed() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(10), counted(&runs)).await;
    client
        .engine()
        .pause_queue(&queue_name("free_default"))
        .await
        .unwrap();
    fleet.pass(Duration::from_millis(100)).await;
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.pass(Duration::from_secs(20)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.runs()),
        (Status::Queued, 0)
    );
    client
        .engine()
        .resume_queue(&queue_name("free_default"))
        .await
        .unwrap();
    fleet.pass(Duration::from_secs(1)).await;
    assert_eq!(fleet.status(handle.id()), Status::Completed);
    node.stop().await;
}

/// Fails the first time.
struct Stumbles(Arc<AtomicUsize>);

impl Task for Stumbles {
    const TYPE: &'static str = "stumbles";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Stop::retryable("not yet")),
            _ => Ok(()),
        }
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().retry(RetryPolicy {
            initial_ms: 2_100,
            factor: 1.0,
            jitter: 0.0,
            max_ms: 2_100,
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_comes_back_when_it_is_due() {
    let fleet = Fleet::new();
    let runs = Arc::new(AtomicUsize::new(0));

    // Without maintenance: no dispatcher helps.
    let settings = WorkerSettings {
        maintenance: false,
        ..slots(10)
    };
    let node = fleet
        .node(settings, |registry| {
            registry.register(Stumbles(Arc::clone(&runs))).unwrap()
        })
        .await;

    fleet.pass(Duration::from_millis(500)).await;
    let handle = node.submit::<Stumbles>(()).await.unwrap();
    fleet.pass(Duration::from_millis(2_000)).await;
    assert_eq!(fleet.status(handle.id()), Status::Retrying);
    fleet.pass(Duration::from_millis(400)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.load(Ordering::SeqCst)),
        (Status::Completed, 2)
    );

    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_task_starts_when_it_is_due() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(10), counted(&runs)).await;
    let handle = client
        .submit::<Counted>(())
        .delay(Duration::from_secs(600))
        .await
        .unwrap();

    fleet.pass(Duration::from_secs(599)).await;
    assert_eq!(fleet.status(handle.id()), Status::Queued);
    fleet.pass(Duration::from_millis(2_500)).await;
    assert_eq!(fleet.status(handle.id()), Status::Completed);
    node.stop().await;
}
