//! Cancelling: the handler notices the cancel and stops. A handler that ignores it is dropped at
//! its next await.
//!
//! Run it with `cargo run -p longhaul --example cancel`.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;
use std::time::Duration;

use longhaul::{Context, Longhaul, NoResult, Outcome, Progress, Status, StopReason, Task};
use tokio::sync::Notify;

/// Renders frames for an hour, unless it is stopped.
struct Render {
    first_frame: Arc<Notify>,
    cleaned_up: Arc<Notify>,
}

impl Task for Render {
    const TYPE: &'static str = "render";
    type Params = usize;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        for frame in 0..ctx.params {
            // The sleep fails as soon as the task is cancelled. Without anything to clean up, `?`
            // is enough.
            if let Err(stop) = ctx.sleep(Duration::from_millis(20)).await {
                // After a shutdown another attempt renders the frames, so clean up only on a
                // cancel.
                if ctx.stop_reason() == Some(StopReason::Cancelled) {
                    println!("cancelled at frame {frame}, cleaning up");
                    self.cleaned_up.notify_one();
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
    let first_frame = Arc::new(Notify::new());
    let cleaned_up = Arc::new(Notify::new());
    let render = Render {
        first_frame: Arc::clone(&first_frame),
        cleaned_up: Arc::clone(&cleaned_up),
    };
    let longhaul = Longhaul::open(&url).await?.register(render).start().await?;

    let handle = longhaul.submit::<Render>(180_000).await?;
    first_frame.notified().await;
    let progress = handle.progress().await?;
    let progress = progress.map_or(0.0, |progress| progress.percent);
    println!("running, {progress:.1} % done");

    assert_eq!(handle.cancel().await?, Status::Cancelled);
    cleaned_up.notified().await;
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

    println!("cancelled, without a result");

    longhaul.stop().await;
    Ok(())
}
