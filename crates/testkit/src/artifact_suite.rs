//! The conformance suite of the artifact store contract.

use std::collections::BTreeSet;

use futures::future::join_all;
use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId, bounds,
    contract::artifact_store::{Artifact, ArtifactError, ArtifactStore, NewArtifact},
    ids::ArtifactId,
};

use crate::suite::{self, Case, Dice, Factory, cases, random_task_id};

/// Makes an empty store.
pub type ArtifactStoreFactory = Factory<(), dyn ArtifactStore>;

/// One trial for each case, named `{backend}::artifact_store::{sentence}`.
pub fn trials(backend: &str, factory: &ArtifactStoreFactory) -> Vec<Trial> {
    suite::trials(backend, "artifact_store", factory, cases())
}

fn cases() -> Vec<Case<ArtifactStoreFactory>> {
    cases![
        bytes_are_read_as_they_were_put,
        a_span_of_a_file_is_read,
        name_and_type_of_a_file_are_stored_with_it,
        a_key_consists_of_task_attempt_and_a_random_id,
        files_with_the_same_name_are_separate,
        a_name_that_looks_like_a_path_is_only_a_label,
        an_unknown_key_is_not_found,
        a_key_that_leads_out_of_the_store_is_refused,
        another_spelling_of_a_key_is_refused,
        removing_a_file_twice_is_no_error,
        removing_all_files_of_a_task_leaves_the_others,
        a_task_can_store_files_again_after_a_removal,
        invalid_names_and_types_are_refused,
        a_file_that_is_too_large_is_refused,
        files_put_concurrently_are_all_stored,
        files_put_during_removals_are_stored,
    ]
}

fn text_file(task_id: TaskId, bytes: &[u8]) -> NewArtifact<'_> {
    let id = ArtifactId(random_task_id().0);
    NewArtifact {
        id,
        task_id,
        attempt: 1,
        file_name: "chapter.txt",
        content_type: "text/plain; charset=utf-8",
        bytes,
    }
}

async fn put(store: &dyn ArtifactStore, task_id: TaskId, text: &str) -> Artifact {
    store
        .put(text_file(task_id, text.as_bytes()))
        .await
        .unwrap()
}

async fn assert_stored(store: &dyn ArtifactStore, artifact: &Artifact, bytes: &[u8]) {
    let (found, contents) = store.get(&artifact.key).await.unwrap();
    assert_eq!(found, *artifact);
    assert!(
        contents == bytes,
        "{} bytes of {}",
        contents.len(),
        bytes.len()
    );
}

async fn assert_gone(store: &dyn ArtifactStore, artifact: &Artifact) {
    assert_eq!(store.get(&artifact.key).await, Err(ArtifactError::NotFound));
}

async fn a_span_of_a_file_is_read(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let stored = put(&*store, random_task_id(), "0123456789").await;
    let span = async |offset, length| store.read(&stored.key, offset, length).await.unwrap();
    assert_eq!(span(0, 10).await, b"0123456789");
    assert_eq!(span(3, 4).await, b"3456");
    assert_eq!(span(8, 10).await, b"89");
    assert_eq!(span(0, u64::MAX).await.len(), 10);
    assert!(
        span(10, 1).await.is_empty()
            && span(u64::MAX, u64::MAX).await.is_empty()
            && span(5, 0).await.is_empty()
    );

    store.remove(&stored.key).await.unwrap();
    assert_eq!(
        store.read(&stored.key, 0, 1).await,
        Err(ArtifactError::NotFound)
    );
    assert!(matches!(
        store.read("../etc/passwd", 0, 1).await,
        Err(ArtifactError::Invalid(_))
    ));
}

async fn bytes_are_read_as_they_were_put(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let mut dice = Dice::new(1);
    for length in [0, 1, 2, 255, 4_096, 65_537, 3_000_000] {
        let bytes: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
        let artifact = store
            .put(text_file(random_task_id(), &bytes))
            .await
            .unwrap();
        assert_eq!(artifact.bytes, length);
        assert_stored(&*store, &artifact, &bytes).await;
    }

    let every_byte: Vec<u8> = (0..=255).collect();
    let artifact = store
        .put(text_file(random_task_id(), &every_byte))
        .await
        .unwrap();

    assert_stored(&*store, &artifact, &every_byte).await;
}

async fn name_and_type_of_a_file_are_stored_with_it(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let longest = "x".repeat(200);
    for file_name in [
        "a.txt",
        "第一章.epub",
        "with \"quotes\" & <marks>; x=y",
        "🐉",
        " ",
        longest.as_str(),
    ] {
        for content_type in ["text/plain", "application/vnd.x+json; a=\"b\""] {
            let new = NewArtifact {
                file_name,
                content_type,
                ..text_file(random_task_id(), b"x")
            };
            let artifact = store.put(new).await.unwrap();

            assert_eq!(
                (artifact.file_name.as_str(), artifact.content_type.as_str()),
                (file_name, content_type)
            );
            assert_stored(&*store, &artifact, b"x").await;
        }
    }
}

