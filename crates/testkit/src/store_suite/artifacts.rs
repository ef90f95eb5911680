//! Files of tasks: fenced like every write of an attempt, visible once the attempt's result is
//! accepted, swept when due.

use std::sync::Arc;

use longhaul_domain::{
    Lease, NewTask, Status, StoreError, TaskId,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    bounds,
    contract::store::{Access, AttemptEnd, RetryScope, Verdict},
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
        a_file_is_visible_once_the_result_of_its_attempt_is_accepted,
        a_file_of_a_superseded_attempt_is_not_visible,
        a_file_of_a_failed_or_cancelled_attempt_is_not_visible,
        the_files_of_both_phases_of_a_parent_are_visible,
        a_stale_lease_cannot_note_a_file,
        a_repeated_note_is_the_same_file,
        files_of_another_owner_are_not_found,
        invalid_files_are_refused_by_field,
        the_number_of_files_of_a_task_is_bounded,
        a_sweep_lists_due_files_within_its_limit,
        a_file_that_cannot_be_deleted_is_due_again_later,
        files_of_a_pruned_task_are_due_at_once,
        records_of_deleted_files_are_removed_with_their_task,
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
            .expect("the note is valid");
        assert_eq!(verdict, Verdict::Applied(Status::Running));
        record.expect("the file is accepted")
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
            .expect("the request is valid")
    }

    /// A completed task with one file.
    async fn with_file(&self, name: &str) -> ArtifactRecord {
        let lease = self.start(new_task()).await;
        let record = self.keep(&note(lease, name)).await;
        self.finish(lease, completed()).await;
        record
    }
}

async fn a_file_is_visible_once_the_result_of_its_attempt_is_accepted(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let one = note(lease, "一.txt");
    let two = note(lease, "b \"quoted\".txt");
    let noted = fixture.keep(&one).await;
    assert_eq!(
        (noted.id, &noted.key, noted.bytes, noted.attempt),
        (one.id, &one.key, 7, 1)
    );
    assert_eq!(noted.expires_at, noted.created_at.plus_ms(KEEP_MS));

    assert_eq!((noted.cleaned_at, noted.failures), (None, 0));
    fixture.clock.advance_ms(1_000);
    fixture.keep(&two).await;
    assert_eq!(
        fixture.files(lease.task_id).await,
        [],
        "the attempt is still running"
    );
    assert!(matches!(
        fixture.store.get_artifact(one.id).await,
        Err(StoreError::NotFound)
    ));

    fixture.finish(lease, completed()).await;
    let files = fixture.files(lease.task_id).await;
    assert_eq!(
        (names_of(&files), &files[0]),
        (vec!["一.txt", "b \"quoted\".txt"], &noted)
    );
    assert_eq!(fixture.store.get_artifact(one.id).await.unwrap(), noted);
}

async fn a_file_of_a_superseded_attempt_is_not_visible(fixture: Arc<Fixture>) {
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

    // It is swept like any other file.
    fixture.clock.advance_ms(KEEP_MS);
    assert_eq!(fixture.due_files().await.len(), 2);
}

async fn a_file_of_a_failed_or_cancelled_attempt_is_not_visible(fixture: Arc<Fixture>) {
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
    // A later success does not make it visible either.
    fixture
        .store
        .retry_task(&Access::All, failed.task_id, RetryScope::Task)
        .await
        .unwrap();
    fixture.run(failed.task_id, completed()).await;
    assert_eq!(fixture.files(failed.task_id).await, []);
}

async fn the_files_of_both_phases_of_a_parent_are_visible(fixture: Arc<Fixture>) {
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
            AttemptEnd::Completed {
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

async fn a_stale_lease_cannot_note_a_file(fixture: Arc<Fixture>) {
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

    let unknown = Lease {
        task_id: TaskId(random_uuid()),
        ..lease
    };

    assert_eq!(
        fixture
            .store
            .note_artifact(&note(unknown, "x"))
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

async fn a_repeated_note_is_the_same_file(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let one = note(lease, "once");
    let first = fixture.keep(&one).await;
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.keep(&one).await, first);
    fixture.finish(lease, completed()).await;
    assert_eq!(fixture.files(lease.task_id).await, [first]);
}

async fn files_of_another_owner_are_not_found(fixture: Arc<Fixture>) {
    let record = fixture.with_file("private").await;
    let list = async |access| fixture.store.list_artifacts(&access, record.task_id).await;
    assert_eq!(
        list(Access::Owner(OWNER.to_owned())).await.unwrap().len(),
        1
    );
    assert!(matches!(
        list(Access::Owner("another-owner".to_owned())).await,
        Err(StoreError::NotFound)
    ));

    let missing = fixture
        .store
        .list_artifacts(&Access::All, TaskId(random_uuid()))
        .await;
    assert!(matches!(missing, Err(StoreError::NotFound)));
}

async fn invalid_files_are_refused_by_field(fixture: Arc<Fixture>) {
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

async fn the_number_of_files_of_a_task_is_bounded(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    for number in 0..bounds::ARTIFACTS {
        fixture.keep(&note(lease, &number.to_string())).await;
    }

    assert_eq!(
        refused_field(fixture.store.note_artifact(&note(lease, "one more")).await),
        "artifacts"
    );
}

async fn a_sweep_lists_due_files_within_its_limit(fixture: Arc<Fixture>) {
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
        "the longest overdue first"
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

async fn a_file_that_cannot_be_deleted_is_due_again_later(fixture: Arc<Fixture>) {
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
        "a deleted file stays deleted"
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

async fn files_of_a_pruned_task_are_due_at_once(fixture: Arc<Fixture>) {
    let record = fixture.with_file("goes").await;
    let other = fixture.with_file("stays").await;
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

async fn records_of_deleted_files_are_removed_with_their_task(fixture: Arc<Fixture>) {
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
