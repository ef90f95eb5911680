//! Runs the hooks of task types beside everything else. A hook that waits or panics affects neither
//! its task nor other hooks.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use tokio_util::task::TaskTracker;

/// How long a shutdown waits for hooks that still run.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);
/// Hooks of one batch that wait at the same time.
const CONCURRENT_HOOKS: usize = 100;

/// The hooks of this process that run now.
#[derive(Debug, Clone)]
pub struct Hooks {
    /// Closed from the start, so that waiting for it ends when no hook runs.
    running: TaskTracker,
}

impl Default for Hooks {
    fn default() -> Self {
        let running = TaskTracker::new();
        running.close();
        Self { running }
    }
}

impl Hooks {
    /// Calls a hook. Most do nothing and are done at the first poll; a hook that waits continues
    /// in a task of its own.
    pub fn call(&self, hook: BoxFuture<'static, ()>) {
        let mut hook = AssertUnwindSafe(hook).catch_unwind();
        if (&mut hook).now_or_never().is_none() {
            // The caller continues: a hook that waits must not hold up the commands of others.
            self.running.spawn(hook);
        }
    }

    /// Calls the hooks of many tasks in a task of their own.
    pub fn call_all(&self, hooks: Vec<BoxFuture<'static, ()>>) {
        if !hooks.is_empty() {
            // One task for all: a bulk change must not start thousands.
            self.running.spawn(run_all(hooks));
        }
    }

    /// Waits until no hook runs.
    pub async fn wait(&self) {
        self.running.wait().await;
    }

    /// Waits a few seconds for the hooks that still run, because the process is about to stop.
    pub async fn finish(&self) {
        let done = tokio::time::timeout(SHUTDOWN_WAIT, self.running.wait()).await;
        if done.is_err() {
            tracing::warn!("hooks still run; the shutdown continues without them");
        }
    }
}

/// Runs hooks to their ends. At most [`CONCURRENT_HOOKS`] of them wait at the same time.
async fn run_all(hooks: Vec<BoxFuture<'static, ()>>) {
    // A panic must not end the hooks after it.
    let hooks = hooks
        .into_iter()
        .map(|hook| AssertUnwindSafe(hook).catch_unwind());

    // The iterator is lazy: a hook is first polled when one more may wait.
    let waiting = hooks.filter_map(|mut hook| match (&mut hook).now_or_never() {
        Some(_) => None,
        None => Some(hook),
    });

    stream::iter(waiting)
        .for_each_concurrent(CONCURRENT_HOOKS, |hook| hook.map(drop))
        .await;
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test]
    async fn hooks_that_wait_or_panic_do_not_stop_other_hooks() {
        let begun = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicUsize::new(0));
        let hook = |number: usize| {
            let begun = Arc::clone(&begun);
            let ended = Arc::clone(&ended);
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                match number % 4 {
                    0 => {}
                    1 => panic!("at once"),
                    _ => tokio::task::yield_now().await,
                }

                assert_ne!(number % 4, 3, "after a wait");
                ended.fetch_add(1, Ordering::Relaxed);
            }
            .boxed()
        };

        let count = CONCURRENT_HOOKS * 12;
        run_all((0..count).map(hook).collect()).await;
        assert_eq!(
            (begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)),
            (count, count / 2)
        );
    }

    #[tokio::test]
    async fn no_more_than_the_allowed_number_of_hooks_wait_at_once() {
        let begun = Arc::new(AtomicUsize::new(0));
        let hook = |_| {
            let begun = Arc::clone(&begun);
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
            .boxed()
        };

        let hooks = (0..CONCURRENT_HOOKS * 3).map(hook).collect();
        assert!(run_all(hooks).now_or_never().is_none());
        assert_eq!(begun.load(Ordering::Relaxed), CONCURRENT_HOOKS);
    }
}
