//! Novels, chapters and scenes, and the tasks that write about them: a complete application on Longhaul.
//!
//! It is written as a user would write it, against the crate `longhaul` alone, and shows each part once:
//!
//! - [`library`]: tables of its own, in Longhaul's database; a task is submitted in the transaction of its rows,
//! - [`provider`]: who writes the texts, and what their errors mean for a task,
//! - [`tasks`]: five task types; one scene, many as children, many in one loop, and a whole novel,
//! - [`routes`]: an HTTP API of its own, mounted beside Longhaul's.
//!
//! `docs/novel.md` is the tour.

#![warn(missing_docs)]

pub mod library;
pub mod provider;
pub mod routes;
pub mod settings;
pub mod splitting;
pub mod tasks;

use std::sync::Arc;

use longhaul::{Builder, Limit};

pub use library::{Library, LibraryError};
pub use settings::{Settings, SettingsError};

use tasks::{RESOURCE, Study};

/// What the application is mounted below.
pub const PREFIX: &str = "/novel";
/// The text that comes with it.
pub const SAMPLE: &str = include_str!("../sample/the_lamp_at_harrow_point.txt");
/// Its title.
pub const SAMPLE_TITLE: &str = "The Lamp at Harrow Point";

/// Why the application cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Its tables are not to be had.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The provider's client cannot be made.
    #[error(transparent)]
    Provider(#[from] provider::ProviderError),
}

/// Adds the application to a Longhaul: its tables in the database at `url`, which is Longhaul's own, its task types and
/// limits, and its routes below [`PREFIX`].
pub async fn install(
    builder: Builder,
    url: &str,
    settings: &Settings,
) -> Result<Builder, InstallError> {
    let study = Study {
        library: Library::open(url).await?,
        provider: settings.provider()?,
    };
    Ok(install_with(builder, study, settings))
}

/// The same with tables and a provider that are there already.
pub fn install_with(builder: Builder, study: Study, settings: &Settings) -> Builder {
    let library = study.library.clone();
    let model = study.provider.key().to_owned();
    let provider = model.split('/').next().unwrap_or(&model).to_owned();
    let limit = Limit {
        permits: settings.requests_per_minute,
        per_ms: 60_000,
        burst: u32::try_from(settings.concurrency)
            .unwrap_or(u32::MAX)
            .max(1),
    };
    tasks::register(builder, &study)
        .resource(RESOURCE, settings.concurrency)
        .limit(&provider, limit)
        .limit(&model, limit)
        .mount(PREFIX, move |longhaul| {
            routes::router(Arc::new(routes::Application { library, longhaul }))
        })
}
