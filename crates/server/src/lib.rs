//! The HTTP API: routes, identity, live events, and the loop that accepts connections.
//!
//! It makes no decisions. A request is read into a type that cannot hold a wrong value, handed to the engine or its store
//! in the name of the caller, and the answer is written down. Every route stands in one table ([`router`]), from which
//! come the router, the check of what a caller may do, and the OpenAPI document.

mod api;
mod body;
mod cursor;
mod download;
mod event_stream;
mod guard;
mod handlers;
mod identity;
mod listener;
mod live;
mod mount;
mod network;
mod observe;
mod openapi;
mod output;
mod problem;
mod query;
#[cfg(test)]
mod reference;
mod reply;
mod route;
mod router;
mod schemas;
mod shapes;
mod socket;
mod tokens;

pub use api::{Api, ServerError};
pub use body::{JsonBody, NoBody, OptionalBody, TextBody};
pub use identity::{Caller, IdentityMode, Scope};
pub use listener::{ListenerSettings, serve};
pub use mount::Mount;
pub use network::Network;
pub use problem::ApiError;
pub use reply::{accepted, ok};
pub use route::{Policy, Verb};
pub use router::{RouteInfo, route_table};
