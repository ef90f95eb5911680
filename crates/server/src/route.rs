//! One row of the route table.

use std::sync::Arc;

use axum::{
    handler::Handler,
    routing::{MethodFilter, MethodRouter, on},
};

use crate::{api::Api, identity::Scope, openapi::Doc};

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Every caller. Such a route shows nothing of any task.
    Public,
    /// Callers with the scope. They still read and change only their own tasks.
    Needs(Scope),
}

/// The HTTP methods of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Patch,
    Delete,
}

impl Verb {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// Whether the path is a live stream. Browsers cannot set headers there.
pub(crate) fn is_live(path: &str) -> bool {
    ["/events", "/stream", "/ws"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// Whether the path is for probes, which are answered beyond the limits on connections.
pub(crate) fn is_probe(path: &str) -> bool {
    ["/healthz", "/readyz"].contains(&path)
}

pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pub(crate) policy: Policy,
    pub(crate) handler: MethodRouter<Arc<Api>>,
    pub(crate) doc: fn() -> Doc,
}

impl Route {
    pub(crate) fn get<T: 'static>(
        path: &'static str,
        policy: Policy,
        handler: impl Handler<T, Arc<Api>>,
        doc: fn() -> Doc,
    ) -> Self {
        Self::new(Verb::Get, path, policy, handler, doc)
    }

    pub(crate) fn post<T: 'static>(
        path: &'static str,
        policy: Policy,
        handler: impl Handler<T, Arc<Api>>,
        doc: fn() -> Doc,
    ) -> Self {
        Self::new(Verb::Post, path, policy, handler, doc)
    }

    pub(crate) fn patch<T: 'static>(
        path: &'static str,
        policy: Policy,
        handler: impl Handler<T, Arc<Api>>,
        doc: fn() -> Doc,
    ) -> Self {
        Self::new(Verb::Patch, path, policy, handler, doc)
    }

    pub(crate) fn delete<T: 'static>(
        path: &'static str,
        policy: Policy,
        handler: impl Handler<T, Arc<Api>>,
        doc: fn() -> Doc,
    ) -> Self {
        Self::new(Verb::Delete, path, policy, handler, doc)
    }

    fn new<T: 'static>(
        verb: Verb,
        path: &'static str,
        policy: Policy,
        handler: impl Handler<T, Arc<Api>>,
        doc: fn() -> Doc,
    ) -> Self {
        Self {
            verb,
            path,
            policy,
            handler: on(verb.filter(), handler),
            doc,
        }
    }
}
