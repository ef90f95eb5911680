//! Applications beside the API: a router of their own below a prefix, behind the same accept loop, guard and limits.
//!
//! An application must never answer for Longhaul, nor let anyone in whom Longhaul would not: its prefix is a first
//! segment that Longhaul does not use, and the guard stands before all that is below it, also before what is not there.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::Method,
    middleware::{self, Next},
    response::Response,
};
use http_body_util::Limited;
use longhaul_domain::Invalid;

use crate::{
    api::Api, body::BODY_BYTES, guard, identity::Scope, problem::ApiError, route::Policy,
    router::route_table,
};

/// A prefix in bytes, the slash counted.
const PREFIX_BYTES: usize = 64;

/// First segments that Longhaul has, or keeps for itself.
const RESERVED: &[&str] = &[
    "admin",
    "api",
    "assets",
    "dashboard",
    "docs",
    "longhaul",
    "metrics",
    "static",
];

/// A router of an application, with the prefix that it is mounted below.
#[derive(Debug, Clone)]
pub struct Mount {
    prefix: String,
    router: Router,
}

impl Mount {
    /// `prefix` is one segment: `/novel`. Reading (`GET`, `HEAD`) needs the scope `tasks:read`, everything else
    /// `tasks:write`; a handler learns who calls from [`Caller`](crate::Caller).
    pub fn new(prefix: &str, router: Router) -> Result<Self, Invalid> {
        Self::check_prefix(prefix)?;
        Ok(Self {
            prefix: prefix.to_owned(),
            router,
        })
    }

    /// Whether an application may be mounted below this.
    pub fn check_prefix(prefix: &str) -> Result<(), Invalid> {
        let refused = |problem: String| {
            let allowed = "a slash and one segment of a-z, 0-9 and -, that Longhaul does not use, like /novel";
            Invalid::new("prefix", problem, allowed)
        };
        let name = prefix.strip_prefix('/').unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || prefix.len() > PREFIX_BYTES || !name.bytes().all(fits) {
            return Err(refused(format!("is {prefix:?}")));
        }
        let table = route_table();
        let mut taken = table
            .iter()
            .filter_map(|route| route.path.split('/').nth(1))
            .chain(RESERVED.iter().copied());
        if taken.any(|segment| segment == name) {
            return Err(refused(format!("is {prefix:?}, which is Longhaul's own")));
        }
        Ok(())
    }

    /// Refuses two applications below one prefix.
    pub fn check_all<'a>(prefixes: impl IntoIterator<Item = &'a str>) -> Result<(), Invalid> {
        let mut seen = BTreeSet::new();
        match prefixes.into_iter().find(|prefix| !seen.insert(*prefix)) {
            Some(twice) => Err(Invalid::new(
                "prefix",
                format!("{twice:?} is used twice"),
                "one application a prefix",
            )),
            None => Ok(()),
        }
    }

    /// What an application is mounted below.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// The same router with the applications beside it.
pub(crate) fn with_mounts(router: Router, api: &Arc<Api>, mounts: Vec<Mount>) -> Router {
    mounts.into_iter().fold(
        router,
        |router,
         Mount {
             prefix,
             router: application,
         }| {
            let guarded = application
                .fallback(async || ApiError::NoRoute)
                .method_not_allowed_fallback(async || ApiError::NoMethod)
                .layer(DefaultBodyLimit::max(BODY_BYTES))
                .layer(middleware::from_fn_with_state(Arc::clone(api), check));
            router.nest(&prefix, guarded)
        },
    )
}

async fn check(
    State(api): State<Arc<Api>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    let policy = Policy::Needs(if is_read { Scope::Read } else { Scope::Write });
    // An application that reads a body by itself meets the same bound as one that uses our extractors.
    let bounded = request.map(|body| Body::new(Limited::new(body, BODY_BYTES)));
    guard::check(State((api, policy)), bounded, next).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_cannot_take_a_path_of_longhaul() {
        for prefix in [
            "/api", "/healthz", "/readyz", "/metrics", "/docs", "", "/", "novel", "/a/b", "/{id}",
            "/Novel",
        ] {
            assert!(Mount::check_prefix(prefix).is_err(), "{prefix}");
        }
        for route in route_table().iter().filter(|route| route.path != "/") {
            let first = route.path.split('/').nth(1).unwrap();
            assert!(
                Mount::check_prefix(&format!("/{first}")).is_err(),
                "{first}"
            );
        }
        assert!(Mount::check_prefix("/novel").is_ok());
    }

    #[test]
    fn two_applications_have_two_prefixes() {
        assert!(Mount::check_all(["/a", "/b"]).is_ok());
        assert!(Mount::check_all(["/a", "/b", "/a"]).is_err());
    }
}
