//! Files of tasks: fenced like every write of a worker, seen only when their attempt's result was accepted, swept when due.

use std::sync::Arc;

use longhaul_domain::{
    Lease, NewTask, Status, StoreError, TaskId,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    bounds,
    contract::store::{Access, Outcome, RetryScope, Verdict},
    filter::Retention,
    ids::ArtifactId,
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, MANY, OWNER, completed, fatal, forged, new_task, random_uuid, refused_field,
        retryable,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_file_is_seen_when_the_result_of_its_attempt_was_accepted,
        a_file_of_an_attempt_that_lost_is_not_seen,
        a_file_of_a_failed_or_cancelled_attempt_is_not_seen,
        a_parents_files_of_both_phases_are_seen,
        a_stale_lease_notes_nothing,
        the_same_note_again_is_the_same_file,
        anothers_files_do_not_exist,
        files_that_do_not_fit_are_refused_by_field,
        a_task_has_so_many_files_and_no_more,
        a_sweep_takes_what_is_due_and_no_more_than_asked,
        a_file_that_could_not_be_deleted_is_counted_and_due_again,
        files_of_a_pruned_task_are_due_at_once_and_forgotten_when_deleted,
        what_is_known_of_deleted_files_goes_with_their_task,
    ]
}

const KEEP_MS: u64 = 3 * 24 * HOUR_MS;

fn note(lease: Lease, name: &str) -> ArtifactNote {
    ArtifactNote {
        lease,
        id: ArtifactId(random_uuid()),
        key: format!("{}/{}/{}", lease.task_id, lease.attempt, random_uuid()),
        file_name: name.to_owned(),
        content_type: "text/plain".to_owned(),
        bytes: 7,
        keep_ms: KEEP_MS,
    }
}

fn deleted(record: &ArtifactRecord, is_deleted: bool) -> Swept {
    Swept {
        id: record.id,
        task_id: record.task_id,
        is_deleted,
    }
}

fn names_of(records: &[ArtifactRecord]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record.file_name.as_str())
        .collect()
}

impl Fixture {
    async fn keep(&self, note: &ArtifactNote) -> ArtifactRecord {
        let (verdict, record) = self
            .store
            .note_artifact(note)
            .await
            .expect("the note is good");
        assert_eq!(verdict, Verdict::Applied(Status::Running));
        record.expect("an accepted file")
    }

    async fn files(&self, id: TaskId) -> Vec<ArtifactRecord> {
        self.store
            .list_artifacts(&Access::All, id)
            .await
            .expect("the task exists")
    }

    async fn due_files(&self) -> Vec<ArtifactRecord> {
        self.store
            .list_expired_artifacts(MANY)
            .await
            .expect("the request is good")
    }

    /// A task that has ended well with one file.
    async fn with_file(&self, name: &str) -> ArtifactRecord {
        let lease = self.start(new_task()).await;
        let record = self.keep(&note(lease, name)).await;
        self.finish(lease, completed()).await;
        record
    }
}

async fn a_file_is_seen_when_the_result_of_its_attempt_was_accepted(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let (one, two) = (note(lease, "一.txt"), note(lease, "b \"quoted\".txt"));
    let kept = fixture.keep(&one).await;
    assert_eq!(
        (kept.id, &kept.key, kept.bytes, kept.attempt),
        (one.id, &one.key, 7, 1)
    );
    assert_eq!(kept.expires_at, kept.created_at.plus_ms(KEEP_MS));
    assert_eq!((kept.cleaned_at, kept.failures), (None, 0));
    fixture.clock.advance_ms(1_000);
    fixture.keep(&two).await;
    assert_eq!(
        fixture.files(lease.task_id).await,
        [],
        "the attempt has not ended"
    );
    assert!(matches!(
        fixture.store.get_artifact(one.id).await,
        Err(StoreError::NotFound)
    ));
    fixture.finish(lease, completed()).await;
    let files = fixture.files(lease.task_id).await;
    assert_eq!(
        (names_of(&files), &files[0]),
        (vec!["一.txt", "b \"quoted\".txt"], &kept)
    );
    assert_eq!(fixture.store.get_artifact(one.id).await.unwrap(), kept);
}

async fn a_file_of_an_attempt_that_lost_is_not_seen(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let early = fixture.keep(&note(lease, "of the first attempt")).await;
    fixture.finish(lease, retryable(0)).await;
    let node = fixture.node().await;
    let second = fixture.claim_this(node, lease.task_id).await;
    let (verdict, record) = fixture
        .store
        .note_artifact(&note(lease, "late"))
        .await
        .unwrap();
    assert_eq!((verdict, record), (Verdict::Stale(Status::Running), None));
    fixture.keep(&note(second, "of the second attempt")).await;
    fixture.finish(second, completed()).await;
    assert_eq!(
        names_of(&fixture.files(lease.task_id).await),
        ["of the second attempt"]
    );
    assert!(matches!(
        fixture.store.get_artifact(early.id).await,
        Err(StoreError::NotFound)
    ));
    // It is deleted like any other.
    fixture.clock.advance_ms(KEEP_MS);
    assert_eq!(fixture.due_files().await.len(), 2);
}

