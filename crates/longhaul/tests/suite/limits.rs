//! Limits: slots per type and queue, blocking handlers, permits of providers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Context, Limit, LimitRules, Outcome, QueueSlots, Status, Stop, Task, TypeSettings,
    WorkerSettings,
};
use tokio::sync::{Notify, Semaphore};

use crate::{Home, Place, open, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "limits::a_type_never_runs_more_than_it_may",
            a_type_never_runs_more_than_it_may,
        ),
        trial(
            place,
            "limits::types_of_one_resource_never_run_more_than_it_has",
            types_share_a_resource,
        ),
        trial(
            place,
            "limits::a_node_never_runs_more_than_its_slots",
            a_node_never_runs_more_than_its_slots,
        ),
        trial(
            place,
            "limits::a_flood_does_not_hold_up_another_queue",
            a_flood_does_not_hold_up_another_queue,
        ),
        trial(
            place,
            "limits::a_blocking_handler_holds_up_nobody",
            a_blocking_handler_holds_up_nobody,
        ),
        trial(
            place,
            "limits::a_permit_that_takes_too_long_is_a_snooze",
            a_permit_that_takes_too_long_is_a_snooze,
        ),
        trial(
            place,
            "limits::a_providers_refusal_parks_its_key",
            a_providers_refusal_parks_its_key,
        ),
    ]
}

struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
    left: AtomicUsize,
    /// One may leave for each permit.
    exit: Semaphore,
}

impl Crowd {
    fn new() -> Arc<Self> {
        let none = || AtomicUsize::new(0);
        Arc::new(Self {
            now: none(),
            most: none(),
            left: none(),
            exit: Semaphore::new(0),
        })
    }

    async fn join(&self) -> Outcome<()> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.exit.acquire().await?.forget();
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.left.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Lets this many end one by one, each when all slots are taken: a task beyond the limit would
    /// still run and be counted.
    async fn empty(&self, all: usize, slots: usize) {
        for gone in 0..all {
            while self.now.load(Ordering::SeqCst) < slots.min(all - gone) {
                tokio::task::yield_now().await;
            }
            self.exit.add_permits(1);
            while self.left.load(Ordering::SeqCst) <= gone {
                tokio::task::yield_now().await;
            }
        }
    }
}

struct Crowded(Arc<Crowd>);

impl Task for Crowded {
    const TYPE: &'static str = "crowded";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.join().await
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().concurrency(3)
    }
}

async fn a_type_never_runs_more_than_it_may(database: Home) {
    let crowd = Crowd::new();
    let longhaul = open(&database)
        .await
        .register(Crowded(Arc::clone(&crowd)))
        .start()
        .await
        .unwrap();

    let handles = longhaul
        .submit_all((0..40).map(|_| longhaul.submit::<Crowded>(())))
        .await
        .unwrap();
    crowd.empty(handles.len(), 3).await;

    for handle in handles {
        handle.result().await.unwrap();
    }

    assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
    longhaul.stop().await;
}

/// Two types that need the same.
struct Draws(Arc<Crowd>);
struct Paints(Arc<Crowd>);

impl Task for Draws {
    const TYPE: &'static str = "draws";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.join().await
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().resource("gpu")
    }
}

impl Task for Paints {
    const TYPE: &'static str = "paints";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.join().await
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().resource("gpu")
    }
}

async fn types_share_a_resource(database: Home) {
    let crowd = Crowd::new();
    let draws = Draws(Arc::clone(&crowd));
    let paints = Paints(Arc::clone(&crowd));

    let longhaul = open(&database)
        .await
        .register(draws)
        .register(paints)
        .resource("gpu", 3)
        .start()
        .await
        .unwrap();

    let draws = longhaul
        .submit_all((0..20).map(|_| longhaul.submit::<Draws>(())))
        .await
        .unwrap();
    let paints = longhaul
        .submit_all((0..20).map(|_| longhaul.submit::<Paints>(())))
        .await
        .unwrap();

    crowd.empty(draws.len() + paints.len(), 3).await;
    for handle in draws {
        handle.result().await.unwrap();
    }

    for handle in paints {
        handle.result().await.unwrap();
    }

    assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
    longhaul.stop().await;
}

/// Counts how many of it run at once, and goes through the runtime a few times meanwhile.
struct Passing(Arc<(AtomicUsize, AtomicUsize)>);

impl Task for Passing {
    const TYPE: &'static str = "passing";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        let (now, most) = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        now.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The claimer, hints and submits of the process itself all take slots. After a batch all of them
/// are at work, and have most to take when all slots are free.
async fn a_node_never_runs_more_than_its_slots(database: Home) {
    let count = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let worker = WorkerSettings {
        slots: 3,
        ..WorkerSettings::default()
    };
    let passing = Passing(Arc::clone(&count));
    let longhaul = open(&database)
        .await
        .register(passing)
        .worker(worker)
        .start()
        .await
        .unwrap();

    for _ in 0..60 {
        let mut handles = longhaul
            .submit_all((0..6).map(|_| longhaul.submit::<Passing>(())))
            .await
            .unwrap();
        for _ in 0..6 {
            handles.push(longhaul.submit::<Passing>(()).await.unwrap());
        }

        for handle in handles {
            handle.result().await.unwrap();
        }
    }

    let most = count.1.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} ran at once");
    longhaul.stop().await;
}

