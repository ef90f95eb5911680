//! Cancelling: the handler is told and stops by itself; one that does not listen is dropped at its next await.
//!
//! Run it with `cargo run -p longhaul --example cancel`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::time::Duration;

use longhaul::{Context, Longhaul, NoResult, Outcome, Progress, Status, StopReason, Task};
use tokio::sync::Notify;

/// Renders frame after frame, for an hour if nobody stops it.
struct Render {
    first_frame: Arc<Notify>,
    tidied_up: Arc<Notify>,
}

impl Task for Render {
    const TYPE: &'static str = "render";
    type Params = usize;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for frame in 0..ctx.params {
            // Leaves with an error as soon as the task is cancelled; `?` is all it takes where there is nothing to tidy up.
            if let Err(stop) = ctx.sleep(Duration::from_millis(20)).await {
                // At a shutdown the frames are still wanted: the task goes on with another attempt.
                if ctx.stop_reason() == Some(StopReason::Cancelled) {
                    println!("cancelled at frame {frame}, tidying up");
                    self.tidied_up.notify_one();
                }
                return Err(stop);
            }
            ctx.progress(Progress::of(frame + 1, ctx.params)).await?;
            self.first_frame.notify_one();
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
    let (first_frame, tidied_up) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let render = Render {
        first_frame: Arc::clone(&first_frame),
        tidied_up: Arc::clone(&tidied_up),
    };
    let longhaul = Longhaul::open(&url).await?.register(render).start().await?;

    let handle = longhaul.submit::<Render>(180_000).await?;
    first_frame.notified().await;
    let progress = handle
        .progress()
        .await?
        .map_or(0.0, |progress| progress.percent);
    println!("it runs, and is at {progress:.1} %");

    assert_eq!(handle.cancel().await?, Status::Cancelled);
    tidied_up.notified().await;
    let ended = handle.result().await;
    assert!(
        matches!(
            ended,
            Err(NoResult::Ended {
                status: Status::Cancelled,
                ..
            })
        ),
        "{ended:?}"
    );
    println!("cancelled, and no result is kept");

    longhaul.stop().await;
    Ok(())
}