async fn a_file_of_a_failed_or_cancelled_attempt_is_not_seen(fixture: Arc<Fixture>) {
    let failed = fixture.start(new_task()).await;
    fixture.keep(&note(failed, "half of it")).await;

    fixture.finish(failed, fatal()).await;
    assert_eq!(fixture.files(failed.task_id).await, []);
    let cancelled = fixture.start(new_task()).await;
    fixture.keep(&note(cancelled, "half of it")).await;
    fixture
        .store
        .cancel_task(&Access::All, cancelled.task_id)
        .await
        .unwrap();
    assert_eq!(fixture.files(cancelled.task_id).await, []);
    // Nor does a later success publish it.
    fixture
        .store
        .retry_task(&Access::All, failed.task_id, RetryScope::Task)
        .await
        .unwrap();
    fixture.run(failed.task_id, completed()).await;
    assert_eq!(fixture.files(failed.task_id).await, []);
}

async fn a_parents_files_of_both_phases_are_seen(fixture: Arc<Fixture>) {
    let parent = fixture
        .start(NewTask {
            finish_step: true,
            ..new_task()
        })
        .await;
    fixture.keep(&note(parent, "run")).await;
    let children = fixture.submit_children(parent, vec![new_task()]).await;
    fixture
        .finish(
            parent,
            Outcome::Completed {
                result: None,
                result_url: None,
            },
        )
        .await;
    assert_eq!(names_of(&fixture.files(parent.task_id).await), ["run"]);
    fixture.run(children[0], completed()).await;
    let node = fixture.node().await;
    let finish = fixture.claim_this(node, parent.task_id).await;
    fixture.clock.advance_ms(1);
    fixture.keep(&note(finish, "finish")).await;
    assert_eq!(names_of(&fixture.files(parent.task_id).await), ["run"]);
    fixture.finish(finish, completed()).await;
    assert_eq!(
        names_of(&fixture.files(parent.task_id).await),
        ["run", "finish"]
    );
}

async fn a_stale_lease_notes_nothing(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    for other in [
        forged(&lease),
        Lease {
            attempt: 2,
            ..lease
        },
    ] {
        let (verdict, record) = fixture
            .store
            .note_artifact(&note(other, "forged"))
            .await
            .unwrap();
        assert_eq!((verdict, record), (Verdict::Stale(Status::Running), None));
    }
    let nobody = Lease {
        task_id: TaskId(random_uuid()),
        ..lease
    };
    assert_eq!(
        fixture
            .store
            .note_artifact(&note(nobody, "x"))
            .await
            .unwrap(),
        (Verdict::Missing, None)
    );
    fixture.finish(lease, completed()).await;
    let (verdict, _) = fixture
        .store
        .note_artifact(&note(lease, "late"))
        .await
        .unwrap();
    assert_eq!(verdict, Verdict::Stale(Status::Completed));
    assert_eq!(fixture.files(lease.task_id).await, []);
}

async fn the_same_note_again_is_the_same_file(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let one = note(lease, "once");
    let first = fixture.keep(&one).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.keep(&one).await, first);
    fixture.finish(lease, completed()).await;
    assert_eq!(fixture.files(lease.task_id).await, [first]);
}

async fn anothers_files_do_not_exist(fixture: Arc<Fixture>) {
    let record = fixture.with_file("private").await;
    let list = async |access| fixture.store.list_artifacts(&access, record.task_id).await;
    assert_eq!(
        list(Access::Owner(OWNER.to_owned())).await.unwrap().len(),
        1
    );
    assert!(matches!(
        list(Access::Owner("somebody-else".to_owned())).await,
        Err(StoreError::NotFound)
    ));
    let missing = fixture
        .store
        .list_artifacts(&Access::All, TaskId(random_uuid()))
        .await;
    assert!(matches!(missing, Err(StoreError::NotFound)));
}

async fn files_that_do_not_fit_are_refused_by_field(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let good = note(lease, "good");
    let refused =
        async |note: ArtifactNote| refused_field(fixture.store.note_artifact(&note).await);
    assert_eq!(
        refused(ArtifactNote {
            file_name: "x".repeat(256),
            ..good.clone()
        })
        .await,
        "fileName"
    );
    assert_eq!(
        refused(ArtifactNote {
            file_name: String::new(),
            ..good.clone()
        })
        .await,
        "fileName"
    );
    assert_eq!(
        refused(ArtifactNote {
            content_type: "x".repeat(201),
            ..good.clone()
        })
        .await,
        "contentType"
    );
    assert_eq!(
        refused(ArtifactNote {
            key: "x".repeat(201),
            ..good.clone()
        })
        .await,
        "key"
    );
    assert_eq!(
        refused(ArtifactNote {
            bytes: u64::MAX,
            ..good.clone()
        })
        .await,
        "bytes"
    );
    assert_eq!(
        refused(ArtifactNote {
            keep_ms: u64::MAX,
            ..good
        })
        .await,
        "keep"
    );
    assert_eq!(
        refused_field(fixture.store.list_expired_artifacts(0).await),
        "limit"
    );
    assert_eq!(
        refused_field(fixture.store.note_sweep(&[], u64::MAX).await),
        "retry"
    );
}

