//! All tests of the application, on every database, in one program.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure stops the test"
)]

mod batches;
mod fresh;
mod imports;
mod mounts;
mod openai;
mod owners;
mod resuming;
mod upstream;
mod world;

use std::future::Future;

use fresh::{Backend, FreshDatabase};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let on_databases = Backend::ALL
        .into_iter()
        .flat_map(|backend| {
            [
                imports::trials(backend),
                batches::trials(backend),
                owners::trials(backend),
            ]
        })
        .flatten();

    let trials = on_databases
        .chain(openai::trials())
        .chain(resuming::trials())
        .chain(mounts::trials())
        .collect();

    libtest_mimic::run(&arguments, trials).exit();
}

/// One case on its own runtime, given a fresh database.
fn on<F: Future<Output = ()>>(
    backend: Backend,
    name: &str,
    case: impl FnOnce(FreshDatabase) -> F + Send + 'static,
) -> Trial {
    trial(format!("{}::{name}", backend.name()), move || async move {
        case(FreshDatabase::make(backend).await).await
    })
}

/// One case on its own runtime.
fn trial<F: Future<Output = ()>>(
    name: impl Into<String>,
    case: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on(case());
        Ok(())
    })
}
