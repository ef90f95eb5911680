//! A store that takes a request and never answers it.

use std::time::Duration;

use super::{Counted, Far, line::Way};
use crate::Status;

#[tokio::test(start_paused = true)]
async fn a_loop_whose_call_is_never_answered_asks_again() {
    for operation in ["claim_tasks", "heartbeat_node", "finish_tasks"] {
        let far = Far::new();
        let longhaul = far
            .builder()
            .register(Counted::default())
            .start()
            .await
            .unwrap();

        far.line.hold(operation, Way::There);
        let before = far.line.count(operation, Way::There);
        let handle = longhaul.submit::<Counted>(()).await.unwrap();
        far.pass(Duration::from_secs(70)).await;
        assert!(
            far.line.count(operation, Way::There) >= before + 2,
            "{operation} waits for ever"
        );
        far.line.free(operation, Way::There);

        far.pass(Duration::from_secs(70)).await;
        assert_eq!(
            handle.status().await.unwrap(),
            Status::Completed,
            "{operation}"
        );
        longhaul.stop().await;
    }
}