async fn a_task_has_so_many_files_and_no_more(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    for number in 0..bounds::ARTIFACTS {
        fixture.keep(&note(lease, &number.to_string())).await;
    }
    assert_eq!(
        refused_field(fixture.store.note_artifact(&note(lease, "one more")).await),
        "artifacts"
    );
}

async fn a_sweep_takes_what_is_due_and_no_more_than_asked(fixture: Arc<Fixture>) {
    let mut records = Vec::new();
    for name in ["a", "b", "c"] {
        records.push(fixture.with_file(name).await);
        fixture.clock.advance_ms(HOUR_MS);
    }
    assert_eq!(fixture.due_files().await, []);
    fixture.clock.advance_ms(KEEP_MS - 2 * HOUR_MS);
    assert_eq!(
        names_of(&fixture.due_files().await),
        ["a", "b"],
        "the longest due first"
    );
    assert_eq!(
        names_of(&fixture.store.list_expired_artifacts(1).await.unwrap()),
        ["a"]
    );
    let swept: Vec<Swept> = records[..2]
        .iter()
        .map(|record| deleted(record, true))
        .collect();
    fixture.store.note_sweep(&swept, HOUR_MS).await.unwrap();
    fixture.store.note_sweep(&swept, HOUR_MS).await.unwrap();
    assert_eq!(fixture.due_files().await, []);
    let cleaned = fixture.files(records[0].task_id).await;
    assert!(
        cleaned[0]
            .cleaned_at
            .is_some_and(|at| at >= records[0].expires_at),
        "{cleaned:?}"
    );
    assert_eq!(fixture.files(records[2].task_id).await[0].cleaned_at, None);
}

async fn a_file_that_could_not_be_deleted_is_counted_and_due_again(fixture: Arc<Fixture>) {
    let record = fixture.with_file("stubborn").await;
    fixture.clock.advance_ms(KEEP_MS);
    for failures in 1..=3 {
        assert_eq!(fixture.due_files().await.len(), 1);
        fixture
            .store
            .note_sweep(&[deleted(&record, false)], HOUR_MS)
            .await
            .unwrap();
        assert_eq!(fixture.due_files().await, [], "it waits for its turn");
        assert_eq!(fixture.files(record.task_id).await[0].failures, failures);
        fixture.clock.advance_ms(HOUR_MS);
    }
    fixture
        .store
        .note_sweep(&[deleted(&record, true)], HOUR_MS)
        .await
        .unwrap();
    fixture
        .store
        .note_sweep(&[deleted(&record, false)], HOUR_MS)
        .await
        .unwrap();
    let cleaned = &fixture.files(record.task_id).await[0];
    assert_eq!(
        (cleaned.failures, cleaned.cleaned_at.is_some()),
        (3, true),
        "what is deleted stays so"
    );
}

impl Fixture {
    async fn prune_all(&self, id: TaskId) {
        self.clock.advance_ms(1);
        let keep = Retention {
            ended_ms: 0,
            dead_letter_ms: 0,
        };
        assert_eq!(self.store.prune_tasks(&keep, &[id]).await.unwrap(), 1);
    }
}

async fn files_of_a_pruned_task_are_due_at_once_and_forgotten_when_deleted(fixture: Arc<Fixture>) {
    let (record, other) = (
        fixture.with_file("goes").await,
        fixture.with_file("stays").await,
    );
    fixture.prune_all(record.task_id).await;
    let due = fixture.due_files().await;
    assert_eq!((names_of(&due), &due[0].key), (vec!["goes"], &record.key));
    assert!(matches!(
        fixture.store.get_artifact(record.id).await,
        Err(StoreError::NotFound)
    ));
    fixture
        .store
        .note_sweep(&[deleted(&record, false)], HOUR_MS)
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.due_files().await[0].failures, 1);
    fixture
        .store
        .note_sweep(&[deleted(&record, true)], HOUR_MS)
        .await
        .unwrap();
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.due_files().await, []);
    assert_eq!(
        fixture
            .store
            .get_artifact(other.id)
            .await
            .unwrap()
            .file_name,
        "stays"
    );
}

async fn what_is_known_of_deleted_files_goes_with_their_task(fixture: Arc<Fixture>) {
    let record = fixture.with_file("deleted before").await;
    fixture.clock.advance_ms(KEEP_MS);
    fixture
        .store
        .note_sweep(&[deleted(&record, true)], HOUR_MS)
        .await
        .unwrap();
    fixture.prune_all(record.task_id).await;
    assert_eq!(fixture.due_files().await, []);
}
