//! What the URLs of files are signed with.

use longhaul_domain::{Timestamp, ids::ArtifactId};

use super::Far;
use crate::Builder;

fn signed(builder: Builder) -> String {
    let longhaul = builder.without_worker().unwrap();
    longhaul
        .sdk_client()
        .files
        .signer
        .url(
            ArtifactId(uuid::Uuid::nil()),
            Timestamp::from_micros(1_000_000),
        )
        .unwrap()
}

#[test]
fn a_key_counts_whether_it_is_given_before_the_folder_or_after() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("files");
    let builder = || Far::new().builder();
    let after = signed(builder().artifacts(&place).artifact_key([7; 32]));
    assert_eq!(
        signed(builder().artifact_key([7; 32]).artifacts(&place)),
        after
    );
    assert_ne!(
        signed(builder().artifacts(&place).artifact_key([8; 32])),
        after,
        "another key signs otherwise"
    );

    assert!(
        !folder.path().join("files.key").exists(),
        "no key was needed beside the folder"
    );
    assert_eq!(
        signed(builder().artifacts(&place)),
        signed(builder().artifacts(&place))
    );
    assert!(folder.path().join("files.key").exists());
}
