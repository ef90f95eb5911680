//! The operations of a random history, and how they are drawn. Numbers stand for tasks, leases,
//! nodes and names. They are resolved when the operation runs, so that a history stays meaningful
//! while it is shrunk.

use proptest::{collection::vec, option, prelude::*};

/// The most tasks of one submit.
pub(super) const BATCH: usize = 3;

/// One operation of a history.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    Submit {
        tasks: Vec<Draft>,
    },
    SubmitChildren {
        lease: u8,
        tasks: Vec<Draft>,
    },
    Claim {
        node: u8,
        queues: u8,
        kinds: u8,
        limit: u8,
    },
    Write(Write),
    UserCommand(UserCommand),
    MaintenanceJob(MaintenanceJob),
    List {
        filter: Conditions,
        newest_first: bool,
        size: u8,
    },
    NextDue {
        queues: u8,
        kinds: u8,
    },
    Advance {
        spans: u8,
    },
}

/// A write of a node under its leases.
#[derive(Debug, Clone)]
pub(super) enum Write {
    Heartbeat {
        node: u8,
    },
    Finish {
        reports: Vec<(u8, ModelEnd)>,
    },
    Progress {
        lease: u8,
        percent: u8,
    },
    Checkpoint {
        lease: u8,
        page: u8,
    },
    /// A line for each lease.
    Log {
        leases: Vec<u8>,
    },
}

/// A command of a user.
#[derive(Debug, Clone)]
pub(super) enum UserCommand {
    Cancel {
        task: u8,
        owner: Option<u8>,
    },
    Retry {
        task: u8,
        owner: Option<u8>,
        failed_children: bool,
    },
    Reschedule {
        task: u8,
        change: Change,
    },
    ChangeAll {
        filter: Conditions,
        bulk: Bulk,
        limit: u8,
    },
    Pause {
        queue: u8,
    },
    Resume {
        queue: u8,
    },
}

/// A maintenance job or a node's start and end.
#[derive(Debug, Clone)]
pub(super) enum MaintenanceJob {
    StartNode {
        node: u8,
    },
    RetireNode {
        node: u8,
    },
    DeclareOthersDead {
        node: u8,
    },
    /// The node knows all leases but every third one, counted from `forgotten`.
    HandBackStrays {
        node: u8,
        forgotten: u8,
        spans: u8,
    },
    Rescue {
        max_crashes: u8,
        limit: u8,
    },
    Expire {
        silent: u8,
        grace: u8,
        limit: u8,
    },
    Take {
        node: u8,
        spans: u8,
    },
    Prune {
        spans: u8,
        limit: u8,
    },
    PruneKeys,
    CompactCounts {
        limit: u8,
    },
}

/// A task to be submitted.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) owner: u8,
    pub(super) kind: u8,
    pub(super) queue: u8,
    pub(super) priority: u8,
    pub(super) delay: u8,
    pub(super) max_attempts: u8,
    pub(super) finish_step: bool,
    /// In spans from the submission.
    pub(super) deadline: Option<u8>,
    pub(super) timeout: Option<u8>,
    /// Key and digest.
    pub(super) idempotency: Option<(u8, u8)>,
}

/// How an attempt ends, and whether the report has a wrong lease.
#[derive(Debug, Clone, Copy)]
pub(super) enum ModelEnd {
    Completed,
    Fatal,
    Retryable { spans: u8 },
    Snoozed { spans: u8 },
    HandedBack,
    Cancelled,
    WithAnOlderAttempt,
}

/// The changes of a reschedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) run_in: Option<u8>,
    pub(super) priority: Option<u8>,
    pub(super) max_attempts: Option<u8>,
    pub(super) queue: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Bulk {
    Cancel,
    Retry,
    Reschedule(Change),
}

/// The conditions of a list or a bulk change.
#[derive(Debug, Clone)]
pub(super) struct Conditions {
    pub(super) owner: Option<u8>,
    pub(super) access: Option<u8>,
    /// Indexes into `Status::ALL`.
    pub(super) statuses: Vec<u8>,
    pub(super) kinds: u8,
    pub(super) queues: u8,
    pub(super) children_of: Option<u8>,
}

/// Histories of up to `steps` operations.
pub(super) fn histories(steps: usize) -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..=steps)
}

/// Frequent operations: tasks are submitted, run and end, alone and as families, while time passes.
fn operation() -> impl Strategy<Value = Operation> {
    let drafts = || vec(draft(), 1..=BATCH);
    prop_oneof![
        8 => drafts().prop_map(|tasks| Operation::Submit { tasks }),
        8 => (any::<u8>(), drafts())
            .prop_map(|(lease, tasks)| Operation::SubmitChildren { lease, tasks }),
        16 => (0..3_u8, mask(), mask(), 1..6_u8)
            .prop_map(|(node, queues, kinds, limit)| {
                Operation::Claim { node, queues, kinds, limit }
            }),
        20 => write().prop_map(Operation::Write),
        12 => user_command().prop_map(Operation::UserCommand),
        14 => job().prop_map(Operation::MaintenanceJob),
        3 => (conditions(), any::<bool>(), 1..6_u8)
            .prop_map(|(filter, newest_first, size)| {
                Operation::List { filter, newest_first, size }
            }),
        1 => (mask(), mask()).prop_map(|(queues, kinds)| Operation::NextDue { queues, kinds }),
        4 => (1..4_u8).prop_map(|spans| Operation::Advance { spans }),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        16 => vec((any::<u8>(), model_end()), 1..5).prop_map(|reports| Write::Finish { reports }),
        2 => (0..3_u8).prop_map(|node| Write::Heartbeat { node }),
        2 => (any::<u8>(), any::<u8>())
            .prop_map(|(lease, percent)| Write::Progress { lease, percent }),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(lease, page)| Write::Checkpoint { lease, page }),
        2 => vec(any::<u8>(), 1..5).prop_map(|leases| Write::Log { leases }),
    ]
}

