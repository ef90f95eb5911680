//! Tasks that are brought to their nodes by hints.

use longhaul_domain::{
    Clock as _, Json, NewTask, Timestamp, bounds,
    contract::{broker::Hint, store::Access},
    lifecycle::reschedule::Reschedule,
};
use longhaul_node::dispatch_window;

use super::{words::Endless, *};
use crate::RetryPolicy;

#[tokio::test(start_paused = true)]
async fn a_task_of_another_process_starts_by_its_hint() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    let client = fleet.client(counted(&runs));
    fleet.pass(Duration::from_millis(500)).await;
    let looks = fleet.far.line.count("claim_tasks", Way::There);
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.runs()),
        (Status::Completed, 1)
    );
    assert_eq!(
        (
            fleet.far.line.count("claim_tasks", Way::There),
            fleet.claims_by_hint()
        ),
        (looks, 1)
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
async fn a_lone_task_is_published_for_ahead_of_its_commit_and_others_after_it() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let submit = async || client.submit::<Counted>(()).await.unwrap().id();
    let ids = [submit().await, submit().await];

    fleet.pass(Duration::from_millis(100)).await;
    let heard = fleet.broker.hints("free_default").next(10).await;
    let told: Vec<_> = heard
        .iter()
        .map(|one| (one.hint.task_id, one.hint.lookups))
        .collect();

    assert_eq!(
        told,
        [(ids[0], bounds::AHEAD_LOOKUPS), (ids[1], 0)],
        "hints that follow each other share a batch"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_committed_after_its_hint_was_heard_starts() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    let id = node.store().next_id();

    fleet.broker.publish_hints(&[ahead(id)]).await;
    fleet.far.line.comes_by("claim_named", Way::Back, 1).await;
    commit(&node, id).await;
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(fleet.status(id), Status::Completed);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_never_comes_is_not_looked_for_without_end() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet
        .broker
        .publish_hints(&[ahead(node.store().next_id())])
        .await;
    fleet.pass(A_WHILE).await;

    assert_eq!(
        fleet.claims_by_hint(),
        1 + usize::from(bounds::AHEAD_LOOKUPS)
    );
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "it was answered"
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_node_gives_away_what_it_looks_for() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let types = |runs: &Counted| {
        let counted = counted(runs);
        move |registry: &mut Registry| {
            counted(registry);
            registry.register(Endless::default()).unwrap();
        }
    };

    let busy = fleet.node(slots(1), types(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    let id = busy.store().next_id();
    fleet
        .broker
        .publish_hints(&[Hint {
            lookups: u8::MAX,
            ..ahead(id)
        }])
        .await;

    fleet.far.line.comes_by("claim_named", Way::Back, 1).await;
    busy.submit::<Endless>(()).await.unwrap();
    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(fleet.count(Status::Running), 1, "its only slot is taken");
    let idle = fleet.node(slots(1), counted(&runs)).await;

    fleet.pass(Duration::from_millis(50)).await;
    commit(&idle, id).await;
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(fleet.status(id), Status::Completed);
    idle.stop().await;
    busy.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_claim_or_stops_gives_away_what_it_looks_for() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(1), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet
        .broker
        .publish_hints(&[Hint {
            lookups: u8::MAX,
            ..ahead(node.store().next_id())
        }])
        .await;

    fleet.far.line.comes_by("claim_named", Way::Back, 1).await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "the node has it"
    );
    fleet.far.line.cut(true);
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(1),
        "others may claim"
    );

    fleet.far.line.cut(false);
    let heard = fleet.far.line.count("claim_named", Way::Back);
    fleet
        .far
        .line
        .comes_by("claim_named", Way::Back, heard + 1)
        .await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "the node has it again"
    );

    node.begin_drain();
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(1),
        "others go on"
    );
    node.stop().await;
}

/// Makes a task without a word to anybody.
async fn commit(longhaul: &Longhaul, id: TaskId) {
    let parameters = Json::trusted("null".to_owned());
    let task = NewTask {
        id: Some(id),
        ..NewTask::new("default", Counted::TYPE, "free_default", parameters)
    };

    assert_eq!(
        longhaul.store().submit_task(task).await.unwrap().task_id,
        id
    );
}

/// The hint of a task that is not committed yet.
fn ahead(task_id: TaskId) -> Hint {
    Hint {
        task_id,
        owner: "default".to_owned(),
        task_type: Counted::TYPE.to_owned(),
        queue: "free_default".to_owned(),
        priority: 1,
        retry_count: 0,
        submitted_at: Timestamp::from_micros(0),
        due_at: Timestamp::from_micros(0),
        lookups: bounds::AHEAD_LOOKUPS,
        correlation_id: None,
        trace_context: None,
    }
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
        "nobody has heard of it"
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
    fleet.far.line.hold("claim_named", Way::There);
    client.submit::<Counted>(()).await.unwrap();
    let hints = client.store().list_due("free_default", 10).await.unwrap();

    assert_eq!(hints.len(), 1);
    fleet.broker.publish_hints(&hints).await;
    fleet.far.line.free("claim_named", Way::There);
    for _ in 0..5 {
        fleet.broker.publish_hints(&hints).await;
        fleet.pass(Duration::from_millis(50)).await;
    }

    assert_eq!(runs.runs(), 1);
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "all were answered"
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
        // A burst that was published for before the queue was held, and the few that are out since.
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
        run_at: Some(fleet.far.clock.now().plus_ms(3_600_000)),
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
    client.engine().pause_queue("free_default").await.unwrap();
    fleet.pass(Duration::from_millis(100)).await;
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.pass(Duration::from_secs(20)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.runs()),
        (Status::Queued, 0)
    );
    client.engine().resume_queue("free_default").await.unwrap();
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
