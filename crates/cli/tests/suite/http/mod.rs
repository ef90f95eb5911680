//! The HTTP API over real sockets, with the sample types, in this process.

mod access;
mod artifacts;
mod changes;
pub(crate) mod client;
mod correlation;
mod deploy;
mod edges;
mod hostile;
mod live;
mod metrics;
mod output;
mod pages;
mod platform;
mod races;
pub(crate) mod readiness;
mod reads;
mod refusals;
pub(crate) mod server;
mod socket;
mod standing;
mod submits;
mod tokens;
pub(crate) mod types;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    let parts = [
        access::trials(),
        artifacts::trials(),
        changes::trials(),
        correlation::trials(),
        deploy::trials(),
        edges::trials(),
        hostile::trials(),
        live::trials(),
        metrics::trials(),
        output::trials(),
        pages::trials(),
        platform::trials(),
        races::trials(),
        readiness::trials(),
        reads::trials(),
        refusals::trials(),
        socket::trials(),
        standing::trials(),
        submits::trials(),
        tokens::trials(),
    ];
    parts.into_iter().flatten().collect()
}
