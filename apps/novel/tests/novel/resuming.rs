//! A worker that crashes during a task, and the attempt that continues it.

use std::sync::{Arc, Mutex};

use futures::stream::BoxStream;
use libtest_mimic::Trial;
use longhaul::{Status, testing::TestLonghaul};
use longhaul_novel::{
    install_with,
    provider::{Piece, Prompt, Provider, ProviderError},
    tasks::{
        BatchGenerateSummary, BatchParams, GenerateSummary, ImportNovel, ImportParams, SceneParams,
        Style,
    },
};

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
    world::{World, offline, settings, writer},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "resume::a_loop_continues_from_its_checkpoint",
            a_loop_continues_from_its_checkpoint,
        ),
        trial(
            "resume::a_text_of_a_crashed_attempt_is_not_requested_again",
            a_written_text_is_not_requested_again,
        ),
        trial(
            "resume::an_import_that_runs_again_duplicates_nothing",
            an_import_that_runs_again_duplicates_nothing,
        ),
    ]
}

/// The built-in provider, with a list of its prompts.
#[derive(Debug)]
struct RecordingProvider {
    inner: Arc<dyn Provider>,
    prompts: Arc<Mutex<Vec<String>>>,
}

impl Provider for RecordingProvider {
    fn key(&self) -> &str {
        self.inner.key()
    }

    fn write(&self, prompt: Prompt) -> BoxStream<'static, Result<Piece, ProviderError>> {
        self.prompts.lock().unwrap().push(prompt.text().to_owned());
        self.inner.write(prompt)
    }
}

async fn a_loop_continues_from_its_checkpoint() {
    // A Longhaul on the database imports the novel. The loop runs on one in memory, whose worker
    // can crash.
    let world = World::start(FreshDatabase::make(Backend::Sqlite).await).await;
    let novel = world
        .import("one\n***\ntwo\n***\nthree\n***\nfour\n***\nfive")
        .await;
    let database = world.stop().await;
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let provider = Arc::new(RecordingProvider {
        inner: offline(),
        prompts: Arc::clone(&prompts),
    });

    let writer = writer(&database.url, provider).await;
    let library = writer.library.clone();
    let longhaul = TestLonghaul::new()
        .configure(|builder| install_with(builder, writer, &settings()))
        .start();
    let params = BatchParams {
        novel_id: novel.clone(),
        scenes: None,
        style: Style::Loop,
    };

    let handle = longhaul
        .submit::<BatchGenerateSummary>(params)
        .owner("u-1")
        .await
        .unwrap();

    longhaul.crash_after_checkpoints(3);
    longhaul.run_until_done().await;
    assert_eq!(longhaul.crashes(), 1, "the worker has crashed once");
    longhaul.assert_ended(&handle, Status::Completed);

    let result = longhaul.result(&handle);
    assert_eq!((result.done, result.failed), (5, 0));
    let texts = ["one", "two", "three", "four", "five"];
    assert_eq!(
        *prompts.lock().unwrap(),
        texts,
        "each scene was requested once"
    );
    assert_eq!(
        result.usage.prompt_tokens, 5,
        "the cost of the crashed attempt is counted"
    );

    let scene = library.scene("u-1", &novel, 1).await.unwrap().unwrap();
    assert_eq!(scene.summary_task, Some(handle.id().0.to_string()));

    // Readers of the output get each scene once, without the unfinished scene of the crashed
    // attempt.
    let entries = longhaul
        .sdk_client()
        .streams
        .read(handle.id(), 0, 1_000)
        .await
        .unwrap()
        .entries;

    let output: String = entries
        .iter()
        .map(|entry| format!("{:?}", entry.content))
        .collect();

    for scene in 1..=5 {
        assert_eq!(
            output.matches(&format!("[scene {scene}]")).count(),
            1,
            "{output}"
        );
    }
}

async fn a_written_text_is_not_requested_again() {
    let world = World::start(FreshDatabase::make(Backend::Sqlite).await).await;
    let novel = world.import("one").await;
    let database = world.stop().await;
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let provider = Arc::new(RecordingProvider {
        inner: offline(),
        prompts: Arc::clone(&prompts),
    });
    let writer = writer(&database.url, provider).await;

    let library = writer.library.clone();
    let longhaul = TestLonghaul::new()
        .configure(|builder| install_with(builder, writer, &settings()))
        .start();
    let params = SceneParams {
        novel_id: novel.clone(),
        scene: 1,
    };
    let handle = longhaul
        .submit::<GenerateSummary>(params)
        .owner("u-1")
        .await
        .unwrap();

    // The scene after an attempt that crashed between saving the text and reporting the result.
    let id = handle.id().0;
    database
        .execute(&format!(
            "UPDATE scenes SET summary = 'saved', summary_task = '{id}'"
        ))
        .await;

    longhaul.run_until_done().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert_eq!(longhaul.result(&handle).word_count, 1);
    assert_eq!(*prompts.lock().unwrap(), [] as [String; 0]);

    let scene = library.scene("u-1", &novel, 1).await.unwrap().unwrap();
    assert_eq!(scene.summary.as_deref(), Some("saved"));
}

async fn an_import_that_runs_again_duplicates_nothing() {
    let world = World::start(FreshDatabase::make(Backend::Sqlite).await).await;
    let novel = world.import("one\n***\ntwo").await;
    let before = world.novel(&novel).await;
    let task = world
        .longhaul
        .submit::<ImportNovel>(ImportParams {
            novel_id: novel.clone(),
        })
        .owner("u-1");

    let again = task.await.unwrap().result().await.unwrap();
    assert_eq!((again.chapters, again.scenes), (1, 2));
    assert_eq!(world.novel(&novel).await["chapters"], before["chapters"]);
    world.stop().await;
}
