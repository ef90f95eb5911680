//! Tasks that no bell rings for, because another process made them.

use std::{sync::atomic::Ordering, time::Duration};

use longhaul_domain::{Json, NewTask, contract::Store as _};

use super::{Far, room::Quick};
use crate::Task as _;

#[tokio::test(start_paused = true)]
async fn the_next_look_after_a_find_comes_soon() {
    let (far, quick) = (Far::new(), Quick::default());
    let longhaul = far.builder().register(quick.clone()).start().await.unwrap();
    let unheard = || NewTask::new("ann", Quick::TYPE, "free_default", Json::trusted("null"));
    far.pass(Duration::from_secs(10)).await;
    far.store.submit_task(unheard()).await.unwrap();
    longhaul.wake();
    let found = async {
        while quick.0.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), found).await.unwrap();
    far.store.submit_task(unheard()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(quick.0.load(Ordering::SeqCst), 2, "whoever found one task looks for the next");
    longhaul.stop().await;
}
