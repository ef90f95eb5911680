//! Mounts applications: their prefixes are checked at once, their routers are built once there is a
//! Longhaul for them.

use axum::Router;
use longhaul_domain::Invalid;
use longhaul_server::Mount;

use crate::{Builder, Longhaul};

/// The applications of a program.
#[derive(Debug, Default)]
pub(crate) struct Applications(Vec<Application>);

struct Application {
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
        self.applications.0.push(application);
        let prefixes = self
            .applications
            .0
            .iter()
            .map(|application| application.prefix.as_str());

        let checked = Mount::check_prefix(prefix).and_then(|()| Mount::check_all(prefixes));
        self.noting(checked)
    }
}

impl Longhaul {
    /// Builds the routers, each with a handle on this Longhaul. If there is a node, a task that an
    /// application submits may start on it at once.
    pub(crate) fn mount_all(mut self, applications: Applications) -> Result<Self, Invalid> {
        let mut mounts = Vec::new();
        for Application { prefix, make } in applications.0 {
            mounts.push(Mount::new(&prefix, make(self.client()))?);
        }

        self.mounts = mounts;
        Ok(self)
    }
}
