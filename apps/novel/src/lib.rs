//! Novels, chapters and scenes, and the tasks that write them: a complete application on Longhaul.
//!
//! It uses only the crate `longhaul`, as a user would, and shows each part once:
//!
//! - [`library`]: its own tables in Longhaul's database; a task is submitted in the transaction
//!   that writes its rows,
//! - [`provider`]: the providers that write the texts, and what their errors mean for a task,
//! - [`tasks`]: five task types: one scene, many scenes as children, many in one loop, and a whole
//!   novel,
//! - [`routes`]: its own HTTP API, mounted beside Longhaul's.
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

use tasks::{RESOURCE, SceneWriter};

/// The path prefix of the application.
pub const PREFIX: &str = "/novel";
/// A sample novel.
pub const SAMPLE: &str = include_str!("../sample/the_lamp_at_harrow_point.txt");
/// The title of the sample.
pub const SAMPLE_TITLE: &str = "The Lamp at Harrow Point";

/// Why the application cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The tables could not be opened.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The provider's client could not be made.
    #[error(transparent)]
    Provider(#[from] provider::ProviderError),
}

/// Adds the application to a Longhaul: its tables in Longhaul's database at `url`, its task types
/// and limits, and its routes below [`PREFIX`].
pub async fn install(
    builder: Builder,
    url: &str,
    settings: &Settings,
) -> Result<Builder, InstallError> {
    let writer = SceneWriter {
        library: Library::open(url).await?,
        provider: settings.provider()?,
    };
    Ok(install_with(builder, writer, settings))
}

/// Like [`install`], with open tables and an existing provider.
pub fn install_with(builder: Builder, writer: SceneWriter, settings: &Settings) -> Builder {
    let library = writer.library.clone();
    let model = writer.provider.key().to_owned();
    let provider = model.split('/').next().unwrap_or(&model).to_owned();

    let burst = u32::try_from(settings.concurrency).unwrap_or(u32::MAX);
    let limit = Limit::per_minute(settings.requests_per_minute).burst(burst.max(1));

    tasks::register(builder, &writer)
        .resource(RESOURCE, settings.concurrency)
        .limit(&provider, limit)
        .limit(&model, limit)
        .mount(PREFIX, move |longhaul| {
            routes::router(Arc::new(routes::Application { library, longhaul }))
        })
}
