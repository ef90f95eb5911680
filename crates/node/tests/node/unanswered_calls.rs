//! Calls that the store never answers.

use std::time::Duration;

use longhaul::Status;

use crate::{
    remote_store::{Counted, RemoteStore},
    store_link::Leg,
};

#[tokio::test(start_paused = true)]
async fn a_loop_whose_call_is_never_answered_asks_again() {
    for operation in ["claim_tasks", "heartbeat_node", "finish_tasks"] {
        let remote = RemoteStore::new();
        let longhaul = remote
            .builder()
            .register(Counted::default())
            .start()
            .await
            .unwrap();

        remote.link.hold(operation, Leg::Request);
        let before = remote.link.count(operation, Leg::Request);
        let handle = longhaul.submit::<Counted>(()).await.unwrap();
        remote.pass(Duration::from_secs(70)).await;
        assert!(
            remote.link.count(operation, Leg::Request) >= before + 2,
            "{operation} is not called again"
        );
        remote.link.free(operation, Leg::Request);

        remote.pass(Duration::from_secs(70)).await;
        assert_eq!(
            handle.status().await.unwrap(),
            Status::Completed,
            "{operation}"
        );
        longhaul.stop().await;
    }
}
