//! Each promise of the testing module, with a case that would fail without it.

mod asserting;
mod crashing;
mod providers;
mod running;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;

use crate::{Context, Outcome, RetryPolicy, Stop, Task, TypeSettings};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// What somebody reads when this panics.
async fn panic_of(doomed: impl Future) -> String {
    match AssertUnwindSafe(doomed).catch_unwind().await {
        Ok(_) => panic!("it should have panicked"),
        Err(panic) => match panic.downcast::<String>() {
            Ok(message) => *message,
            Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
        },
    }
}

/// Fails in its first attempts, as many as its parameter says, and then answers with the attempt's
/// number.
struct Flaky;

impl Task for Flaky {
    const TYPE: &'static str = "flaky";
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        ctx.info(format!("attempt {}", ctx.attempt()));
        if ctx.attempt() <= ctx.params {
            return Err(Stop::retryable("not yet"));
        }
        Ok(ctx.attempt())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new()
            .retry(RetryPolicy::backoff(MINUTE, HOUR))
            .max_attempts(5)
    }
}

/// Counts to five and saves each step. What it saw outlives it, as the world outside does.
#[derive(Default, Clone)]
struct Steps {
    seen: Arc<Mutex<Vec<u32>>>,
    is_blocking: bool,
}

impl Task for Steps {
    const TYPE: &'static str = "steps";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let resumed_from: u32 = ctx.checkpoint()?.unwrap_or(0);
        for step in resumed_from + 1..=5 {
            self.seen.lock().unwrap().push(step);
            ctx.save_checkpoint(&step).await?;
        }
        Ok(resumed_from)
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings {
            blocking: self.is_blocking,
            ..TypeSettings::new()
        }
    }
}