async fn a_key_consists_of_task_attempt_and_a_random_id(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task_id = random_task_id();
    for attempt in [0, 1, 17, u32::MAX] {
        let artifact = store
            .put(NewArtifact {
                attempt,
                ..text_file(task_id, b"x")
            })
            .await
            .unwrap();

        let random = artifact
            .key
            .strip_prefix(&format!("{task_id}/{attempt}/"))
            .expect("a key starts with task and attempt");
        assert_eq!(uuid::Uuid::parse_str(random).unwrap().get_version_num(), 4);
        assert_stored(&*store, &artifact, b"x").await;
    }
}

async fn files_with_the_same_name_are_separate(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();
    let first = put(&*store, task, "one").await;
    let second = put(&*store, task, "two").await;
    assert_ne!(first.key, second.key);
    assert_stored(&*store, &first, b"one").await;
    assert_stored(&*store, &second, b"two").await;
}

async fn a_name_that_looks_like_a_path_is_only_a_label(make: ArtifactStoreFactory) {
    let store = make(()).await;
    for file_name in [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "a/b/c",
        "C:\\x",
        "x.part",
        "~",
        "%2e%2e%2f",
    ] {
        let artifact = store
            .put(NewArtifact {
                file_name,
                ..text_file(random_task_id(), b"x")
            })
            .await
            .unwrap();
        assert!(
            !artifact.key.contains(file_name) || file_name == ".",
            "{}",
            artifact.key
        );
        assert!(
            artifact
                .key
                .chars()
                .all(|c| c.is_ascii_hexdigit() || c == '-' || c == '/')
        );
        assert_eq!(artifact.file_name, file_name);
        assert_stored(&*store, &artifact, b"x").await;
    }
}

async fn an_unknown_key_is_not_found(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();
    let random = random_task_id();
    let key = format!("{task}/1/{random}");
    assert_eq!(store.get(&key).await, Err(ArtifactError::NotFound));
    assert_eq!(store.remove(&key).await, Ok(()));
    let stored = put(&*store, task, "x").await;

    assert_eq!(store.get(&key).await, Err(ArtifactError::NotFound));
    assert_stored(&*store, &stored, b"x").await;
}

/// Parts of keys that have led out of folders in other systems.
const BAD_STEPS: &[&str] = &[
    "..",
    ".",
    "",
    " ",
    "...",
    "....//",
    "..\\",
    "\\",
    "~",
    "*",
    "?",
    "%2e%2e",
    "%2e%2e%2f",
    "..%2f",
    "..%5c",
    "%252e%252e",
    "..%c0%af",
    "%00",
    "\u{0}",
    "..\u{0}",
    "\n",
    "..\n",
    "．．",
    "\u{2024}\u{2024}",
    "..;",
    "C:",
    "NUL",
    "-",
    "--",
    "/",
    "//",
    "/etc/passwd",
    "etc",
    ".part",
    ".git",
    "+1",
    "01",
    "1e0",
    "0x1",
    "-1",
    "4294967296",
    "1 ",
    " 1",
    "١",
];

/// Bad keys: each bad step alone, around the key and in place of each of its three steps.
fn bad_keys(real: &str) -> BTreeSet<String> {
    let steps: Vec<&str> = real.split('/').collect();
    let [task, attempt, id] = steps[..] else {
        panic!("{real} has three steps");
    };

    let mut keys = BTreeSet::new();
    for bad in BAD_STEPS {
        keys.extend([
            (*bad).to_owned(),
            bad.repeat(2_000),
            format!("{bad}/{bad}/{bad}"),
            format!("{bad}/{real}"),
            format!("{real}/{bad}"),
            format!("{real}{bad}"),
            format!("{bad}{real}"),
            format!("{bad}/{attempt}/{id}"),
            format!("{task}/{bad}/{id}"),
            format!("{task}/{attempt}/{bad}"),
            format!("{task}/{attempt}/{bad}/{id}"),
        ]);
    }

    for depth in 1..10 {
        let up = "../".repeat(depth);
        keys.extend([
            format!("{up}etc/passwd"),
            format!("{real}/{up}etc/passwd"),
            format!("{task}/{up}x"),
            format!("/{up}etc/passwd"),
            format!("{task}/1/{up}{id}"),
        ]);
    }

    keys.remove(real);
    keys
}

async fn a_key_that_leads_out_of_the_store_is_refused(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let stored = put(&*store, random_task_id(), "x").await;
    let keys = bad_keys(&stored.key);
    assert!(keys.len() >= 100);

    for key in keys {
        assert!(
            matches!(store.get(&key).await, Err(ArtifactError::Invalid(_))),
            "{key:?}"
        );
        assert!(
            matches!(store.remove(&key).await, Err(ArtifactError::Invalid(_))),
            "{key:?}"
        );
    }

    assert_stored(&*store, &stored, b"x").await;
}

