//! What operators do with existing tasks, and what they read of one: lists, moves, paused queues,
//! output and files.

use std::time::{Duration, SystemTime};

use libtest_mimic::Trial;
use longhaul::{
    BulkChange, Context, JsonSchema, Outcome, Output, PageRequest, PieceContent, Progress,
    Reschedule, SortOrder, Status, Stop, StoreError, Task, TaskFilter, Timestamp, TypeSettings,
};
use serde::{Deserialize, Serialize};

use crate::{Home, Place, open, quick, trial};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "operators::find_move_and_cancel_what_waits",
            find_move_and_cancel_what_waits,
        ),
        trial(
            place,
            "operators::a_paused_queue_is_left_alone",
            a_paused_queue_is_left_alone,
        ),
        trial(
            place,
            "operators::many_more_than_a_page_are_changed_at_once",
            many_more_than_a_page_are_changed_at_once,
        ),
        trial(
            place,
            "operators::read_output_across_attempts_to_its_end",
            read_output_across_attempts_to_its_end,
        ),
        trial(
            place,
            "operators::read_files_and_details_of_progress",
            read_files_and_details_of_progress,
        ),
    ]
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

#[expect(
    clippy::disallowed_methods,
    reason = "what a program says that means a moment of its own clock"
)]
fn system_now() -> SystemTime {
    SystemTime::now()
}

struct Note;

impl Task for Note {
    const TYPE: &'static str = "note";
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        Ok(ctx.params)
    }
}

async fn find_move_and_cancel_what_waits(database: Home) {
    let longhaul = open(&database).await.register(Note).start().await.unwrap();
    let tomorrow = system_now() + DAY;
    let notes = (0..3).map(|number| {
        longhaul
            .submit::<Note>(number)
            .owner("ann")
            .key("later")
            .run_at(tomorrow)
    });

    let handles = longhaul.submit_all(notes).await.unwrap();
    longhaul
        .submit::<Note>(9)
        .owner("bob")
        .delay(DAY)
        .await
        .unwrap();

    let of_ann = TaskFilter {
        task_key: Some("later".to_owned()),
        ..TaskFilter::default()
    };
    let mut page = PageRequest {
        order: SortOrder::OldestFirst,
        ..PageRequest::first(2)
    };
    let first = longhaul.list(&of_ann, &page).await.unwrap();

    page.after = first.next;
    let second = longhaul.list(&of_ann, &page).await.unwrap();
    assert_eq!(second.next, None);
    let found: Vec<_> = first.items.iter().chain(&second.items).collect();
    assert!(
        found
            .iter()
            .map(|task| task.id)
            .eq(handles.iter().map(longhaul::Handle::id))
    );

    assert!(
        found
            .iter()
            .all(|task| task.due_at == Timestamp::from(tomorrow))
    );

    let now = Reschedule {
        run_at: Some(system_now().into()),
        ..Reschedule::default()
    };
    longhaul.reschedule(handles[1].id(), &now).await.unwrap();
    assert_eq!(handles[1].result().await.unwrap(), 1);

    let changed = longhaul
        .change_all(&of_ann, BulkChange::Cancel)
        .await
        .unwrap();
    assert_eq!((changed.changed, changed.next), (2, None));
    assert_eq!(handles[0].status().await.unwrap(), Status::Cancelled);
    assert_eq!(handles[1].status().await.unwrap(), Status::Completed);
    let left = TaskFilter {
        statuses: vec![Status::Queued],
        ..TaskFilter::default()
    };

    assert_eq!(
        longhaul
            .list(&left, &PageRequest::first(10))
            .await
            .unwrap()
            .items
            .len(),
        1,
        "that of another"
    );

    longhaul.stop().await;
}

async fn a_paused_queue_is_left_alone(database: Home) {
    let longhaul = open(&database).await.register(Note).start().await.unwrap();
    longhaul.pause_queue("vip_long").await.unwrap();
    let held = longhaul.submit::<Note>(1).queue("vip_long").await.unwrap();
    longhaul
        .submit::<Note>(2)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();

    assert_eq!(held.why().await.unwrap().code(), "paused");
    let is_paused = |queue: &longhaul::Queue| queue.name == "vip_long" && queue.paused_at.is_some();
    assert!(longhaul.queues().await.unwrap().iter().any(is_paused));
    longhaul.resume_queue("vip_long").await.unwrap();
    assert_eq!(held.result().await.unwrap(), 1);
    longhaul.stop().await;
}

