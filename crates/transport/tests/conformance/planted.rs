//! The artifact folder with links, partial files and damaged files of other programs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::artifact_store::{Artifact, ArtifactError, ArtifactStore, NewArtifact},
    ids::ArtifactId,
};
use longhaul_transport::local::FolderArtifactStore;

use crate::fresh::{FreshFolder, random_id};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "folder::a_link_in_place_of_a_file_is_not_followed",
            a_link_in_place_of_a_file_is_not_followed,
        ),
        trial(
            "folder::a_link_in_place_of_a_folder_is_not_followed",
            a_link_in_place_of_a_folder_is_not_followed,
        ),
        trial(
            "folder::removing_the_files_of_a_task_does_not_follow_links",
            removing_the_files_of_a_task_does_not_follow_links,
        ),
        trial(
            "folder::a_partial_file_is_never_visible",
            a_partial_file_is_never_visible,
        ),
        trial(
            "folder::a_truncated_or_changed_file_is_not_returned",
            a_truncated_or_changed_file_is_not_returned,
        ),
        trial("folder::files_outlive_the_store", files_outlive_the_store),
        trial(
            "folder::files_are_private_to_the_owner_and_removed_without_a_trace",
            files_are_private_to_the_owner_and_removed_without_a_trace,
        ),
        trial(
            "folder::a_folder_that_cannot_be_created_is_an_error",
            a_folder_that_cannot_be_created_is_an_error,
        ),
    ]
}

/// A store in a folder, and a folder beside it that it must not touch.
struct Setup {
    folder: FreshFolder,
    store: FolderArtifactStore,
    task: TaskId,
}

impl Setup {
    fn new() -> Self {
        let folder = FreshFolder::make();
        let store = FolderArtifactStore::open(folder.path().join("artifacts")).unwrap();
        fs::create_dir(folder.path().join("elsewhere")).unwrap();
        Self {
            folder,
            store,
            task: TaskId(random_id()),
        }
    }

    async fn put(&self, text: &str) -> Artifact {
        let bytes = text.as_bytes();
        let id = ArtifactId(random_id());
        let task_id = self.task;

        let new = NewArtifact {
            id,
            task_id,
            attempt: 1,
            file_name: "a.txt",
            content_type: "text/plain",
            bytes,
        };

        self.store.put(new).await.unwrap()
    }

    fn path_of(&self, key: &str) -> PathBuf {
        self.folder.path().join("artifacts").join(key)
    }

    fn elsewhere(&self) -> PathBuf {
        self.folder.path().join("elsewhere")
    }
}

async fn a_link_in_place_of_a_file_is_not_followed() {
    let setup = Setup::new();
    let real = setup.put("secret").await;

    // Even a valid artifact is not read through a link.
    let target = setup.elsewhere().join("target");
    fs::rename(setup.path_of(&real.key), &target).unwrap();

    for points_to in [target.clone(), setup.elsewhere(), setup.path_of("nowhere")] {
        symlink(&points_to, setup.path_of(&real.key)).unwrap();
        assert_eq!(
            setup.store.get(&real.key).await,
            Err(ArtifactError::NotFound)
        );
        setup.store.remove(&real.key).await.unwrap();
        assert!(
            fs::symlink_metadata(setup.path_of(&real.key)).is_err(),
            "the link itself is removed"
        );

        fs::create_dir_all(setup.path_of(&real.key).parent().unwrap()).unwrap();
    }

    assert!(target.is_file());
}

async fn a_link_in_place_of_a_folder_is_not_followed() {
    for depth in [1, 2] {
        let setup = Setup::new();
        let real = setup.put("secret").await;
        let folder = setup
            .path_of(&real.key)
            .ancestors()
            .nth(depth)
            .unwrap()
            .to_owned();

        let target = setup.elsewhere().join("target");
        fs::rename(&folder, &target).unwrap();
        symlink(&target, &folder).unwrap();
        let files = || fs::read_dir(&target).unwrap().count();
        assert_eq!(
            setup.store.get(&real.key).await,
            Err(ArtifactError::NotFound)
        );
        setup.store.remove(&real.key).await.unwrap();

        let new = NewArtifact {
            id: ArtifactId(random_id()),
            task_id: setup.task,
            attempt: 1,
            file_name: "a",
            content_type: "text/plain",
            bytes: b"must not be written elsewhere",
        };
        assert!(matches!(
            setup.store.put(new).await,
            Err(ArtifactError::Unavailable(_))
        ));
        assert_eq!(
            files(),
            1,
            "nothing was removed or written through the link"
        );
    }
}

