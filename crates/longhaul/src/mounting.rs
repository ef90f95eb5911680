//! Applications beside the HTTP API: what is asked of the builder, and what the server is given.

use axum::Router;
use longhaul_domain::Invalid;
use longhaul_server::Mount;

use crate::{Builder, Longhaul};

/// An application that is to be mounted. Its router is made when there is a Longhaul for it to hold.
pub(crate) struct Application {
    prefix: String,
    make: Box<dyn FnOnce(Longhaul) -> Router + Send + Sync>,
}

impl std::fmt::Debug for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Application")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Mounts an application's own router below `prefix`, a segment like `/novel`, beside the HTTP API of
    /// [`Longhaul::serve`]. Callers are known as they are there: reading needs the scope `tasks:read`, everything else
    /// `tasks:write`, and a handler takes a [`Caller`](crate::server::Caller) to learn who calls. Paths of Longhaul
    /// cannot be taken. `make` is given a hand on Longhaul, to keep in the router's state.
    #[must_use]
    pub fn mount(
        mut self,
        prefix: &str,
        make: impl FnOnce(Longhaul) -> Router + Send + Sync + 'static,
    ) -> Self {
        let application = Application {
            prefix: prefix.to_owned(),
            make: Box::new(make),
        };
        self.applications.push(application);
        let prefixes = self
            .applications
            .iter()
            .map(|application| application.prefix.as_str());
        let checked = Mount::check_prefix(prefix).and_then(|()| Mount::check_all(prefixes));
        self.noting(checked)
    }
}

/// The routers of the applications, each with a hand on this Longhaul.
pub(crate) fn mounts(
    applications: Vec<Application>,
    longhaul: &Longhaul,
) -> Result<Vec<Mount>, Invalid> {
    let made = applications
        .into_iter()
        .map(|Application { prefix, make }| Mount::new(&prefix, make(longhaul.client())));
    made.collect()
}
