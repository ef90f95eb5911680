#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

// From a URL to a running process; read opening, builder, start, assembly.
mod assembly;
mod builder;
mod opening;
mod start;

// What a program does with it.
mod admin;
mod facade;
#[cfg(feature = "server")]
mod serving;
mod stop_signal;
mod transaction;

// What it is made of.
mod applications;
mod artifacts;
mod fleet;
mod tier_source;

#[cfg(feature = "testing")]
pub mod testing;

/// The HTTP API, for programs that serve it themselves: see [`Longhaul::serve`].
#[cfg(feature = "server")]
pub mod server {
    pub use longhaul_server::{
        ApiError, Caller, EmptyBody, Gateway, IdentityMode, JsonBody, ListenerSettings, Mount,
        Network, OptionalBody, Policy, RouteInfo, Scope, ServerError, TextBody, Verb, accepted, ok,
        route_table,
    };
    pub use tokio_util::sync::CancellationToken;
}

/// For operators' programs: a store of their own, its schema, and tokens.
#[cfg(feature = "server")]
pub mod operating {
    pub use longhaul_api::{Moment, WireDuration};
    pub use longhaul_domain::{
        AccessToken, Clock, NewAccessToken, TokenStanding, TokenText, bounds,
        contract::{
            Broker,
            broker::BrokerError,
            store::{Leases, TaskReads, Tokens},
        },
    };
    pub use longhaul_node::PollSettings;
    pub use longhaul_store::{SchemaState, SqlStore, StoreOptions, SystemClock};
    #[cfg(feature = "fleet")]
    pub use longhaul_transport::{
        rabbitmq::RabbitBroker,
        redis::{Redis, RedisState},
    };

    pub use crate::fleet::{declare, until_up};
}

pub use builder::Builder;
pub use facade::Longhaul;
pub use stop_signal::StopSignal;
pub use transaction::CallersTransaction;

/// The record of a task as the store keeps it. The trait has the name `Task`.
pub use longhaul_domain::TaskRecord;
pub use longhaul_domain::{
    Attempt, AttemptEndKind, Invalid, Json, LogEntry, LogLevel, LogPage, NewTask, QueueName,
    RetryPolicy, Status, StoreError, TaskError, TaskId, Timestamp,
    artifact::ArtifactRecord,
    contract::{
        artifact_store::ArtifactError,
        event_bus::{EventStream, Received, Subscription},
        rate_limiter::{Limit, LimitRules},
        store::{Access, BulkChange, BulkOutcome, RetryScope},
    },
    event::{EventKind, TaskEvent},
    event::{EventRule, EventSelection},
    filter::{Page, PageRequest, SortOrder, TaskFilter},
    lifecycle::reschedule::Reschedule,
    queue::Queue,
};
pub use longhaul_engine::{
    files::{FileLife, StoredFile},
    output::{Output, OutputError, Piece, PieceContent},
    queries::why::{Ahead, Why},
    routing::{Routing, Rule},
    trace::{self, TraceContext},
};
pub use longhaul_node::{QueueSlots, WorkerSettings, maintenance::MaintenanceSettings};
pub use longhaul_sdk::{
    AnyError, AttemptContext, AttemptServices, Child, Children, Class, Context, Handle, Handler,
    Hook, Job, Kind, Named, NoResult, Outcome, Permit, Progress, Question, State, Stop, StopReason,
    Submission, Task, TaskInfo, TypeInfo, TypeSettings, classify_by_type,
};
#[cfg(feature = "fleet")]
pub use longhaul_transport::rabbitmq::{QueueKind, RabbitOptions};
pub use schemars::JsonSchema;

/// Compiles the programs of the README and of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/tasks.md")]
struct Documents;
