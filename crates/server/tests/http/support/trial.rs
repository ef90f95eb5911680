//! Turns case functions into trials, on one store or on each.
//!
//! Names contain the module of a case: `cargo test -p longhaul-server --test http --
//! postgres::submits` runs one file on one store.

use std::future::Future;

use libtest_mimic::Trial;

use super::database::Backend;

/// Cases with a store: one trial per case and store.
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => {
        $crate::database::Backend::ALL
            .into_iter()
            .flat_map(|store| {
                [$($crate::trial::on(
                    store,
                    concat!(module_path!(), "::", stringify!($case)),
                    move || $case(store),
                )),*]
            })
            .collect::<Vec<_>>()
    };
}

/// Cases that run once: they need no store, or choose their own.
macro_rules! once {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::trial::alone(concat!(module_path!(), "::", stringify!($case)), $case)),*]
    };
}

/// Cases that are not async.
macro_rules! plain {
    ($($case:ident),* $(,)?) => {
        vec![$($crate::trial::alone(
            concat!(module_path!(), "::", stringify!($case)),
            async || $case(),
        )),*]
    };
}

pub(crate) use {on_every_store, once, plain};

pub(crate) fn on<F: Future<Output = ()>>(
    store: Backend,
    path: &str,
    case: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    trial(
        format!("{}::{}", store.name(), within_the_program(path)),
        case,
    )
}

pub(crate) fn alone<F: Future<Output = ()>>(
    path: &str,
    case: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    trial(within_the_program(path).to_owned(), case)
}

/// The path of a case without the name of this program.
fn within_the_program(path: &str) -> &str {
    path.split_once("::").map_or(path, |(_, rest)| rest)
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
