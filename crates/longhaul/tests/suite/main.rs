//! Longhaul as its users have it, on every database, in one program.
//!
//! Names start with the database: `cargo test -p longhaul --test suite -- postgres::cancel` runs a part. The examples
//! bring their own database.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod cancel;
mod ends;
mod examples;
#[expect(dead_code, reason = "shared with the tests of the store, which use more of it")]
#[path = "../../../store/tests/conformance/fresh.rs"]
mod fresh;
mod limits;
mod lives;
mod parents;
mod submits;
mod turns;

use std::future::Future;
use std::time::Duration;

use fresh::{Backend, FreshDatabase};
use libtest_mimic::{Arguments, Trial};
use longhaul::{Builder, Longhaul, RetryPolicy, TypeSettings};

fn main() {
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = Backend::ALL
        .into_iter()
        .flat_map(|backend| {
            [
                submits::trials(backend),
                ends::trials(backend),
                cancel::trials(backend),
                parents::trials(backend),
                limits::trials(backend),
                lives::trials(backend),
                turns::trials(backend),
            ]
        })
        .flatten()
        .chain(examples::trials())
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// One case on its own runtime, given a fresh database.
fn trial<F: Future<Output = ()>>(
    backend: Backend,
    name: &str,
    case: impl FnOnce(FreshDatabase) -> F + Send + 'static,
) -> Trial {
    Trial::test(format!("{}::{name}", backend.name()), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async move { case(FreshDatabase::make(backend).await).await });
        Ok(())
    })
}

async fn open(database: &FreshDatabase) -> Builder {
    Longhaul::open(&database.url).await.unwrap()
}

/// Waits until it is so. Looks are some milliseconds apart: the servers have the other cases to serve, too.
async fn until<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    while !is_so().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Retries at once, so that no test waits.
fn quick() -> TypeSettings {
    TypeSettings::new().retry(RetryPolicy { initial_ms: 1, factor: 1.0, jitter: 0.0, max_ms: 1 })
}