async fn another_spelling_of_a_key_is_refused(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let stored = put(&*store, random_task_id(), "x").await;
    let steps: Vec<&str> = stored.key.split('/').collect();

    let spellings = [
        stored.key.to_uppercase(),
        stored.key.replace('-', ""),
        format!("{{{}}}/{}/{}", steps[0], steps[1], steps[2]),
        format!("urn:uuid:{}/{}/{}", steps[0], steps[1], steps[2]),
        format!("{}/{}/urn:uuid:{}", steps[0], steps[1], steps[2]),
        format!("{}/0{}/{}", steps[0], steps[1], steps[2]),
        stored.key.replace('/', "//"),
        stored.key.replace('/', "\\"),
    ];

    for key in spellings {
        assert!(
            matches!(store.get(&key).await, Err(ArtifactError::Invalid(_))),
            "{key:?}"
        );
        assert!(
            matches!(store.remove(&key).await, Err(ArtifactError::Invalid(_))),
            "{key:?}"
        );
    }

    assert_stored(&*store, &stored, b"x").await;
}

async fn removing_a_file_twice_is_no_error(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();
    let removed = put(&*store, task, "one").await;
    let stored = put(&*store, task, "two").await;
    for _ in 0..3 {
        store.remove(&removed.key).await.unwrap();
        assert_gone(&*store, &removed).await;
    }

    assert_stored(&*store, &stored, b"two").await;
}

async fn removing_all_files_of_a_task_leaves_the_others(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();
    let other = random_task_id();
    let mut removed = Vec::new();

    for attempt in [1, 1, 2, 3] {
        removed.push(
            store
                .put(NewArtifact {
                    attempt,
                    ..text_file(task, b"x")
                })
                .await
                .unwrap(),
        );
    }

    let stored = put(&*store, other, "stored").await;
    for _ in 0..2 {
        store.remove_all(task).await.unwrap();
    }

    store.remove_all(random_task_id()).await.unwrap();
    for artifact in &removed {
        assert_gone(&*store, artifact).await;
    }

    assert_stored(&*store, &stored, b"stored").await;
}

async fn a_task_can_store_files_again_after_a_removal(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();
    let first = put(&*store, task, "one").await;
    store.remove(&first.key).await.unwrap();
    let second = put(&*store, task, "two").await;

    assert_stored(&*store, &second, b"two").await;
    store.remove_all(task).await.unwrap();
    let third = put(&*store, task, "three").await;
    assert_stored(&*store, &third, b"three").await;
    assert_gone(&*store, &second).await;
}

async fn invalid_names_and_types_are_refused(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let long = "x".repeat(10_000);
    for bad in ["", "a\r\nSet-Cookie: b", "a\u{0}", "\u{7f}", long.as_str()] {
        let named = NewArtifact {
            file_name: bad,
            ..text_file(random_task_id(), b"x")
        };
        let typed = NewArtifact {
            content_type: bad,
            ..text_file(random_task_id(), b"x")
        };
        for new in [named, typed] {
            assert!(
                matches!(store.put(new).await, Err(ArtifactError::Invalid(_))),
                "{bad:?}"
            );
        }
    }

    let typed = NewArtifact {
        content_type: "text/文",
        ..text_file(random_task_id(), b"x")
    };
    assert!(matches!(
        store.put(typed).await,
        Err(ArtifactError::Invalid(_))
    ));
}

async fn a_file_that_is_too_large_is_refused(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let bytes = vec![0; bounds::ARTIFACT_BYTES + 1];
    let refused = store.put(text_file(random_task_id(), &bytes)).await;
    assert!(matches!(refused, Err(ArtifactError::Invalid(_))));
}

async fn files_put_concurrently_are_all_stored(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();
    let put = |number: u32| {
        let store = store.share();
        tokio::spawn(async move {
            let text = format!("file {number}");
            let new = NewArtifact {
                attempt: number % 3,
                ..text_file(task, text.as_bytes())
            };
            (store.put(new).await.unwrap(), text)
        })
    };

    for result in join_all((0..60).map(put)).await {
        let (artifact, text) = result.unwrap();
        assert_stored(&*store, &artifact, text.as_bytes()).await;
    }
}

async fn files_put_during_removals_are_stored(make: ArtifactStoreFactory) {
    let store = make(()).await;
    let task = random_task_id();

    // A removal may remove the last file of the task while the next one is put.
    let churn = |_| {
        let store = store.share();
        tokio::spawn(async move {
            for _ in 0..20 {
                let artifact = put(&*store, task, "x").await;
                assert_stored(&*store, &artifact, b"x").await;
                store.remove(&artifact.key).await.unwrap();
                assert_gone(&*store, &artifact).await;
            }
        })
    };
    for done in join_all((0..4).map(churn)).await {
        done.unwrap();
    }
}
