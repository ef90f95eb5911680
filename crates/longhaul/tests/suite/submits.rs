//! Submitting: typed, as a function, in order, once, and in the caller's own transaction.

use std::sync::{Arc, Mutex};

use libtest_mimic::Trial;
use longhaul::{
    Access, Context, EventKind, Handle, Job, JsonSchema, Named, Outcome, Progress, Received,
    Status, Subscription, Task, TaskEvent, TypeSettings,
};
use longhaul_domain::{contract::event_bus::EventStream, lifecycle::reschedule::Reschedule};
use serde::{Deserialize, Serialize};
use sqlx::Connection as _;
use tokio::sync::{Notify, Semaphore};

use crate::{Home, Place, fresh::Backend, open, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "submit::a_task_runs_and_its_result_is_typed",
            a_task_runs_and_its_result_is_typed,
        ),
        trial(
            place,
            "submit::a_plain_function_is_a_task",
            a_plain_function_is_a_task,
        ),
        trial(
            place,
            "submit::the_same_key_is_the_same_task",
            the_same_key_is_the_same_task,
        ),
        trial(
            place,
            "submit::higher_priority_goes_first",
            higher_priority_goes_first,
        ),
        trial(
            place,
            "submit::two_handlers_of_one_name_are_refused",
            two_handlers_of_one_name_are_refused,
        ),
        trial(
            place,
            "submit::task_and_data_commit_or_vanish_together",
            task_and_data_commit_or_vanish_together,
        ),
        trial(
            place,
            "submit::progress_is_written_seldom_and_at_the_end",
            progress_is_written_seldom_and_at_the_end,
        ),
        trial(
            place,
            "submit::a_handle_sees_progress_live_and_after_the_end",
            a_handle_sees_progress,
        ),
        trial(
            place,
            "submit::a_submit_into_a_free_slot_is_claimed_with_the_same_commit",
            a_submit_into_a_free_slot_is_claimed_with_the_same_commit,
        ),
        trial(
            place,
            "submit::listeners_hear_of_every_step",
            listeners_hear_of_every_step,
        ),
        trial(
            place,
            "submit::a_delayed_task_runs_when_it_is_due",
            a_delayed_task_runs_when_it_is_due,
        ),
    ]
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Text {
    pub(crate) text: String,
}

pub(crate) struct CountWords;

impl Task for CountWords {
    const TYPE: &'static str = "count_words";
    type Params = Text;
    type Output = usize;

    async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
        ctx.progress(Progress::of(1, 2).message("counting")).await?;
        Ok(ctx.params.text.split_whitespace().count())
    }
}

fn text(text: &str) -> Text {
    Text {
        text: text.to_owned(),
    }
}

async fn a_task_runs_and_its_result_is_typed(database: Home) {
    let longhaul = open(&database)
        .await
        .register(CountWords)
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<CountWords>(text("no task is lost"))
        .owner("u-1")
        .priority(7)
        .await
        .unwrap();

    assert_eq!(handle.result().await.unwrap(), 4);
    let task = handle.task().await.unwrap();
    assert_eq!(
        (task.owner.as_str(), task.priority, task.attempt),
        ("u-1", 7, 1)
    );
    let kind = longhaul.types().next().unwrap();
    assert!(kind.params_schema.as_value()["properties"]["text"].is_object());
    longhaul.stop().await;
}

async fn a_plain_function_is_a_task(database: Home) {
    async fn shout(text: Text, _job: Job) -> Outcome<String> {
        Ok(text.text.to_uppercase())
    }

    let longhaul = open(&database)
        .await
        .register_fn("shout", TypeSettings::new(), shout)
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit_named::<_, String>("shout", text("quiet"))
        .await
        .unwrap();
    assert_eq!(handle.result().await.unwrap(), "QUIET");
    let kept = longhaul.handle::<Named<Text, String>>(handle.id());

    assert_eq!(kept.result().await.unwrap(), "QUIET");
    longhaul.stop().await;
}

async fn the_same_key_is_the_same_task(database: Home) {
    let longhaul = open(&database)
        .await
        .register(CountWords)
        .without_worker()
        .unwrap();
    let one = longhaul
        .submit::<CountWords>(text("a"))
        .idempotency_key("k")
        .await
        .unwrap();

    let two = longhaul
        .submit::<CountWords>(text("a"))
        .idempotency_key("k")
        .await
        .unwrap();

    assert_eq!(one.id(), two.id());
    let other = longhaul
        .submit::<CountWords>(text("b"))
        .idempotency_key("k")
        .await
        .unwrap_err();

    assert_eq!(other.code(), "idempotency_key_reused");
    longhaul.stop().await;
}

struct Note(Arc<Mutex<Vec<String>>>);

