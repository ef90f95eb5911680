//! Every SQL statement by name, and its text for each database.
//!
//! A statement is a file in `sql/`. The program fills in these marks:
//!
//! - `{now}`: the store's clock, whose offset is always the first parameter;
//! - `{task_columns}`: the columns of a task;
//! - `{plain_columns}`: those that a submit binds as they are, see `crate::task_columns`;
//! - `{plain_values:3}`: their parameters, numbered from 3 (`{plain_values}`: without numbers);
//! - `{plain_arrays:3}`: their parameters as arrays, for PostgreSQL only;
//! - `{parameter:queue}`: the number of one of these parameters again;
//! - `{list_filter}`: the conditions that all lists share;
//! - `{row}`: see `crate::chunks`;
//! - `{taken}`: for PostgreSQL only.
//!
//! Parameters are numbered in every file. MySQL has no numbers: it gets a plain `?` and the order
//! to bind in.

use std::sync::LazyLock;

use crate::task_columns::{PLAIN_COLUMNS, Plain, TASK_COLUMNS};

macro_rules! statements {
    ($($variant:ident $file:literal,)*) => {
        /// The statements that all three databases have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Statement { $($variant,)* }

        const NAMES: &[&str] = &[$($file,)*];
        const SQLITE: &[&str] = &[$(include_str!(concat!("sqlite/sql/", $file, ".sql")),)*];
        #[cfg(feature = "postgres")]
        const POSTGRES: &[&str] = &[$(include_str!(concat!("postgres/sql/", $file, ".sql")),)*];
        #[cfg(feature = "mysql")]
        const MYSQL: &[&str] = &[$(include_str!(concat!("mysql/sql/", $file, ".sql")),)*];
    };
}

statements! {
    Now "now",
    GetTask "get_task",
    LockTasks "lock_tasks",
    ReadTasks "read_tasks",
    ReadLeases "read_leases",
    LockLeases "lock_leases",
    FindChildren "find_children",
    SaveTasks "save_tasks",
    InsertAttempts "insert_attempts",
    InsertCountDeltas "insert_count_deltas",
    InsertOutbox "insert_outbox",
    InsertLane "insert_lane",
    FindLane "find_lane",
    TakeIdempotencyKeys "take_idempotency_keys",
    ReadIdempotencyKeys "read_idempotency_keys",
    PruneIdempotencyKeys "prune_idempotency_keys",
    SaveProgress "save_progress",
    SaveCheckpoint "save_checkpoint",
    AppendLogs "append_logs",
    FindLongLogs "find_long_logs",
    TrimLogs "trim_logs",
    DeleteLogs "delete_logs",
    FindOwner "find_owner",
    ListLogs "list_logs",
    InsertArtifact "insert_artifact",
    CountArtifacts "count_artifacts",
    ListArtifacts "list_artifacts",
    GetArtifact "get_artifact",
    FindExpiredArtifacts "find_expired_artifacts",
    CleanArtifacts "clean_artifacts",
    RetryArtifacts "retry_artifacts",
    DeleteArtifacts "delete_artifacts",
    ExpireArtifacts "expire_artifacts",
    DeleteCleanArtifacts "delete_clean_artifacts",
    InsertNode "insert_node",
    BeatNode "beat_node",
    FindLiveNode "find_live_node",
    DeleteNode "delete_node",
    ListNodes "list_nodes",
    LoseSilentNodes "lose_silent_nodes",
    LoseOtherNodes "lose_other_nodes",
    PauseQueue "pause_queue",
    ResumeQueue "resume_queue",
    ListQueues "list_queues",
    InsertMaintenanceLease "insert_maintenance_lease",
    LockMaintenanceLease "lock_maintenance_lease",
    SaveMaintenanceLease "save_maintenance_lease",
    FreeOtherMaintenanceLeases "free_other_maintenance_leases",
    FindRescuable "find_rescuable",
    FindStrays "find_strays",
    FindPastDeadline "find_past_deadline",
    FindOverdue "find_overdue",
    FindNextDue "find_next_due",
    FindHeads "find_heads",
    PeekLane "peek_lane",
    ReadHints "read_hints",
    MoveToLanes "move_to_lanes",
    FindHostAffinity "find_host_affinity",
    InsertHostAffinity "insert_host_affinity",
    DeleteHostAffinity "delete_host_affinity",
    PruneHostAffinity "prune_host_affinity",
    FindPrunable "find_prunable",
    DeleteTasks "delete_tasks",
    DeleteAttempts "delete_attempts",
    FindOutbox "find_outbox",
    HoldOutbox "hold_outbox",
    CountOutbox "count_outbox",
    DeleteOutbox "delete_outbox",
    FindCountDeltas "find_count_deltas",
    DeleteCountDeltas "delete_count_deltas",
    CompactCounts "compact_counts",
    ReadTaskCounts "read_task_counts",
    InsertToken "insert_token",
    FindToken "find_token",
    ListTokens "list_tokens",
    PruneTokens "prune_tokens",
    TouchToken "touch_token",
    RevokeToken "revoke_token",
    ListAttempts "list_attempts",
    CountAhead "count_ahead",
    ListTypes "list_types",
    ListAllNewest "list_all_newest",
    ListAllOldest "list_all_oldest",
    ListByOwnerNewest "list_by_owner_newest",
    ListByOwnerOldest "list_by_owner_oldest",
    ListByStatusNewest "list_by_status_newest",
    ListByStatusOldest "list_by_status_oldest",
    ListByKeyNewest "list_by_key_newest",
    ListByKeyOldest "list_by_key_oldest",
    ListByParentNewest "list_by_parent_newest",
    ListByParentOldest "list_by_parent_oldest",
}