async fn removing_the_files_of_a_task_does_not_follow_links() {
    let setup = Setup::new();
    let real = setup.put("x").await;
    let precious = setup.elsewhere().join("precious");
    fs::write(&precious, "precious").unwrap();
    let of_attempt = setup.path_of(&real.key).parent().unwrap().to_owned();
    let of_task = of_attempt.parent().unwrap().to_owned();
    for folder in [&of_attempt, &of_task] {
        symlink(&precious, folder.join("link-to-file")).unwrap();
        symlink(setup.elsewhere(), folder.join("link-to-folder")).unwrap();
    }

    setup.store.remove_all(setup.task).await.unwrap();
    assert!(!of_task.exists());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");

    symlink(setup.elsewhere(), &of_task).unwrap();
    setup.store.remove_all(setup.task).await.unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

async fn a_partial_file_is_never_visible() {
    let setup = Setup::new();
    let real = setup.put("all of it").await;
    let whole = fs::read(setup.path_of(&real.key)).unwrap();

    // After a crash, a file has the temporary name and may be truncated anywhere.
    let crashed = format!("{}/1/{}", setup.task, random_id());
    let half = setup.path_of(&format!("{crashed}.part"));

    for length in 0..whole.len() {
        fs::write(&half, &whole[..length]).unwrap();
        assert_eq!(
            setup.store.get(&crashed).await,
            Err(ArtifactError::NotFound)
        );

        let named = format!("{crashed}.part");
        assert!(matches!(
            setup.store.get(&named).await,
            Err(ArtifactError::Invalid(_))
        ));
    }

    setup.store.remove(&crashed).await.unwrap();
    assert!(!half.exists(), "it is removed with its key");
    fs::write(&half, &whole).unwrap();
    setup.store.remove_all(setup.task).await.unwrap();
    assert!(!half.exists(), "it is removed with the files of the task");
}

async fn a_truncated_or_changed_file_is_not_returned() {
    let setup = Setup::new();
    let real = setup.put("all of it").await;
    let path = setup.path_of(&real.key);
    let whole = fs::read(&path).unwrap();
    let mut longer = whole.clone();

    longer.push(b'!');
    let cut = (0..whole.len()).map(|length| whole[..length].to_vec());
    for bytes in cut.chain([longer, b"something else entirely".to_vec(), vec![0xff; 100]]) {
        fs::write(&path, &bytes).unwrap();
        let found = setup.store.get(&real.key).await;
        assert!(
            matches!(found, Err(ArtifactError::Unavailable(_))),
            "{} bytes: {found:?}",
            bytes.len()
        );
    }

    // A file of another key is refused.
    let other = setup.put("other").await;
    fs::copy(setup.path_of(&other.key), &path).unwrap();
    assert!(matches!(
        setup.store.get(&real.key).await,
        Err(ArtifactError::Unavailable(_))
    ));
    fs::write(&path, &whole).unwrap();
    assert_eq!(setup.store.get(&real.key).await.unwrap().1, b"all of it");
}

async fn files_outlive_the_store() {
    let setup = Setup::new();
    let real = setup.put("stored").await;
    let again = FolderArtifactStore::open(setup.folder.path().join("artifacts")).unwrap();
    assert_eq!(
        again.get(&real.key).await.unwrap(),
        (real, b"stored".to_vec())
    );
}

async fn files_are_private_to_the_owner_and_removed_without_a_trace() {
    let setup = Setup::new();
    let real = setup.put("private").await;
    let path = setup.path_of(&real.key);
    let mode_of = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o077;
    assert!(path.ancestors().take(3).all(|path| mode_of(path) == 0));
    assert_eq!(
        fs::read_dir(path.parent().unwrap()).unwrap().count(),
        1,
        "no other name is left"
    );

    setup.store.remove(&real.key).await.unwrap();
    assert_eq!(
        fs::read_dir(setup.folder.path().join("artifacts"))
            .unwrap()
            .count(),
        0,
        "no empty folder is left"
    );
}

async fn a_folder_that_cannot_be_created_is_an_error() {
    let folder = FreshFolder::make();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("below")] {
        assert!(matches!(
            FolderArtifactStore::open(path),
            Err(ArtifactError::Unavailable(_))
        ));
    }
}
