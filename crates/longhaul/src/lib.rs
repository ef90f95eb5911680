//! Durable background tasks: define a task as a type, submit it, run workers, and trust it.
//!
//! ```no_run
//! use longhaul::{Context, JsonSchema, Longhaul, Outcome, Task};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Text { text: String }
//!
//! struct CountWords;
//!
//! impl Task for CountWords {
//!     const TYPE: &'static str = "count_words";
//!     type Params = Text;
//!     type Output = usize;
//!
//!     async fn run(&self, ctx: Context<Self>) -> Outcome<usize> {
//!         Ok(ctx.params.text.split_whitespace().count())
//!     }
//! }
//!
//! # async fn first() -> Result<(), Box<dyn std::error::Error>> {
//! let longhaul = Longhaul::open("sqlite://tasks.db").await?.register(CountWords).start().await?;
//! let handle = longhaul.submit::<CountWords>(Text { text: "no task is lost".into() }).owner("u-1").await?;
//! assert_eq!(handle.result().await?, 4);
//! longhaul.stop().await;
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod artifacts;
mod builder;
mod facade;
mod fleet;
mod people;
mod stop_signal;
mod tier_source;
mod transaction;

#[cfg(feature = "server")]
mod mounting;
#[cfg(feature = "server")]
mod serving;

#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
#[cfg(feature = "testing")]
mod worker_tests;

#[cfg(test)]
mod broker_tests;
#[cfg(test)]
mod tests;

/// The HTTP API, for programs that serve it themselves: see [`Longhaul::serve`].
#[cfg(feature = "server")]
pub mod server {
    pub use longhaul_server::{
        ApiError, Caller, IdentityMode, JsonBody, ListenerSettings, Mount, Network, NoBody,
        OptionalBody, Policy, RouteInfo, Scope, ServerError, TextBody, Verb, accepted, ok,
        route_table,
    };
    pub use tokio_util::sync::CancellationToken;
}

/// What operators do beside the tasks, for programs that are made for them: the store itself, its schema, and tokens.
#[cfg(feature = "server")]
pub mod operating {
    pub use longhaul_api::{Moment, WireDuration};
    pub use longhaul_domain::{
        AccessToken, Clock, NewAccessToken, TokenStanding, TokenText, bounds,
        contract::{Broker, Store, broker::BrokerError},
    };
    pub use longhaul_engine::pace::PollSettings;
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

/// The record of a task as the store keeps it. The name `Task` is the trait's.
pub use longhaul_domain::Task as Record;
pub use longhaul_domain::{
    Attempt, AttemptOutcome, Invalid, Json, LogEntry, LogLevel, LogPage, NewTask, RetryPolicy,
    Status, StoreError, TaskError, TaskId, Timestamp,
    artifact::ArtifactRecord,
    contract::{
        artifact_store::ArtifactError,
        event_bus::{EventStream, Heard, Subscription},
        rate_limiter::{Limit, LimitRules},
        store::{Access, BulkChange, BulkOutcome, RetryScope},
    },
    event::{EventKind, TaskEvent},
    event_selection::{EventRule, EventSelection},
    filter::{Page, PageRequest, SortOrder, TaskFilter},
    lifecycle::reschedule::Reschedule,
    queue::Queue,
};
pub use longhaul_engine::{
    desk::StopReason,
    files::{FileLife, KeptFile},
    output::{Output, OutputError, Piece, PieceContent},
    queries::why::{Ahead, Why},
    routing::{Routing, Rule},
    services::DutySettings,
    slots::QueueSlots,
    trace::{self, TraceContext},
};
#[cfg(feature = "fleet")]
pub use longhaul_transport::rabbitmq::{LaneKind, RabbitOptions};
pub use longhaul_worker::{
    AnyError, Child, Children, Class, Context, Handle, Job, Kind, Named, NoResult, Outcome, Permit,
    Progress, Question, State, Stop, Submission, Task, TaskInfo, TypeInfo, TypeSettings,
    WorkerSettings, classify_by_type,
};
pub use schemars::JsonSchema;

/// The programs of the README and of the guide compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/tasks.md")]
struct Documents;