/// A statement ready to be prepared.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// For databases without numbered parameters: the parameter of each `?`, from 0.
    pub(crate) order: Option<Vec<usize>>,
}

/// The values of the marks in one database.
pub(crate) struct Dialect {
    pub(crate) now: &'static str,
    pub(crate) list_filter: &'static str,
    pub(crate) numbered: bool,
    /// The parameter of a plain column.
    pub(crate) parameter: fn(usize, Plain) -> String,
}

pub(crate) const SQLITE_DIALECT: Dialect = Dialect {
    now: "?1",
    list_filter: include_str!("sqlite/sql/list_filter.fragment"),
    numbered: true,
    parameter: |number, _| format!("?{number}"),
};
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES_DIALECT: Dialect = Dialect {
    // Like `longhaul_now()`, but with a float instead of a numeric. The float is exact to the
    // microsecond until 2106.
    now: "(SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint + $1)",
    list_filter: include_str!("postgres/sql/list_filter.fragment"),
    numbered: true,
    parameter: |number, plain| match plain {
        Plain::Id(_) | Plain::Text(_) => format!("${number}"),
        Plain::Int(_) => format!("${number}::bigint"),
        Plain::Flag(_) => format!("${number}::bigint <> 0"),
    },
};
#[cfg(feature = "mysql")]
pub(crate) const MYSQL_DIALECT: Dialect = Dialect {
    now: "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + ?1)",
    list_filter: include_str!("mysql/sql/list_filter.fragment"),
    numbered: false,
    parameter: |number, _| format!("?{number}"),
};

impl Dialect {
    /// The statement with its marks filled in.
    pub(crate) fn sql(&self, name: &'static str, file: &str) -> Sql {
        let names: Vec<&str> = TASK_COLUMNS.iter().map(|column| column.name).collect();
        let of_tasks: Vec<String> = names.iter().map(|name| format!("tasks.{name}")).collect();
        let of_tasks = of_tasks.join(", ");

        // Next to a joined list of ids a bare column name would be ambiguous.
        let columns = if self.numbered {
            names.join(", ")
        } else {
            of_tasks.clone()
        };

        // Drop comments: a `?` in one would count as a parameter.
        let statement: Vec<&str> = file
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"))
            .collect();
        let filled = statement
            .join("\n")
            .replace("{now}", self.now)
            .replace("{list_filter}", self.list_filter)
            .replace("{task_columns_of_tasks}", &of_tasks)
            .replace("{task_columns}", &columns);
        let filled = self.with_plain_columns(filled);

        if self.numbered {
            return Sql {
                name,
                text: filled,
                order: None,
            };
        }

        let (text, order) = without_numbers(&filled);
        Sql {
            name,
            text,
            order: Some(order),
        }
    }

