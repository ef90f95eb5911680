//! The output stream of a handler that was asked to stop.

use longhaul::{Job, Status, Stop, TypeSettings, testing::TestLonghaul};
use tokio::sync::mpsc;

#[tokio::test]
async fn a_cancelled_handler_does_not_take_over_the_output_stream() {
    let (resumed, mut answers) = mpsc::unbounded_channel();
    let (started, mut starts) = mpsc::unbounded_channel();
    let run = move |_: (), job: Job| {
        let started = started.clone();
        let resumed = resumed.clone();
        async move {
            started.send(()).unwrap();
            job.cancelled().await;
            resumed.send(job.resume_output(0).await.is_ok()).unwrap();
            Err::<(), Stop>(Stop::cancelled())
        }
    };
    let longhaul = TestLonghaul::new()
        .register_fn("stream", TypeSettings::new(), run)
        .start();
    let handle = longhaul.submit_named::<_, ()>("stream", ()).await.unwrap();

    let cancel = async {
        starts.recv().await.unwrap();
        handle.cancel().await.unwrap();
    };
    tokio::join!(longhaul.run_until_idle(), cancel);
    assert_eq!(longhaul.record(&handle).status, Status::Cancelled);
    assert_eq!(answers.recv().await, Some(false));
}
