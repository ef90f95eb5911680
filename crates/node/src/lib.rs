#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[doc(hidden)]
pub mod dispatch_window;
#[doc(hidden)]
pub mod in_flight;
pub mod maintenance;
#[doc(hidden)]
pub mod pace;
#[doc(hidden)]
pub mod slots;

mod admission;
mod attempt;
mod attempts;
mod checkpoint;
mod claimed;
mod claimer;
mod deadlines;
mod demand;
mod eager_start;
mod executor;
mod heartbeat;
mod hooks;
mod host_affinity;
mod log_buffer;
mod manual;
mod node;
mod progress_writer;
mod queue_consumer;
mod reporter;
mod running;
mod settings;
mod shutdown;
mod slot_plan;
#[cfg(test)]
mod test_node;
mod wakeups;

pub use manual::ManualNode;
pub use node::Node;
pub use running::RunningNode;
pub use settings::{PollSettings, QueueSlots, WorkerSettings};
