//! The program itself, as a process.

mod contract;
mod doctor;
mod documents;
mod first_steps;
mod migrate;
mod nodes;
pub(crate) mod process;
mod refusals;
pub(crate) mod running;
mod serve;
mod starts;
mod token;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    let modules = [
        contract::trials(),
        doctor::trials(),
        documents::trials(),
        first_steps::trials(),
        migrate::trials(),
        nodes::trials(),
        refusals::trials(),
        serve::trials(),
        starts::trials(),
        token::trials(),
    ];

    modules.into_iter().flatten().collect()
}
