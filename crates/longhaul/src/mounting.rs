//! Applications mounted beside the HTTP API.

use axum::Router;
use longhaul_domain::Invalid;
use longhaul_server::Mount;

use crate::{Builder, Longhaul};

/// An application to mount. Its router is built once there is a Longhaul for it.
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
    /// Mounts an application's own router below `prefix`, a segment like `/novel`, beside the HTTP
    /// API of [`Longhaul::serve`]. Callers are authenticated as there: reads need the scope
    /// `tasks:read`, everything else `tasks:write`. A handler takes a
    /// [`Caller`](crate::server::Caller) to identify the caller. Paths of Longhaul cannot be taken.
    /// `make` gets a handle on Longhaul for the router's state.
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

/// The routers of the applications, each with a handle on this Longhaul.
pub(crate) fn mounts(
    applications: Vec<Application>,
    longhaul: &Longhaul,
) -> Result<Vec<Mount>, Invalid> {
    let made = applications
        .into_iter()
        .map(|Application { prefix, make }| Mount::new(&prefix, make(longhaul.client())));
    made.collect()
}
