//! The columns of a task, as one list. The positions from which `crate::record` reads, the lists
//! of columns in the statements, and the parameters of a submit are derived from it.

use std::sync::LazyLock;

use longhaul_domain::{Json, Timestamp};
use uuid::Uuid;

use crate::{row::Param, session::Submission};

/// Every column that is read, in the order of reading.
///
/// A submit binds the plain columns as they are. Statements that insert name all others themselves.
pub(crate) const TASK_COLUMNS: &[TaskColumn] = &[
    other("id"),
    id("parent_id", |new| {
        new.task.parent.map(|lease| lease.task_id.0)
    }),
    text("owner", |new| Some(&new.task.owner)),
    text("tier", |new| new.task.tier.as_deref()),
    text("task_type", |new| Some(&new.task.task_type)),
    other("task_key"),
    text("queue", |new| Some(new.task.queue.as_str())),
    int("priority", |new| Some(new.task.priority.into())),
    other("status"),
    other("phase"),
    other("attempt"),
    int("max_attempts", |new| Some(new.task.max_attempts.into())),
    other("retry_count"),
    other("snooze_count"),
    other("crash_count"),
    other("version"),
    other("created_at"),
    other("updated_at"),
    other("due_at"),
    other("started_at"),
    other("last_attempt_at"),
    other("finished_at"),
    int("deadline_at", |new| {
        new.task.deadline_at.map(Timestamp::as_micros)
    }),
    int("timeout_ms", |new| {
        new.task.timeout_ms.and_then(|ms| i64::try_from(ms).ok())
    }),
    other("lease_token"),
    other("node_id"),
    other("host"),
    other("children_total"),
    other("children_completed"),
    other("children_with_errors"),
    other("children_failed"),
    other("children_cancelled"),
    flag("finish_step", |new| new.task.finish_step),
    text("retry_policy", |new| new.policy.as_deref()),
    other("parameters"),
    other("checkpoint"),
    other("progress"),
    other("result"),
    other("result_url"),
    other("error"),
    text("memo", |new| new.task.memo.as_ref().map(Json::as_str)),
    text("correlation_id", |new| new.task.correlation_id.as_deref()),
    text("trace_context", |new| new.task.trace_context.as_deref()),
    other("artifact_expires_at"),
    other("artifact_state"),
];

pub(crate) struct TaskColumn {
    pub(crate) name: &'static str,
    plain: Option<Plain>,
}

/// A column with one value for each new task, which takes one parameter.
pub(crate) struct PlainColumn {
    pub(crate) name: &'static str,
    pub(crate) plain: Plain,
}

/// The type of a plain column, and where its value is in a new task.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    Id(Value<Option<Uuid>>),
    Int(Value<Option<i64>>),
    Text(TextValue),
    Flag(Value<bool>),
}

type Value<T> = fn(&Submission<'_>) -> T;
type TextValue = for<'s> fn(&'s Submission<'_>) -> Option<&'s str>;

/// The plain columns, in the order in which they are bound.
pub(crate) static PLAIN_COLUMNS: LazyLock<Vec<PlainColumn>> = LazyLock::new(|| {
    let plain = |column: &TaskColumn| {
        let name = column.name;
        column.plain.map(|plain| PlainColumn { name, plain })
    };
    TASK_COLUMNS.iter().filter_map(plain).collect()
});

/// The parameters of a new task's plain columns.
pub(crate) fn plain_params<'s>(
    submission: &'s Submission<'_>,
) -> impl Iterator<Item = Param<'s>> + Send {
    PLAIN_COLUMNS.iter().map(|column| match column.plain {
        Plain::Id(value) => Param::Id(value(submission)),
        Plain::Int(value) => Param::Int(value(submission)),
        Plain::Text(value) => Param::Text(value(submission)),
        Plain::Flag(value) => i64::from(value(submission)).into(),
    })
}

/// The position of a column in a row. Only for constants: there, a wrong name does not compile.
#[expect(clippy::panic, reason = "only the compiler meets it")]
pub(crate) const fn position(name: &str) -> usize {
    let mut position = 0;
    while position < TASK_COLUMNS.len() {
        if is_same(TASK_COLUMNS[position].name, name) {
            return position;
        }
        position += 1;
    }

    panic!("a task has no column of this name")
}

/// `==` is not for constants yet.
const fn is_same(one: &str, other: &str) -> bool {
    let one = one.as_bytes();
    let other = other.as_bytes();
    if one.len() != other.len() {
        return false;
    }

    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }

    true
}

const fn id(name: &'static str, value: Value<Option<Uuid>>) -> TaskColumn {
    plain(name, Plain::Id(value))
}

const fn int(name: &'static str, value: Value<Option<i64>>) -> TaskColumn {
    plain(name, Plain::Int(value))
}

const fn text(name: &'static str, value: TextValue) -> TaskColumn {
    plain(name, Plain::Text(value))
}

const fn flag(name: &'static str, value: Value<bool>) -> TaskColumn {
    plain(name, Plain::Flag(value))
}

const fn plain(name: &'static str, plain: Plain) -> TaskColumn {
    TaskColumn {
        name,
        plain: Some(plain),
    }
}

const fn other(name: &'static str) -> TaskColumn {
    TaskColumn { name, plain: None }
}
