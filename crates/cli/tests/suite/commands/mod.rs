//! The commands, run as users and scripts run them, against a server in this process. They print
//! the answers of the server, so one store is enough.

mod changes;
mod inputs;
mod outputs;
pub(crate) mod program;
mod screen;
mod watching;

use libtest_mimic::Trial;

pub(crate) fn trials() -> Vec<Trial> {
    let modules = [
        changes::trials(),
        inputs::trials(),
        outputs::trials(),
        screen::trials(),
        watching::trials(),
    ];

    modules.into_iter().flatten().collect()
}