fn user_command() -> impl Strategy<Value = UserCommand> {
    prop_oneof![
        4 => (any::<u8>(), option::of(0..3_u8))
            .prop_map(|(task, owner)| UserCommand::Cancel { task, owner }),
        6 => (any::<u8>(), option::weighted(0.2, 0..3_u8), any::<bool>())
            .prop_map(|(task, owner, failed_children)| {
                UserCommand::Retry { task, owner, failed_children }
            }),
        4 => (any::<u8>(), change())
            .prop_map(|(task, change)| UserCommand::Reschedule { task, change }),
        4 => (conditions(), bulk(), 1..6_u8)
            .prop_map(|(filter, bulk, limit)| UserCommand::ChangeAll { filter, bulk, limit }),
        1 => (0..2_u8).prop_map(|queue| UserCommand::Pause { queue }),
        2 => (0..2_u8).prop_map(|queue| UserCommand::Resume { queue }),
    ]
}

fn job() -> impl Strategy<Value = MaintenanceJob> {
    prop_oneof![
        3 => (0..3_u8).prop_map(|node| MaintenanceJob::StartNode { node }),
        1 => (0..3_u8).prop_map(|node| MaintenanceJob::RetireNode { node }),
        1 => (0..3_u8).prop_map(|node| MaintenanceJob::DeclareOthersDead { node }),
        3 => (0..3_u8, 0..3_u8, 0..3_u8)
            .prop_map(|(node, forgotten, spans)| {
                MaintenanceJob::HandBackStrays { node, forgotten, spans }
            }),
        4 => (1..4_u8, 1..6_u8)
            .prop_map(|(max_crashes, limit)| MaintenanceJob::Rescue { max_crashes, limit }),
        4 => (0..4_u8, 0..3_u8, 1..6_u8)
            .prop_map(|(silent, grace, limit)| MaintenanceJob::Expire { silent, grace, limit }),
        1 => (0..3_u8, 0..3_u8).prop_map(|(node, spans)| MaintenanceJob::Take { node, spans }),
        2 => (0..4_u8, 1..6_u8).prop_map(|(spans, limit)| MaintenanceJob::Prune { spans, limit }),
        1 => Just(MaintenanceJob::PruneKeys),
        1 => (1..200_u8).prop_map(|limit| MaintenanceJob::CompactCounts { limit }),
    ]
}

/// The first of two names, the second, or usually both.
fn mask() -> impl Strategy<Value = u8> {
    prop_oneof![1 => 0..4_u8, 4 => Just(3_u8)]
}

prop_compose! {
    fn draft()(
        (owner, kind, queue, priority) in (0..3_u8, 0..2_u8, 0..2_u8, 1..4_u8),
        (delay, max_attempts, finish_step) in (
            prop_oneof![4 => Just(0_u8), 1 => 1..4_u8],
            1..4_u8,
            any::<bool>(),
        ),
        deadline in option::weighted(0.2, 0..5_u8),
        timeout in option::weighted(0.2, 0..3_u8),
        idempotency in option::weighted(0.2, (0..3_u8, 0..2_u8)),
    ) -> Draft {
        Draft {
            owner,
            kind,
            queue,
            priority,
            delay,
            max_attempts,
            finish_step,
            deadline,
            timeout,
            idempotency,
        }
    }
}

fn model_end() -> impl Strategy<Value = ModelEnd> {
    prop_oneof![
        8 => Just(ModelEnd::Completed),
        3 => Just(ModelEnd::Fatal),
        3 => (0..3_u8).prop_map(|spans| ModelEnd::Retryable { spans }),
        1 => (0..3_u8).prop_map(|spans| ModelEnd::Snoozed { spans }),
        1 => Just(ModelEnd::HandedBack),
        1 => Just(ModelEnd::Cancelled),
        1 => Just(ModelEnd::WithAnOlderAttempt),
    ]
}

prop_compose! {
    fn change()(
        run_in in option::of(0..4_u8),
        priority in option::of(1..4_u8),
        max_attempts in option::of(1..4_u8),
        queue in option::of(0..2_u8),
    ) -> Change {
        Change { run_in, priority, max_attempts, queue }
    }
}

fn bulk() -> impl Strategy<Value = Bulk> {
    prop_oneof![
        Just(Bulk::Cancel),
        Just(Bulk::Retry),
        change().prop_map(Bulk::Reschedule)
    ]
}

prop_compose! {
    fn conditions()(
        owner in option::weighted(0.2, 0..3_u8),
        access in option::weighted(0.3, 0..3_u8),
        statuses in vec(0..9_u8, 0..3),
        kinds in mask(),
        queues in mask(),
        children_of in option::weighted(0.2, any::<u8>()),
    ) -> Conditions {
        Conditions { owner, access, statuses, kinds, queues, children_of }
    }
}
