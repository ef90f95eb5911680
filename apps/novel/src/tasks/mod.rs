//! The task types. Parameters carry ids; the texts are in the application's tables.

mod batch;
mod batch_loop;
mod import;
mod parameters;
mod scene;
mod scene_field;
mod scene_writer;

use std::error::Error;
use std::time::Duration;

use longhaul::{Builder, Class, TypeSettings, classify_by_type};

pub use batch::{BatchGenerateScene, BatchGenerateSummary};
pub use import::ImportNovel;
pub use parameters::{
    BatchParams, BatchProgress, BatchResult, ImportParams, ImportResult, SceneParams, SceneResult,
    Style,
};
pub use scene::{GenerateScene, GenerateSummary};
pub use scene_writer::SceneWriter;

use crate::{library::LibraryError, provider::ProviderError};

/// The resource that tasks use while they call the provider. [`Settings`](crate::Settings) has its
/// limit per worker.
pub(crate) const RESOURCE: &str = "novel-provider";
/// How long one answer takes, at 40 words a second.
const ONE_ANSWER: Duration = Duration::from_secs(20);
/// The longest that one answer may take.
const ONE_ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a whole novel takes. Its tasks go to the queue for long tasks.
const WHOLE_NOVEL: Duration = Duration::from_secs(600);

/// Registers the five task types.
pub(crate) fn register(builder: Builder, writer: &SceneWriter) -> Builder {
    builder
        .register(GenerateSummary(writer.clone()))
        .register(GenerateScene(writer.clone()))
        .register(BatchGenerateSummary(writer.clone()))
        .register(BatchGenerateScene(writer.clone()))
        .register(ImportNovel(writer.clone()))
}

fn scene_settings() -> TypeSettings {
    TypeSettings::new()
        .expected_duration(ONE_ANSWER)
        .timeout(ONE_ANSWER_TIMEOUT)
        .resource(RESOURCE)
}

fn batch_settings() -> TypeSettings {
    TypeSettings::new()
        .expected_duration(WHOLE_NOVEL)
        .resource(RESOURCE)
}

/// What the errors of this application mean for a task.
fn classify(error: &(dyn Error + 'static)) -> Class {
    let mut causes = std::iter::successors(Some(error), |cause| (*cause).source());
    if let Some(known) = causes.find_map(|cause| cause.downcast_ref::<ProviderError>()) {
        return known.class();
    }

    match error.downcast_ref::<LibraryError>() {
        // The database is unavailable, or another writer held a lock. A permanent error uses up
        // its retries and becomes a dead letter.
        Some(LibraryError::Database(_) | LibraryError::Longhaul(_)) => Class::Retryable,
        Some(LibraryError::Migration(_) | LibraryError::UnknownDatabase) => Class::Fatal,
        None => classify_by_type(error),
    }
}
