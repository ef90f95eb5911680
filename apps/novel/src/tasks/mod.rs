//! The task types. Parameters carry ids; texts are in the application's tables.

mod batch;
mod craft;
mod import;
mod looping;
mod parameters;
mod single;
mod study;

use std::error::Error;
use std::time::Duration;

use longhaul::{Builder, Class, TypeSettings, classify_by_type};

pub use batch::{BatchGenerateScene, BatchGenerateSummary};
pub use import::ImportNovel;
pub use parameters::{
    BatchDone, BatchOrder, BatchProgress, ImportDone, ImportOrder, SceneOrder, Style, Written,
};
pub use single::{GenerateScene, GenerateSummary};
pub use study::Study;

use crate::{library::LibraryError, provider::ProviderError};

/// What tasks that call the provider share; the worker's limit is in [`Settings`](crate::Settings).
pub(crate) const RESOURCE: &str = "novel-provider";
/// One answer of a provider, at 40 words a second.
const ONE_ANSWER: Duration = Duration::from_secs(20);
/// An answer that is not there after so long does not come.
const ONE_ANSWER_MOST: Duration = Duration::from_secs(300);
/// A whole novel: it goes where long tasks go.
const WHOLE_NOVEL: Duration = Duration::from_secs(600);

/// Adds the five types.
pub(crate) fn register(builder: Builder, study: &Study) -> Builder {
    builder
        .register(GenerateSummary(study.clone()))
        .register(GenerateScene(study.clone()))
        .register(BatchGenerateSummary(study.clone()))
        .register(BatchGenerateScene(study.clone()))
        .register(ImportNovel(study.clone()))
}

fn settings_of_one() -> TypeSettings {
    TypeSettings::new()
        .expected_duration(ONE_ANSWER)
        .timeout(ONE_ANSWER_MOST)
        .resource(RESOURCE)
}

fn settings_of_many() -> TypeSettings {
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
        // Another writer was in the way, or the server is away. What is really wrong stays so and is a dead letter.
        Some(LibraryError::Database(_) | LibraryError::Longhaul(_)) => Class::Retryable,
        Some(LibraryError::Migration(_) | LibraryError::UnknownDatabase) => Class::Fatal,
        None => classify_by_type(error),
    }
}
