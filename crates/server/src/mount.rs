//! Applications mounted beside the API: a router below a prefix, behind the same accept loop, guard
//! and limits.
//!
//! An application can neither shadow a route of Longhaul nor bypass its access check. Its prefix is
//! a first path segment that Longhaul does not use, and the guard runs before every request below
//! it, those to unknown paths included.

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

/// The longest prefix, slash included.
const PREFIX_BYTES: usize = 64;

/// First path segments that Longhaul uses or reserves.
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

/// An application's router and its prefix.
#[derive(Debug, Clone)]
pub struct Mount {
    prefix: String,
    router: Router,
}

impl Mount {
    /// `prefix` is one segment, such as `/novel`. `GET` and `HEAD` need the scope `tasks:read`,
    /// other methods `tasks:write`. Handlers extract the [`Caller`](crate::Caller).
    pub fn new(prefix: &str, router: Router) -> Result<Self, Invalid> {
        Self::check_prefix(prefix)?;
        Ok(Self {
            prefix: prefix.to_owned(),
            router,
        })
    }

    /// Checks that an application may use this prefix.
    pub fn check_prefix(prefix: &str) -> Result<(), Invalid> {
        let refused = |problem: String| {
            let allowed = "a slash and one segment of a-z, 0-9 and -, that Longhaul does not use, \
                           like /novel";
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

    /// Refuses two applications with one prefix.
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

    /// The prefix of the application.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// Adds the applications to the router of the API.
pub(crate) fn with_mounts(router: Router, api: &Arc<Api>, mounts: Vec<Mount>) -> Router {
    let mut all = router;
    for Mount { prefix, router } in mounts {
        let guard = middleware::from_fn_with_state(Arc::clone(api), check);
        let guarded = router
            .fallback(async || ApiError::NoRoute)
            .method_not_allowed_fallback(async || ApiError::NoMethod)
            .layer(DefaultBodyLimit::max(BODY_BYTES))
            .layer(guard);
        all = all.nest(&prefix, guarded);
    }
    all
}

async fn check(
    State(api): State<Arc<Api>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    let policy = Policy::Needs(if is_read { Scope::Read } else { Scope::Write });

    // The bound also holds for an application that reads the body itself.
    let bounded = request.map(|body| Body::new(Limited::new(body, BODY_BYTES)));
    guard::check(State((api, policy)), bounded, next).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_cannot_use_a_path_of_longhaul() {
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
    fn two_applications_cannot_share_a_prefix() {
        assert!(Mount::check_all(["/a", "/b"]).is_ok());
        assert!(Mount::check_all(["/a", "/b", "/a"]).is_err());
    }
}
