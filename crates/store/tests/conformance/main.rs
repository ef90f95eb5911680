//! Every test of the stores, on every database, in one program.
//!
//! The contract's suite comes from the testkit; what only SQL stores have (migrations, views,
//! submit in the caller's transaction) stands beside it here. Each case has a fresh database. Names
//! start with the database, so `cargo test -p longhaul-store --features mysql,postgres --test
//! conformance -- postgres::races` runs a part.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod backlog;
mod embedded;
mod fresh;
mod generated;
mod network;
mod notifier;
mod plain_sql;
mod schema;
mod store_file;
mod transactions;

use std::future::Future;

use fresh::Backend;
use libtest_mimic::Trial;
use longhaul_testkit::{store_suite, suite};

fn main() {
    let arguments = suite::arguments();
    let mut trials = embedded::trials();
    trials.extend(store_file::trials());
    for backend in Backend::ALL {
        trials.extend(store_suite::trials(backend.name(), backend.factory()));
        trials.extend(schema::trials(backend));
        trials.extend(transactions::trials(backend));
        trials.extend(plain_sql::trials(backend));
    }

    trials.extend(backlog::trials());
    trials.extend(notifier::trials());
    trials.extend(generated::trials());
    trials.extend(network::trials());
    libtest_mimic::run(&arguments, trials).exit();
}

/// One case on its own runtime.
fn trial<F: Future<Output = ()>>(name: String, case: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on(case());
        Ok(())
    })
}
