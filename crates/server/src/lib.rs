#![doc = include_str!("../README.md")]

mod api;
mod body;
mod cursor;
mod download;
mod event_stream;
mod gateway;
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
mod parameter_schemas;
mod problem;
mod query;
#[cfg(test)]
mod reference;
mod reply;
mod route;
mod router;
mod schemas;
mod socket;
mod stream_limits;
mod tokens;

pub use api::{Api, ServerError};
pub use body::{EmptyBody, JsonBody, OptionalBody, TextBody};
pub use gateway::Gateway;
pub use identity::{Caller, IdentityMode, Scope};
pub use listener::{ListenerSettings, serve};
pub use mount::Mount;
pub use network::Network;
pub use problem::ApiError;
pub use reply::{accepted, ok};
pub use route::{Policy, Verb};
pub use router::{RouteInfo, route_table};
