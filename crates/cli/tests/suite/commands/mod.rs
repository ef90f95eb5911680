//! The commands as people and scripts run them, against a server in this process. They print what
//! the server answers, so one store is enough.

mod changes;
mod inputs;
mod outputs;
pub(crate) mod program;
mod screen;
mod watching;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    let parts = [
        changes::trials(),
        inputs::trials(),
        outputs::trials(),
        screen::trials(),
        watching::trials(),
    ];

    parts.into_iter().flatten().collect()
}