async fn many_more_than_a_page_are_changed_at_once(database: Home) {
    let longhaul = open(&database)
        .await
        .register(Note)
        .without_worker()
        .unwrap();

    for _ in 0..3 {
        longhaul
            .submit_all((0..500).map(|number| longhaul.submit::<Note>(number).delay(DAY)))
            .await
            .unwrap();
    }

    let urgent = BulkChange::Reschedule(Reschedule {
        priority: Some(9),
        ..Reschedule::default()
    });
    let refused = longhaul
        .change_all(&TaskFilter::default(), urgent.clone())
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Invalid(invalid) if invalid.field == "filter"));

    let all = TaskFilter {
        statuses: Status::ALL.to_vec(),
        ..TaskFilter::default()
    };
    let changed = longhaul.change_all(&all, urgent).await.unwrap();

    assert_eq!(
        (changed.matched, changed.changed, changed.next),
        (1_500, 1_500, None)
    );
    assert_eq!(
        database
            .count("SELECT count(*) FROM tasks WHERE priority = 9")
            .await,
        1_500
    );

    longhaul.stop().await;
}

/// Writes three words, and fails after the second in its first attempt.
struct Speak;

impl Task for Speak {
    const TYPE: &'static str = "speak";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for (place, word) in ["one", "two", "three"].into_iter().enumerate() {
            if place == 2 && ctx.attempt() == 1 {
                return Err(Stop::retryable("lost for words"));
            }
            ctx.emit(word).await?;
        }
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        quick()
    }
}

/// What is left of the output when it has ended, as a reader puts it together.
async fn text_of(mut output: Output) -> (Vec<String>, Option<Status>) {
    let mut words: Vec<(u64, String)> = Vec::new();
    let mut ended = None;
    while let Some(piece) = output.next().await.unwrap() {
        match piece.content {
            PieceContent::Chunk(word) => words.push((piece.number, word)),
            PieceContent::Rewind { to } => words.retain(|(number, _)| *number <= to),
            PieceContent::Reset { reason } => panic!("{reason}"),
            PieceContent::End(status) => ended = Some(status),
        }
    }

    (words.into_iter().map(|(_, word)| word).collect(), ended)
}

async fn read_output_across_attempts_to_its_end(database: Home) {
    let longhaul = open(&database).await.register(Speak).start().await.unwrap();
    let handle = longhaul.submit::<Speak>(()).await.unwrap();
    let wanted = (
        ["one", "two", "three"].map(str::to_owned).to_vec(),
        Some(Status::Completed),
    );

    assert_eq!(
        text_of(handle.output().await.unwrap()).await,
        wanted,
        "read while it is written"
    );
    assert_eq!(
        text_of(handle.output().await.unwrap()).await,
        wanted,
        "read afterwards"
    );

    let mut last = handle.output().await.unwrap();
    let mut numbers = Vec::new();
    while let Some(piece) = last.next().await.unwrap() {
        numbers.push(piece.number);
    }

    let before_last = numbers[numbers.len() - 3];
    let (rest, _) = text_of(handle.output().await.unwrap().after(before_last)).await;
    assert_eq!(
        rest,
        ["three"],
        "who was there before goes on after the number of the last piece"
    );
    longhaul.stop().await;
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Pages {
    read: u32,
}

struct Report;

impl Task for Report {
    const TYPE: &'static str = "report";
    type Params = String;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.progress(Progress::of(1, 1).details(&Pages { read: 7 }))
            .await?;
        ctx.store_artifact("report.txt", "text/plain", ctx.params.as_bytes())
            .await?;
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().progress::<Pages>()
    }
}

async fn read_files_and_details_of_progress(database: Home) {
    let folder = tempfile::tempdir().unwrap();
    let longhaul = open(&database)
        .await
        .artifacts(folder.path())
        .register(Report)
        .start()
        .await
        .unwrap();

    let schema = longhaul
        .types()
        .next()
        .unwrap()
        .progress_schema
        .clone()
        .to_value();

    assert_eq!(
        schema["$defs"]["Pages"]["properties"]["read"]["type"],
        "integer"
    );
    let handle = longhaul
        .submit::<Report>("seven pages".to_owned())
        .await
        .unwrap();

    handle.result().await.unwrap();
    let progress = handle.progress().await.unwrap().unwrap();
    assert_eq!(
        progress.read_details::<Pages>().unwrap(),
        Some(Pages { read: 7 })
    );
    let files = handle.artifacts().await.unwrap();

    assert_eq!(
        files
            .iter()
            .map(|file| file.file_name.as_str())
            .collect::<Vec<_>>(),
        ["report.txt"]
    );

    assert_eq!(
        handle.read_artifact(&files[0]).await.unwrap(),
        b"seven pages"
    );
    longhaul.stop().await;
}