impl Task for Note {
    const TYPE: &'static str = "note";
    type Params = Text;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.0.lock().unwrap().push(ctx.params.text.clone());
        Ok(())
    }
}

async fn higher_priority_goes_first(database: Home) {
    let order = Arc::new(Mutex::new(Vec::new()));
    let before = open(&database)
        .await
        .register(Note(Arc::clone(&order)))
        .without_worker()
        .unwrap();
    let mut ids = Vec::new();

    for (name, priority) in [("last", 1), ("first", 9), ("second", 5)] {
        ids.push(
            before
                .submit::<Note>(text(name))
                .priority(priority)
                .await
                .unwrap()
                .id(),
        );
    }

    before.stop().await;
    let longhaul = open(&database)
        .await
        .register(Note(Arc::clone(&order)))
        .slots(1)
        .start()
        .await
        .unwrap();

    for id in ids {
        longhaul.handle::<Note>(id).result().await.unwrap();
    }

    assert_eq!(*order.lock().unwrap(), ["first", "second", "last"]);
    longhaul.stop().await;
}

async fn two_handlers_of_one_name_are_refused(database: Home) {
    let refused = open(&database)
        .await
        .register(CountWords)
        .register(CountWords)
        .start()
        .await
        .unwrap_err();

    assert!(
        refused.to_string().contains("registered twice"),
        "{refused}"
    );
}

async fn task_and_data_commit_or_vanish_together(database: Home) {
    let longhaul = open(&database)
        .await
        .register(CountWords)
        .start()
        .await
        .unwrap();

    database.execute("CREATE TABLE orders (id integer)").await;
    macro_rules! both_ways {
        ($connection:ty) => {{
            let mut connection = <$connection>::connect(&database.url).await.unwrap();
            let mut gone = connection.begin().await.unwrap();
            sqlx::query("INSERT INTO orders (id) VALUES (1)")
                .execute(&mut *gone)
                .await
                .unwrap();
            longhaul
                .submit_in(&mut gone, longhaul.submit::<CountWords>(text("gone")))
                .await
                .unwrap();

            gone.rollback().await.unwrap();
            let mut kept = connection.begin().await.unwrap();
            sqlx::query("INSERT INTO orders (id) VALUES (2)")
                .execute(&mut *kept)
                .await
                .unwrap();
            let handle = longhaul
                .submit_in(&mut kept, longhaul.submit::<CountWords>(text("kept")))
                .await
                .unwrap();

            let more = ["one", "two words"].map(|words| longhaul.submit::<CountWords>(text(words)));
            let more = longhaul.submit_all_in(&mut kept, more).await.unwrap();
            kept.commit().await.unwrap();
            (handle, more)
        }};
    }

    let (handle, more) = match database.backend {
        Backend::Sqlite => both_ways!(sqlx::SqliteConnection),
        Backend::Postgres => both_ways!(sqlx::PgConnection),
        Backend::MySql => both_ways!(sqlx::MySqlConnection),
    };

    longhaul.wake();
    assert_eq!(handle.result().await.unwrap(), 1);
    assert_eq!(
        (
            more[0].result().await.unwrap(),
            more[1].result().await.unwrap()
        ),
        (1, 2)
    );

    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 3);
    assert_eq!(database.count("SELECT count(*) FROM orders").await, 1);
    longhaul.stop().await;
}

async fn listeners_hear_of_every_step(database: Home) {
    let longhaul = open(&database)
        .await
        .register(CountWords)
        .start()
        .await
        .unwrap();

    let mut slow = longhaul.events(Subscription::default());
    let mut news = longhaul.events(Subscription {
        task_id: None,
        owner: Some("u-1".to_owned()),
    });

    longhaul
        .submit::<CountWords>(text("for another"))
        .owner("u-2")
        .await
        .unwrap()
        .result()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<CountWords>(text("a b"))
        .owner("u-1")
        .await
        .unwrap();

    handle.result().await.unwrap();
    let wanted = [
        EventKind::Submitted,
        EventKind::Started,
        EventKind::Progress,
        EventKind::Completed,
    ];

    let mut received = Vec::new();
    // The events of a submit and of its start may arrive in either order: different components
    // publish them.
    while !wanted.iter().all(|kind| received.contains(kind)) {
        let event = next_event(&mut *news).await;
        assert_eq!(event.task_id, handle.id());
        received.push(event.event);
    }

    assert_eq!(received.len(), wanted.len(), "{received:?}");
    assert!(slow.next().await.is_some());
    longhaul.stop().await;
}

/// The next event. A listener that connects to other processes is notified that it may have missed
/// some of their events.
async fn next_event(news: &mut dyn EventStream) -> TaskEvent {
    loop {
        match news.next().await {
            Some(Received::Event(event)) => return event,
            Some(Received::Missed(_)) => {}
            None => panic!("the bus is closed"),
        }
    }
}