/// Runs until the gate opens.
struct Gated(Arc<Semaphore>);

impl Task for Gated {
    const TYPE: &'static str = "gated";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.acquire().await?.forget();
        Ok(())
    }
}

async fn a_flood_does_not_hold_up_another_queue(database: Home) {
    let gate = Arc::new(Semaphore::new(0));
    let mut worker = WorkerSettings {
        slots: 4,
        ..WorkerSettings::default()
    };

    worker.queues = vec![
        QueueSlots {
            reserved: 1,
            ..QueueSlots::shared("vip_short")
        },
        QueueSlots::shared("free_default"),
    ];

    let longhaul = open(&database)
        .await
        .register(Gated(Arc::clone(&gate)))
        .worker(worker)
        .start()
        .await
        .unwrap();

    let flood = longhaul
        .submit_all((0..20).map(|_| longhaul.submit::<Gated>(())))
        .await
        .unwrap();
    let running = "SELECT count(*) FROM tasks WHERE status = 'RUNNING'";
    while database.count(running).await < 3 {
        tokio::task::yield_now().await;
    }

    let vip = longhaul.submit::<Gated>(()).tier("vip").await.unwrap();
    while vip.status().await.unwrap() != Status::Running {
        tokio::task::yield_now().await;
    }

    assert_eq!(database.count(running).await, 4);
    gate.add_permits(21);
    for handle in flood {
        handle.result().await.unwrap();
    }

    longhaul.stop().await;
}

/// Blocks its thread until the other side has run.
struct Blocking(Arc<std::sync::Barrier>);

impl Task for Blocking {
    const TYPE: &'static str = "blocking";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.wait();
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().blocking()
    }
}

/// More blocking handlers than the runtime has threads, all at once: each waits for all the others.
async fn a_blocking_handler_holds_up_nobody(database: Home) {
    let barrier = Arc::new(std::sync::Barrier::new(8));
    let longhaul = open(&database)
        .await
        .register(Blocking(barrier))
        .start()
        .await
        .unwrap();

    let handles = longhaul
        .submit_all((0..8).map(|_| longhaul.submit::<Blocking>(())))
        .await
        .unwrap();
    for handle in handles {
        handle.result().await.unwrap();
    }

    longhaul.stop().await;
}

/// Asks for a permit, and refuses as the provider would in its first attempts.
struct Caller {
    refuse: u32,
    called: Arc<Notify>,
}

impl Task for Caller {
    const TYPE: &'static str = "caller";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let _permit = ctx.permit("openai/gpt-4").await?;
        self.called.notify_one();
        if ctx.attempt() <= self.refuse {
            return Err(Stop::rate_limited(
                "429 too many requests",
                Duration::from_millis(50),
            ));
        }

        Ok(ctx.attempt())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new()
            .permit_wait(Duration::from_millis(1))
            .max_attempts(1)
    }
}

fn one_per(per_ms: u64) -> LimitRules {
    let limit = Limit {
        permits: 1,
        per_ms,
        burst: 1,
    };

    LimitRules {
        limits: BTreeMap::from([("openai".to_owned(), limit)]),
        default: None,
    }
}

async fn a_permit_that_takes_too_long_is_a_snooze(database: Home) {
    let caller = Caller {
        refuse: 0,
        called: Arc::default(),
    };
    let longhaul = open(&database)
        .await
        .register(caller)
        .limits(one_per(3_600_000))
        .start()
        .await
        .unwrap();
    longhaul
        .submit_all((0..3).map(|_| longhaul.submit::<Caller>(())))
        .await
        .unwrap();
    let snoozed = "SELECT count(*) FROM tasks WHERE status = 'RETRYING' AND snooze_count = 1 AND \
         retry_count = 0";
    let completed = "SELECT count(*) FROM tasks WHERE status = 'COMPLETED' AND snooze_count = 0";
    // In a fleet a server that is slow to answer is not waited for, and then this process grants
    // one by itself.
    let most = if database.fleet.is_some() { 2 } else { 1 };
    until(async || {
        let snoozed = database.count(snoozed).await;
        let completed = database.count(completed).await;
        snoozed + completed == 3 && (1..=most).contains(&completed)
    })
    .await;
    longhaul.stop().await;
}

async fn a_providers_refusal_parks_its_key(database: Home) {
    let caller = Caller {
        refuse: 1,
        called: Arc::default(),
    };
    let longhaul = open(&database)
        .await
        .register(caller)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Caller>(()).await.unwrap();
    let attempts = handle.result().await.unwrap();
    let task = handle.task().await.unwrap();
    assert!(attempts >= 2);
    assert_eq!((task.retry_count, task.status), (0, Status::Completed));
    longhaul.stop().await;
}
