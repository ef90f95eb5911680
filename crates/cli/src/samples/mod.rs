//! Sample task types, to try every behaviour over the API. `longhaul dev` registers them all.

mod artifact;
mod checkpoint;
mod echo;
mod fail;
mod fanout;
mod progress;
mod sleep;
mod stream;

pub use artifact::Artifact;
pub use checkpoint::Checkpoint;
pub use echo::Echo;
pub use fail::Fail;
pub use fanout::Fanout;
pub use progress::Progress;
pub use sleep::Sleep;
pub use stream::Stream;

use longhaul::Builder;

/// The longest that one step of a sample takes, in milliseconds: an hour.
const STEP_MS: u64 = 3_600_000;
/// The most steps of a sample.
const STEPS: u32 = 100_000;

/// Adds all sample types.
#[must_use]
pub fn register(builder: Builder) -> Builder {
    let builder = builder
        .register(Echo)
        .register(Sleep)
        .register(Fail)
        .register(Progress);

    builder
        .register(Fanout)
        .register(Checkpoint)
        .register(Stream)
        .register(Artifact)
}
