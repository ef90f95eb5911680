//! A worker that dies in the middle, and one that goes on.

use std::sync::{Arc, Mutex};

use futures::stream::BoxStream;
use libtest_mimic::Trial;
use longhaul::{Status, testing::TestLonghaul};
use longhaul_novel::{
    install_with,
    provider::{Piece, Prompt, Provider, ProviderError},
    tasks::{
        BatchGenerateSummary, BatchOrder, GenerateSummary, ImportNovel, ImportOrder, SceneOrder,
        Style,
    },
};

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
    world::{World, offline, settings, study},
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "resume::a_loop_goes_on_from_its_checkpoint",
            a_loop_goes_on_from_its_checkpoint,
        ),
        trial(
            "resume::what_a_dead_attempt_has_written_is_not_asked_for_again",
            what_is_written_is_not_asked_for_again,
        ),
        trial(
            "resume::an_import_that_runs_again_doubles_nothing",
            an_import_that_runs_again_doubles_nothing,
        ),
    ]
}

/// The built-in provider, with a list of what it was asked.
#[derive(Debug)]
struct Noted {
    writes: Arc<dyn Provider>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Provider for Noted {
    fn key(&self) -> &str {
        self.writes.key()
    }

    fn write(&self, prompt: Prompt) -> BoxStream<'static, Result<Piece, ProviderError>> {
        self.asked.lock().unwrap().push(prompt.text().to_owned());
        self.writes.write(prompt)
    }
}

async fn a_loop_goes_on_from_its_checkpoint() {
    // The novel is imported by a Longhaul on the database; the loop runs on one in memory, whose worker can be killed.
    let world = World::start(FreshDatabase::make(Backend::Sqlite).await).await;
    let novel = world
        .import("one\n***\ntwo\n***\nthree\n***\nfour\n***\nfive")
        .await;
    let database = world.stop().await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let provider = Arc::new(Noted {
        writes: offline(),
        asked: Arc::clone(&asked),
    });
    let study = study(&database.url, provider).await;
    let library = study.library.clone();
    let longhaul = TestLonghaul::new()
        .configure(|builder| install_with(builder, study, &settings()))
        .start();
    let order = BatchOrder {
        novel_id: novel.clone(),
        scenes: None,
        style: Style::Loop,
    };
    let handle = longhaul
        .submit::<BatchGenerateSummary>(order)
        .owner("u-1")
        .await
        .unwrap();

    longhaul.crash_after_checkpoints(3);
    longhaul.run_until_done().await;
    assert_eq!(
        longhaul.crashes(),
        1,
        "a test of a crash that never came tests nothing"
    );
    longhaul.assert_ended(&handle, Status::Completed);
    let result = longhaul.result(&handle);
    assert_eq!((result.done, result.failed), (5, 0));
    let words = ["one", "two", "three", "four", "five"];
    assert_eq!(
        *asked.lock().unwrap(),
        words,
        "each scene was asked for once"
    );
    assert_eq!(
        result.usage.prompt_tokens, 5,
        "what the dead attempt spent is counted"
    );
    let scene = library.scene("u-1", &novel, 1).await.unwrap().unwrap();
    assert_eq!(scene.summary_task, Some(handle.id().0.to_string()));

    // The readers of the output have one text, without what the dead attempt had begun.
    let entries = longhaul
        .services()
        .streams
        .read(handle.id(), 0, 1_000)
        .await
        .unwrap()
        .entries;
    let told: String = entries
        .iter()
        .map(|entry| format!("{:?}", entry.content))
        .collect();
    for scene in 1..=5 {
        assert_eq!(
            told.matches(&format!("[scene {scene}]")).count(),
            1,
            "{told}"
        );
    }
}

async fn what_is_written_is_not_asked_for_again() {
    let world = World::start(FreshDatabase::make(Backend::Sqlite).await).await;
    let novel = world.import("one").await;
    let database = world.stop().await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let provider = Arc::new(Noted {
        writes: offline(),
        asked: Arc::clone(&asked),
    });
    let study = study(&database.url, provider).await;
    let library = study.library.clone();
    let longhaul = TestLonghaul::new()
        .configure(|builder| install_with(builder, study, &settings()))
        .start();
    let order = SceneOrder {
        novel_id: novel.clone(),
        scene: 1,
    };
    let handle = longhaul
        .submit::<GenerateSummary>(order)
        .owner("u-1")
        .await
        .unwrap();
    // An attempt that died between its row and its report leaves the scene like this.
    let id = handle.id().0;
    database
        .execute(&format!(
            "UPDATE scenes SET summary = 'kept', summary_task = '{id}'"
        ))
        .await;

    longhaul.run_until_done().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert_eq!(longhaul.result(&handle).words, 1);
    assert_eq!(*asked.lock().unwrap(), [] as [String; 0]);
    let scene = library.scene("u-1", &novel, 1).await.unwrap().unwrap();
    assert_eq!(scene.summary.as_deref(), Some("kept"));
}

async fn an_import_that_runs_again_doubles_nothing() {
    let world = World::start(FreshDatabase::make(Backend::Sqlite).await).await;
    let novel = world.import("one\n***\ntwo").await;
    let before = world.novel(&novel).await;
    let task = world
        .longhaul
        .submit::<ImportNovel>(ImportOrder {
            novel_id: novel.clone(),
        })
        .owner("u-1");
    let again = task.await.unwrap().result().await.unwrap();
    assert_eq!((again.chapters, again.scenes), (1, 2));
    assert_eq!(world.novel(&novel).await["chapters"], before["chapters"]);
    world.stop().await;
}
