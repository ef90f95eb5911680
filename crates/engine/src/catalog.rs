//! The task types that a process accepts by name, and how a request becomes a new task.
//!
//! A server knows no handlers. The catalog has what it needs of a type: schemas, limits, and the
//! defaults for what a submitter leaves open.

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_domain::{
    Idempotency, Invalid, Json, NewTask, QueueName, RetryPolicy, RunAt, bounds, time::millis,
};

use crate::routing::Routing;

/// A task type without its code.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeDefinition {
    pub name: String,
    /// The queue for all tiers.
    pub queue: Option<String>,
    pub expected_duration: Option<Duration>,
    pub max_attempts: u32,
    pub retry: RetryPolicy,
    pub timeout: Option<Duration>,
    /// Whether the type has a `finish` step for parents.
    pub finish_step: bool,
    /// Whether a task of this type may be cancelled while it runs.
    pub is_cancellable: bool,
    /// JSON Schema of the parameters.
    pub params_schema: serde_json::Value,
    /// JSON Schema of the result.
    pub result_schema: serde_json::Value,
    /// JSON Schema of the progress.
    pub progress_schema: serde_json::Value,
}

/// All types of a process, and the routing of their tasks.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    types: BTreeMap<String, TypeDefinition>,
    routing: Routing,
}

/// A submitter's request for a task. The type supplies what is absent.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRequest {
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
    pub fn new(types: impl IntoIterator<Item = TypeDefinition>, routing: Routing) -> Self {
        Self {
            types: types
                .into_iter()
                .map(|definition| (definition.name.clone(), definition))
                .collect(),
            routing,
        }
    }

    pub fn get(&self, name: &str) -> Option<&TypeDefinition> {
        self.types.get(name)
    }

    /// All types, sorted by name.
    pub fn types(&self) -> impl Iterator<Item = &TypeDefinition> {
        self.types.values()
    }

    /// The names of the types whose running tasks cannot be cancelled.
    pub fn uncancellable(&self) -> impl Iterator<Item = &str> {
        let types = self.types().filter(|definition| !definition.is_cancellable);
        types.map(|definition| definition.name.as_str())
    }

    /// The task of a request. An unknown type is refused with the names of the known ones.
    pub fn new_task(&self, request: TaskRequest) -> Result<NewTask, Invalid> {
        let definition = self
            .types
            .get(&request.task_type)
            .ok_or_else(|| self.unknown(&request.task_type))?;
        let expected = request.expected_duration.or(definition.expected_duration);

        // Of two wrong names, the owner is reported, as by the task's own check.
        bounds::check_name("userId", &request.owner)?;
        let queue = match (&request.queue, &definition.queue) {
            (Some(queue), _) | (None, Some(queue)) => QueueName::parse(queue)?,
            (None, None) => {
                let tier = request.tier.as_deref();
                self.routing.queue(tier, expected).clone()
            }
        };

        let mut task = NewTask::new(&request.owner, &definition.name, queue, request.parameters);
        task.tier = request.tier;
        task.task_key = request.task_key;
        task.priority = request.priority.unwrap_or(task.priority);
        task.run_at = request.run_at;
        task.max_attempts = request.max_attempts.unwrap_or(definition.max_attempts);
        task.timeout_ms = request.timeout.or(definition.timeout).map(millis);
        task.finish_step = definition.finish_step;
        task.retry = definition.retry;
        task.correlation_id = request.correlation_id;
        task.trace_context = request.trace_context;
        task.idempotency = request.idempotency;

        task.check()?;
        Ok(task)
    }

    /// Whether a task of this tier may be submitted to the queue.
    pub fn is_open_to(&self, tier: &str, queue: &str) -> bool {
        self.routing.is_open_to(tier, queue)
    }

    /// Whether the routing or a type names the queue.
    pub fn names_queue(&self, queue: &str) -> bool {
        let mut types = self.types();
        types.any(|definition| definition.queue.as_deref() == Some(queue))
            || self.routing.queues().iter().any(|name| name == queue)
    }

    fn unknown(&self, name: &str) -> Invalid {
        let shown: String = name.chars().take(60).collect();
        let named: Vec<&str> = self
            .types
            .keys()
            .take(MAX_NAMED)
            .map(String::as_str)
            .collect();
        let more = if self.types.len() > MAX_NAMED {
            ", …"
        } else {
            ""
        };

        Invalid::new(
            "taskType",
            format!("{shown:?} is not known here"),
            format!("{}{more}", named.join(", ")),
        )
    }
}

/// Types that a refusal names at most.
const MAX_NAMED: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let kind = |name: &str, queue: Option<&str>| TypeDefinition {
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

    fn request(task_type: &str) -> TaskRequest {
        TaskRequest {
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
    fn the_type_supplies_what_a_request_leaves_open() {
        let task = catalog().new_task(request("a")).unwrap();
        assert_eq!(
            (task.max_attempts, task.priority, task.finish_step),
            (3, 1, true)
        );
        assert_eq!(task.queue, "free_default");
    }

    #[test]
    fn the_queue_comes_from_the_request_then_the_type_then_the_rules() {
        let queue = |request| catalog().new_task(request).unwrap().queue.to_string();
        let vip = TaskRequest {
            tier: Some("vip".to_owned()),
            ..request("a")
        };
        let short = TaskRequest {
            expected_duration: Some(Duration::from_secs(5)),
            ..vip.clone()
        };

        assert_eq!(queue(vip.clone()), "vip_long");
        assert_eq!(queue(short), "vip_short");
        assert_eq!(
            queue(TaskRequest {
                task_type: "b".to_owned(),
                ..vip.clone()
            }),
            "own"
        );

        assert_eq!(
            queue(TaskRequest {
                queue: Some("named".to_owned()),
                ..vip
            }),
            "named"
        );
    }

    #[test]
    fn an_unknown_type_is_refused_with_the_known_ones() {
        let refused = catalog().new_task(request("c")).unwrap_err();
        assert_eq!(
            (refused.field, refused.allowed.as_str()),
            ("taskType", "a, b")
        );
    }

    #[test]
    fn an_invalid_field_is_named() {
        let refused = catalog()
            .new_task(TaskRequest {
                priority: Some(10),
                ..request("a")
            })
            .unwrap_err();
        assert_eq!(refused.field, "priority");
    }

    #[test]
    fn of_two_wrong_names_the_owner_is_reported() {
        let refused = catalog()
            .new_task(TaskRequest {
                owner: String::new(),
                queue: Some("a b".to_owned()),
                ..request("a")
            })
            .unwrap_err();
        assert_eq!(refused.field, "userId");
    }
}
