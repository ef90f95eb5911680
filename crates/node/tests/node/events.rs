//! The versions and numbers of events.

use std::collections::HashSet;
use std::time::Duration;

use futures::FutureExt as _;
use longhaul::{
    Context, EventKind, Outcome, Received, Status, Stop, Subscription, Task, TaskEvent,
};
use longhaul_domain::{
    TaskId,
    contract::store::{Access, TaskCommands},
};

use crate::remote_store::{Counted, RemoteStore};

/// Reports progress, saves checkpoints and submits children, as many as its parameters say.
struct Writer;

impl Task for Writer {
    const TYPE: &'static str = "writer";
    type Params = (u8, u8, u8);
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let (reports, checkpoints, children) = ctx.params;
        for done in 0..reports {
            ctx.progress(done).await?;
            ctx.sleep(Duration::from_secs(6)).await?;
        }

        for done in 0..checkpoints {
            ctx.save_checkpoint(&done).await?;
        }

        for _ in 0..children {
            ctx.submit::<Counted>(()).await?;
        }

        Ok(())
    }
}

impl RemoteStore {
    /// The events of a writer until it has ended, or waits for its children.
    async fn events_of(&self, params: (u8, u8, u8)) -> Vec<TaskEvent> {
        let longhaul = self
            .builder()
            .register(Writer)
            .register(Counted::default())
            .start()
            .await
            .unwrap();

        let mut events = longhaul.events(Subscription::default());
        let id = longhaul.submit::<Writer>(params).await.unwrap().id();
        self.pass(Duration::from_secs(30)).await;
        longhaul.stop().await;
        let mut received = Vec::new();
        let is_last =
            |event: &TaskEvent| event.status.is_ended() || event.status == Status::Waiting;
        while !received.last().is_some_and(is_last) {
            match events.next().await {
                Some(Received::Event(event)) if event.task_id == id => received.push(event),
                Some(_) => {}
                None => panic!("no end in {received:?}"),
            }
        }

        received
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_has_the_version_of_the_row_whatever_was_written_before() {
    for params in [(0, 0, 0), (3, 0, 0), (0, 3, 0), (2, 2, 0)] {
        let remote = RemoteStore::new();
        let received = remote.events_of(params).await;
        let end = &received[received.len() - 1];
        assert_eq!(end.event, EventKind::Completed);
        assert_eq!(
            end.version,
            remote.store.look(|tasks, _| tasks[&end.task_id].version),
            "{params:?}"
        );

        assert!(
            received.is_sorted_by_key(|event| event.version),
            "{received:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_parents_own_code_is_no_older_than_its_children() {
    let remote = RemoteStore::new();
    let received = remote.events_of((0, 1, 3)).await;
    let started = &received[1];
    let end = &received[received.len() - 1];
    // A checkpoint, three children and the end; a child that ends in time makes it more.
    assert!(end.version >= started.version + 5, "{received:?}");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_drops_what_it_has_seen_hears_every_report() {
    let received = RemoteStore::new().events_of((4, 0, 0)).await;
    let reports: Vec<&TaskEvent> = received
        .iter()
        .filter(|event| event.event == EventKind::Progress)
        .collect();
    let numbers: Vec<u64> = reports.iter().map(|event| event.sequence).collect();

    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(
        reports
            .iter()
            .map(|event| event.id())
            .collect::<HashSet<_>>()
            .len(),
        4
    );
}

/// As many generations as it says; the last is due after that many seconds.
struct Family;

impl Task for Family {
    const TYPE: &'static str = "family";
    type Params = (u8, u64);
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let (below, last_after) = ctx.params;
        if below == 0 {
            return Ok(());
        }

        let after = Duration::from_secs(if below == 1 { last_after } else { 0 });
        // Two children, which may end in one delivery of reports.
        ctx.submit::<Self>((below - 1, last_after))
            .delay(after)
            .await?;
        ctx.submit::<Self>((below - 1, last_after))
            .delay(after)
            .await?;

        Err(Stop::wait_for_children())
    }
}

impl RemoteStore {
    /// The end events of a family of seven. It ends by itself, or its head is cancelled twice while
    /// all of its youngest wait.
    async fn ends_of_a_family(&self, is_cancelled: bool) -> Vec<(TaskId, Status)> {
        let longhaul = self.builder().register(Family).start().await.unwrap();
        let mut events = longhaul.events(Subscription::default());
        let head = longhaul
            .submit::<Family>((2, if is_cancelled { 86_400 } else { 0 }))
            .await
            .unwrap();

        if is_cancelled {
            self.pass(Duration::from_secs(30)).await;
            assert_eq!(self.store.look(|tasks, _| tasks.len()), 7);
            assert_eq!(head.cancel().await.unwrap(), Status::Cancelled);
            assert_eq!(head.cancel().await.unwrap(), Status::Cancelled);
        } else {
            head.ended().await.unwrap();
        }

        longhaul.stop().await;
        let mut ends = Vec::new();
        while let Some(Some(received)) = events.next().now_or_never() {
            let Received::Event(event) = received else {
                panic!("{received:?}")
            };
            if event.status.is_ended() {
                ends.push((event.task_id, event.status));
            }
        }

        ends.sort_by_key(|(id, _)| *id);
        ends
    }
}

#[tokio::test(start_paused = true)]
async fn each_end_in_a_family_is_told_once() {
    for (is_cancelled, status) in [(false, Status::Completed), (true, Status::Cancelled)] {
        let remote = RemoteStore::new();
        let ends = remote.ends_of_a_family(is_cancelled).await;
        let family: Vec<_> = remote
            .store
            .look(|tasks, _| tasks.keys().map(|id| (*id, status)).collect());
        assert_eq!(ends, family, "cancelled: {is_cancelled}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_nobody_came_to_tell_of_is_told_by_the_next_one() {
    let remote = RemoteStore::new();
    let longhaul = remote.builder().register(Family).start().await.unwrap();
    let mut events = longhaul.events(Subscription::default());
    let handle = longhaul
        .submit::<Family>((0, 0))
        .delay(Duration::from_secs(86_400))
        .await
        .unwrap();

    // By a process that died before it published its change.
    remote
        .store
        .cancel_task(&Access::All, handle.id())
        .await
        .unwrap();
    handle.cancel().await.unwrap();
    longhaul.stop().await;
    let mut published = Vec::new();

    while let Some(Some(Received::Event(event))) = events.next().now_or_never() {
        published.push(event.event);
    }

    assert_eq!(published, [EventKind::Submitted, EventKind::Cancelled]);
}