    /// Fills in the marks of the plain columns.
    fn with_plain_columns(&self, text: String) -> String {
        if !text.contains("{plain_") {
            return text;
        }

        let names: Vec<&str> = PLAIN_COLUMNS.iter().map(|column| column.name).collect();
        let text = text
            .replace("{plain_columns}", &names.join(", "))
            .replace("{plain_values}", &vec!["?"; names.len()].join(", "));

        let text = with_numbers(text, "{plain_arrays:", |number, plain| {
            let element = match plain {
                Plain::Id(_) => "uuid",
                Plain::Int(_) => "bigint",
                Plain::Text(_) => "text",
                Plain::Flag(_) => "bool",
            };
            format!("${number}::{element}[]")
        });
        with_numbers(text, "{plain_values:", self.parameter)
    }

    fn catalog(&self, files: &'static [&'static str]) -> Vec<Sql> {
        NAMES
            .iter()
            .zip(files)
            .map(|(name, file)| self.sql(name, file))
            .collect()
    }
}

/// Fills in a mark that ends with the number of its first parameter, and the marks of these
/// parameters alone.
fn with_numbers(text: String, mark: &str, parameter: fn(usize, Plain) -> String) -> String {
    let first = text
        .split_once(mark)
        .and_then(|(_, rest)| rest.split_once('}'))
        .and_then(|(number, _)| number.parse::<usize>().ok());
    let Some(first) = first else {
        return text;
    };

    let parameters: Vec<String> = PLAIN_COLUMNS
        .iter()
        .zip(first..)
        .map(|(column, number)| parameter(number, column.plain))
        .collect();
    let mut filled = text.replace(&format!("{mark}{first}}}"), &parameters.join(", "));
    for (column, parameter) in PLAIN_COLUMNS.iter().zip(&parameters) {
        filled = filled.replace(&format!("{{parameter:{}}}", column.name), parameter);
    }

    filled
}

/// Turns `?3` into `?` and records the parameter.
fn without_numbers(text: &str) -> (String, Vec<usize>) {
    let mut parts = text.split('?');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    let mut order = Vec::new();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let number: usize = part[..part.len() - rest.len()].parse().unwrap_or(0);
        order.push(number.saturating_sub(1));
        plain.push('?');
        plain.push_str(rest);
    }

    (plain, order)
}

pub(crate) static SQLITE_CATALOG: LazyLock<Vec<Sql>> =
    LazyLock::new(|| SQLITE_DIALECT.catalog(SQLITE));
#[cfg(feature = "postgres")]
pub(crate) static POSTGRES_CATALOG: LazyLock<Vec<Sql>> =
    LazyLock::new(|| POSTGRES_DIALECT.catalog(POSTGRES));
#[cfg(feature = "mysql")]
pub(crate) static MYSQL_CATALOG: LazyLock<Vec<Sql>> =
    LazyLock::new(|| MYSQL_DIALECT.catalog(MYSQL));

#[cfg(all(test, feature = "postgres", feature = "mysql"))]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_an_order() {
        let (text, order) = without_numbers("a = ?2 AND b = ?1 AND c = ?12 OR ?2");
        assert_eq!(text, "a = ? AND b = ? AND c = ? OR ?");
        assert_eq!(order, [1, 0, 11, 1]);
    }

    #[test]
    fn no_mark_is_left_in_a_statement() {
        for sql in crate::sqlite::statements()
            .chain(crate::postgres::statements())
            .chain(crate::mysql::statements())
        {
            assert!(!sql.text.contains('{'), "{}: {}", sql.name, sql.text);
        }
    }
}
