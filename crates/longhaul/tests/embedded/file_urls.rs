//! The key that signs the URLs of files.

use longhaul::{Builder, Longhaul, Timestamp};
use longhaul_domain::ids::ArtifactId;

/// The URL of a file, as a process with these settings signs it. Each process has its own database.
async fn signed(configure: impl FnOnce(Builder) -> Builder) -> String {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("a.db").display());
    let builder = Longhaul::open(&url).await.unwrap();
    let longhaul = configure(builder).without_worker().unwrap();

    let artifact = ArtifactId(uuid::Uuid::nil());
    let expires_at = Timestamp::from_micros(1_000_000);
    let signer = &longhaul.sdk_client().files.signer;
    signer.url(artifact, expires_at).unwrap()
}

#[tokio::test]
async fn a_key_counts_whether_it_is_given_before_the_folder_or_after() {
    let folder = tempfile::tempdir().unwrap();
    let place = &folder.path().join("files");
    let key_file = folder.path().join("files.key");

    let after = signed(|builder| builder.artifacts(place).artifact_key([7; 32])).await;
    let before = signed(|builder| builder.artifact_key([7; 32]).artifacts(place)).await;
    let other = signed(|builder| builder.artifacts(place).artifact_key([8; 32])).await;
    assert_eq!(before, after);
    assert_ne!(other, after, "another key signs otherwise");
    assert!(!key_file.exists(), "no key was needed beside the folder");

    let first = signed(|builder| builder.artifacts(place)).await;
    let second = signed(|builder| builder.artifacts(place)).await;
    assert_eq!(first, second);
    assert!(key_file.exists());
}
