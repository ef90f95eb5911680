//! The types that a process can be asked for by name, and how an order for one becomes a task.
//!
//! A server knows no handlers. What it must know of a type stands here: what fits, and what holds when the submitter
//! says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_domain::{Idempotency, Invalid, Json, NewTask, RetryPolicy, RunAt, bounds};

use crate::routing::Routing;

/// What is known of a type without its code.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskType {
    pub name: String,
    /// The queue, whatever the tier.
    pub queue: Option<String>,
    pub expected_duration: Option<Duration>,
    pub max_attempts: u32,
    pub retry: RetryPolicy,
    pub timeout: Option<Duration>,
    /// Whether the type has a `finish` step for parents.
    pub finish_step: bool,
    /// Whether people may cancel a task of this type while it runs.
    pub is_cancellable: bool,
    /// JSON Schema of the parameters.
    pub params_schema: serde_json::Value,
    /// JSON Schema of the result.
    pub result_schema: serde_json::Value,
    /// JSON Schema of the progress.
    pub progress_schema: serde_json::Value,
}

/// All types of a process, and where their tasks go.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    types: BTreeMap<String, TaskType>,
    routing: Routing,
}

/// What a submitter says. What is absent is as the type says.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub owner: String,
    pub task_type: String,
    pub parameters: Json,
    pub priority: Option<u8>,
    pub run_at: RunAt,
    pub queue: Option<String>,
    pub tier: Option<String>,
    pub expected_duration: Option<Duration>,
    pub max_attempts: Option<u32>,
    pub timeout: Option<Duration>,
    pub task_key: Option<String>,
    pub correlation_id: Option<String>,
    pub trace_context: Option<String>,
    pub idempotency: Option<Idempotency>,
}

impl Catalog {
    pub fn new(types: impl IntoIterator<Item = TaskType>, routing: Routing) -> Self {
        Self {
            types: types
                .into_iter()
                .map(|kind| (kind.name.clone(), kind))
                .collect(),
            routing,
        }
    }

    pub fn get(&self, name: &str) -> Option<&TaskType> {
        self.types.get(name)
    }

    /// All types, sorted by name.
    pub fn types(&self) -> impl Iterator<Item = &TaskType> {
        self.types.values()
    }

    /// The task that an order is for. A type that nobody here knows is refused with the names of those that are known.
    pub fn new_task(&self, order: Order) -> Result<NewTask, Invalid> {
        let kind = self
            .types
            .get(&order.task_type)
            .ok_or_else(|| self.unknown(&order.task_type))?;
        let expected = order.expected_duration.or(kind.expected_duration);
        let routed = || {
            self.routing
                .queue(order.tier.as_deref(), expected)
                .to_owned()
        };
        let queue = order
            .queue
            .clone()
            .or_else(|| kind.queue.clone())
            .unwrap_or_else(routed);
        let mut task = NewTask::new(&order.owner, &kind.name, &queue, order.parameters);
        task.tier = order.tier;
        task.task_key = order.task_key;
        task.priority = order.priority.unwrap_or(task.priority);
        task.run_at = order.run_at;
        task.max_attempts = order.max_attempts.unwrap_or(kind.max_attempts);
        task.timeout_ms = order.timeout.or(kind.timeout).map(millis);
        task.finish_step = kind.finish_step;
        task.retry = kind.retry;
        task.correlation_id = order.correlation_id;
        task.trace_context = order.trace_context;
        task.idempotency = order.idempotency;
        task.check()?;
        Ok(task)
    }

    /// Whether a task of this tier may be in the queue.
    pub fn is_open_to(&self, tier: &str, queue: &str) -> bool {
        self.routing.is_open_to(tier, queue)
    }

    fn unknown(&self, name: &str) -> Invalid {
        let shown: String = name.chars().take(60).collect();
        let known: Vec<&str> = self
            .types
            .keys()
            .take(NAMED_TYPES)
            .map(String::as_str)
            .collect();
        let more = if self.types.len() > NAMED_TYPES {
            ", …"
        } else {
            ""
        };
        Invalid::new(
            "taskType",
            format!("{shown:?} is not known here"),
            format!("{}{more}", known.join(", ")),
        )
    }
}

/// Types that a refusal names; a list of hundreds helps nobody.
const NAMED_TYPES: usize = 50;

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(bounds::DURATION_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let kind = |name: &str, queue: Option<&str>| TaskType {
            name: name.to_owned(),
            queue: queue.map(str::to_owned),
            expected_duration: Some(Duration::from_secs(600)),
            max_attempts: 3,
            retry: RetryPolicy::default(),
            timeout: None,
            finish_step: true,
            is_cancellable: true,
            params_schema: serde_json::Value::Bool(true),
            result_schema: serde_json::Value::Bool(true),
            progress_schema: serde_json::Value::Bool(true),
        };
        Catalog::new(
            [kind("a", None), kind("b", Some("own"))],
            Routing::default(),
        )
    }

    fn order(task_type: &str) -> Order {
        Order {
            owner: "u-1".to_owned(),
            task_type: task_type.to_owned(),
            parameters: Json::trusted("null".to_owned()),
            priority: None,
            run_at: RunAt::Now,
            queue: None,
            tier: None,
            expected_duration: None,
            max_attempts: None,
            timeout: None,
            task_key: None,
            correlation_id: None,
            trace_context: None,
            idempotency: None,
        }
    }

    #[test]
    fn what_an_order_leaves_open_is_as_the_type_says() {
        let task = catalog().new_task(order("a")).unwrap();
        assert_eq!(
            (task.max_attempts, task.priority, task.finish_step),
            (3, 1, true)
        );
        assert_eq!(&*task.queue, "free_default");
    }

    #[test]
    fn a_queue_comes_from_the_order_then_the_type_then_the_rules() {
        let queue = |order| catalog().new_task(order).unwrap().queue.to_string();
        let vip = Order {
            tier: Some("vip".to_owned()),
            ..order("a")
        };
        let short = Order {
            expected_duration: Some(Duration::from_secs(5)),
            ..vip.clone()
        };
        assert_eq!(queue(vip.clone()), "vip_long");
        assert_eq!(queue(short), "vip_short");
        assert_eq!(
            queue(Order {
                task_type: "b".to_owned(),
                ..vip.clone()
            }),
            "own"
        );
        assert_eq!(
            queue(Order {
                queue: Some("named".to_owned()),
                ..vip
            }),
            "named"
        );
    }

    #[test]
    fn an_unknown_type_is_refused_with_the_known_ones() {
        let refused = catalog().new_task(order("c")).unwrap_err();
        assert_eq!(
            (refused.field, refused.allowed.as_str()),
            ("taskType", "a, b")
        );
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        let refused = catalog()
            .new_task(Order {
                priority: Some(10),
                ..order("a")
            })
            .unwrap_err();
        assert_eq!(refused.field, "priority");
    }
}