async fn a_delayed_task_runs_when_it_is_due(database: Home) {
    let longhaul = open(&database)
        .await
        .register(CountWords)
        .start()
        .await
        .unwrap();

    let hour = std::time::Duration::from_secs(3_600);
    let handle = longhaul
        .submit::<CountWords>(text("later"))
        .delay(hour)
        .await
        .unwrap();
    let task = handle.task().await.unwrap();

    assert_eq!(task.status, Status::Queued);
    assert!(task.due_at.micros_since(task.created_at) >= 3_600_000_000);

    // Due soon, without a hint.
    let run_at = longhaul.engine().reads().now().await.unwrap().plus_ms(300);
    let sooner = Reschedule {
        run_at: Some(run_at),
        ..Reschedule::default()
    };

    longhaul
        .engine()
        .reschedule(&Access::All, handle.id(), &sooner)
        .await
        .unwrap();
    assert_eq!(handle.result().await.unwrap(), 1);
    let task = handle.task().await.unwrap();
    assert!(task.started_at.unwrap() >= run_at, "{task:?}");
    longhaul.stop().await;
}

/// Reports a thousand times.
struct Chatty;

impl Task for Chatty {
    const TYPE: &'static str = "chatty";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for done in 1..=1_000 {
            ctx.progress(Progress::of(done, 1_000)).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

async fn progress_is_written_seldom_and_at_the_end(database: Home) {
    let longhaul = open(&database)
        .await
        .register(Chatty)
        .start()
        .await
        .unwrap();

    let mut news = longhaul.events(Subscription::default());
    let handle = longhaul.submit::<Chatty>(()).await.unwrap();
    handle.result().await.unwrap();
    let task = handle.task().await.unwrap();
    assert_eq!(
        task.progress.unwrap().read::<Progress>().unwrap().percent,
        100.0
    );

    // Submitted, claimed and ended make three; the first report and the last are written, and one
    // every five seconds.
    assert!(
        task.version <= 10,
        "the row was written {} times",
        task.version
    );
    let mut received = 0;

    loop {
        let kind = next_event(&mut *news).await.event;
        received += usize::from(kind == EventKind::Progress);
        if kind == EventKind::Completed {
            break;
        }
    }

    assert_eq!(received, 1_000, "listeners receive every report at once");
    longhaul.stop().await;
}

/// Reports three times, the second and the last time when it may.
struct Measured(Arc<Semaphore>, Arc<Notify>);

impl Task for Measured {
    const TYPE: &'static str = "measured";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for percent in [10, 50, 100] {
            ctx.progress(percent).await?;
            self.1.notify_one();
            self.0.acquire().await?.forget();
        }
        Ok(())
    }
}

/// What the handle returns.
async fn percent(handle: &Handle<Measured>) -> f64 {
    handle.progress().await.unwrap().unwrap().percent
}

async fn a_handle_sees_progress(database: Home) {
    let go_on = Arc::new(Semaphore::new(0));
    let reported = Arc::new(Notify::new());
    let measured = || Measured(Arc::clone(&go_on), Arc::clone(&reported));
    let longhaul = open(&database)
        .await
        .register(measured())
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Measured>(()).await.unwrap();
    reported.notified().await;

    // The store has the first report, and gets the next one seconds later.
    until(async || handle.task().await.unwrap().progress.is_some()).await;
    go_on.add_permits(1);
    reported.notified().await;
    if database.fleet.is_none() {
        assert_eq!(percent(&handle).await, 50.0);
    }

    // In a fleet a server has it: one that is slow to answer is not waited for, and then the store
    // is asked.
    until(async || percent(&handle).await == 50.0).await;
    go_on.add_permits(2);
    handle.result().await.unwrap();
    longhaul.stop().await;
    let after = open(&database)
        .await
        .register(measured())
        .without_worker()
        .unwrap();

    assert_eq!(percent(&after.handle(handle.id())).await, 100.0);
    after.stop().await;
}

async fn a_submit_into_a_free_slot_is_claimed_with_the_same_commit(database: Home) {
    let longhaul = open(&database)
        .await
        .register(CountWords)
        .start()
        .await
        .unwrap();

    // More than one, because the worker may poll at that moment.
    for _ in 0..50 {
        let handle = longhaul.submit::<CountWords>(text("a b")).await.unwrap();
        assert_eq!(handle.result().await.unwrap(), 2);
        let task = handle.task().await.unwrap();
        assert_eq!(task.attempt, 1);

        // SQLite has one moment for a whole operation; the others' statements have each their own.
        let is_same_moment = task.started_at == Some(task.created_at);
        if is_same_moment || !matches!(database.backend, Backend::Sqlite) {
            longhaul.stop().await;
            return;
        }
    }

    panic!("every task was claimed by itself");
}
