//! The contract, carried out: input is checked, and an operation is run on whichever database it is.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, Attempt, Invalid, Json, KnownToken, LogLine, LogPage, NewAccessToken, NewTask,
    Node, NodeId, Serves, StoreError, Task, TaskId, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    bounds,
    contract::{
        Doorbell, Store,
        broker::Bell,
        store::{
            Access, BulkChange, BulkOutcome, BulkRequest, Cancelled, ClaimNamed, ClaimRequest,
            Expired, Failure, QueueHead, Report, RescueRequest, Rescued, RetryScope, Submitted,
            Verdict,
        },
    },
    event::{EventKind, LeasedMessage, OutboxPolicy},
    filter::{Page, PageRequest, Retention, TaskFilter},
    ids::ArtifactId,
    lifecycle::{expire::Overdue, reschedule::Reschedule},
    node::DutyLease,
    queue::Queue,
    statistics::{Tally, TallyFilter},
    task::Lease,
};

#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::connections::Bounds;
#[cfg(feature = "mysql")]
use crate::mysql::MySqlDatabase;
#[cfg(feature = "postgres")]
use crate::postgres::PostgresDatabase;
use crate::{
    batcher::Batcher,
    database::{Database, Mode, told},
    migrate::SchemaState,
    operations::{
        artifacts::{GetArtifact, ListArtifacts, ListExpiredArtifacts, NoteArtifact, NoteSweep},
        bulk::ChangeTasks,
        cancel::CancelTask,
        claim::{ClaimTasks, ClaimTheNamed},
        duties::{PauseQueue, TakeDuty},
        expire::ExpireTasks,
        fail_waiting::FailWaiting,
        finish::{self, CompleteTasks, FinishTasks},
        kept::ClaimKept,
        logs::{AppendLogs, ListLogs},
        nodes::{DeclareOthersDead, HeartbeatNode, RegisterNode, RetireNode},
        outbox::{ConfirmOutbox, CountOutbox, LeaseOutbox},
        progress::{SaveState, Saved},
        prune::{ListPrunable, PruneIdempotencyKeys, PruneTasks},
        read::{
            CountAhead, GetTask, ListAttempts, ListNodes, ListQueues, ListTasks, NextDueAt, Now,
        },
        reschedule::RescheduleTask,
        rescue::RescueTasks,
        retry::RetryTask,
        strays::HandBackStrays,
        submit::{self, SubmitAndClaim},
        tallies::{FoldTallies, ReadTallies},
        tokens::{CreateToken, FindToken, ListTokens, PruneTokens, RevokeToken, TouchToken},
        waiting::{BringForward, ListDue, ListHeads},
    },
    options::StoreOptions,
    session::Shared,
    sqlite::SqliteDatabase,
    submitter,
};

/// A store on one of the three databases.
#[derive(Debug, Clone)]
pub struct SqlStore {
    database: Database,
    batcher: Batcher,
}

impl SqlStore {
    /// Connects to `sqlite://file`, `postgres://…` or `mysql://…`. The schema is left as it is: [`Self::migrate`]
    /// brings it up to date, [`Self::check_schema`] refuses one that is not.
    pub async fn connect(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let shared = Shared::new(options.outbox, options.clock_offset, options.clock);
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        let bounds = Bounds {
            max_connections: options.max_connections,
            operation_wait: options.operation_wait,
        };
        let scheme = url.split(':').next().unwrap_or_default();
        let opened = match scheme {
            "sqlite" => SqliteDatabase::open(url, options.is_beside, shared).map(Database::Sqlite),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => PostgresDatabase::open(url, bounds, shared)
                .await
                .map(Database::Postgres),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => MySqlDatabase::open(url, bounds, shared)
                .await
                .map(Database::MySql),
            _ => return Err(no_driver(scheme).into()),
        };
        let database = opened.map_err(told)?;
        let batcher = Batcher::start(database.clone());
        Ok(Self { database, batcher })
    }

    /// Connects and brings the schema up to date.
    pub async fn open(url: &str, options: StoreOptions) -> Result<Self, StoreError> {
        let store = Self::connect(url, options).await?;
        store.migrate().await?;
        store.now().await?;
        Ok(store)
    }

    /// Brings the schema up to this program's; refuses one that is newer.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.database.migrate().await
    }

    /// How far the schema is; nothing is changed.
    pub async fn schema(&self) -> Result<SchemaState, StoreError> {
        self.database.schema().await
    }

    /// Refuses a schema that is not exactly this program's.
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        self.database.check_schema().await
    }

    /// Has the database prepare every statement that this program can send, and names those it refuses.
    pub async fn refused_statements(&self) -> Result<Vec<String>, StoreError> {
        self.database.refused_statements().await
    }

    /// How durable a commit is, as the database tells it.
    pub async fn durability(&self) -> Result<String, StoreError> {
        self.database.durability().await
    }

    /// Whether the store is a file that this process alone has open.
    pub const fn is_embedded(&self) -> bool {
        matches!(self.database, Database::Sqlite(_))
    }

    /// A doorbell that other processes on the same database hear, where the database has one.
    pub fn doorbell(&self) -> Option<Arc<dyn Doorbell>> {
        #[cfg(feature = "postgres")]
        if let Database::Postgres(database) = &self.database {
            return Some(Arc::new(database.doorbell()));
        }
        None
    }

    /// Has messages written beside changes from now on, for a relay that has just been found. What
    /// [`StoreOptions::outbox`] said before stays.
    pub fn write_messages(&self, policy: OutboxPolicy) {
        self.database.shared().write_messages(policy);
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.database.close().await;
    }

    /// How claims are run: their messages, if there are any, are committed with them.
    fn claim_mode(&self, task_types: &[String]) -> Mode {
        let events = &self.database.shared().outbox().events;
        match task_types
            .iter()
            .any(|name| events.selects(EventKind::Started, name))
        {
            true => Mode::Transaction,
            false => Mode::OneStatement,
        }
    }

    /// Submits within a transaction that the caller has begun with sqlx on the same PostgreSQL database: the tasks are made if
    /// the caller commits. When this is refused, nothing of it is left in the transaction; when it is given up before it has
    /// answered, the transaction must be rolled back.
    #[cfg(feature = "postgres")]
    pub async fn submit_in_postgres(
        &self,
        transaction: &mut sqlx::PgConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Submitted>, StoreError> {
        submit::check(tasks)?;
        let Database::Postgres(database) = &self.database else {
            return Err(other_database("PostgreSQL"));
        };
        let operation = submitter::prepare(&self.database, tasks.to_vec()).await?;
        database.within(transaction, &operation).await.map_err(told)
    }

    /// The same on MySQL and MariaDB.
    #[cfg(feature = "mysql")]
    pub async fn submit_in_mysql(
        &self,
        transaction: &mut sqlx::MySqlConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Submitted>, StoreError> {
        submit::check(tasks)?;
        let Database::MySql(database) = &self.database else {
            return Err(other_database("MySQL"));
        };
        let operation = submitter::prepare(&self.database, tasks.to_vec()).await?;
        database.within(transaction, &operation).await.map_err(told)
    }

    /// The same on the same SQLite file. Begin it with `BEGIN IMMEDIATE` and keep it short: while it is open, the store writes
    /// nothing else.
    pub async fn submit_in_sqlite(
        &self,
        transaction: &mut sqlx::SqliteConnection,
        tasks: &[NewTask],
    ) -> Result<Vec<Submitted>, StoreError> {
        submit::check(tasks)?;
        let Some(database) = self.database.sqlite() else {
            return Err(other_database("SQLite"));
        };
        let operation = submitter::prepare_within(database, tasks.to_vec());
        database.within(transaction, &operation).await.map_err(told)
    }
}

/// The rest of a URL may hold a password, so only its scheme is repeated.
fn no_driver(scheme: &str) -> Invalid {
    let feature = match scheme {
        "postgres" | "postgresql" => "postgres",
        "mysql" | "mariadb" => "mysql",
        _ => {
            let allowed = "sqlite://path/to/file.db, postgres://…, mysql://…";
            return Invalid::new(
                "the store's URL",
                format!("starts with {scheme:?}"),
                allowed,
            );
        }
    };
    Invalid::new(
        "the store's URL",
        format!("starts with {scheme:?}, and this program was built without a driver for that"),
        format!(
            "sqlite://path/to/file.db; for others, give longhaul the feature {feature:?} in Cargo.toml"
        ),
    )
}

fn other_database(wanted: &str) -> StoreError {
    StoreError::Invalid(Invalid::new(
        "transaction",
        format!("is one of {wanted}"),
        "a transaction of the database that this store is on",
    ))
}

fn check_claim(request: &ClaimRequest) -> Result<(), Invalid> {
    check_limit(request.limit, bounds::CLAIM_BATCH)?;
    bounds::check_name("host", &request.host)?;
    check_names(&request.queues, &request.task_types)
}

fn check_limit(limit: usize, most: usize) -> Result<(), Invalid> {
    if (1..=most).contains(&limit) {
        return Ok(());
    }
    Err(Invalid::new(
        "limit",
        format!("is {limit}"),
        format!("1 to {most}"),
    ))
}

/// Queues and types that a node names.
fn check_names(queues: &[String], task_types: &[String]) -> Result<(), Invalid> {
    queues
        .iter()
        .try_for_each(|name| bounds::check_label("queue", name))?;
    task_types
        .iter()
        .try_for_each(|name| bounds::check_label("taskType", name))
}

fn check_access(access: &Access) -> Result<(), Invalid> {
    match access {
        Access::All => Ok(()),
        Access::Owner(owner) => bounds::check_name("userId", owner),
    }
}

#[async_trait]
impl Store for SqlStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = self.database.run(Mode::ReadOnly, Now).await?;
        self.database.shared().note_store_time(now);
        Ok(now)
    }

    fn next_id(&self) -> TaskId {
        self.database.shared().next_id()
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        task.check()?;
        if task.parent.is_some() {
            let submitted = submitter::submit(&self.database, vec![task]).await?;
            return Ok(submitted[0]);
        }
        self.batcher.submit(task).await
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        submitter::submit(&self.database, tasks).await
    }

    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<Task>), StoreError> {
        task.check()?;
        check_claim(request)?;
        let submit = submitter::prepare(&self.database, vec![task]).await?;
        let claim = ClaimTasks {
            request: request.clone(),
        };
        let (submitted, claimed) = self
            .database
            .run(Mode::Transaction, SubmitAndClaim { submit, claim })
            .await?;
        Ok((submitted[0], claimed))
    }

    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError> {
        Node::check(name, host)?;
        let operation = RegisterNode {
            id,
            name: name.to_owned(),
            host: host.to_owned(),
            serves: serves.cloned(),
        };
        self.database.run(Mode::OneStatement, operation).await
    }

    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        bounds::check_batch("leases", leases.len(), bounds::CLAIM_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                HeartbeatNode {
                    id,
                    leases: leases.to_vec(),
                },
            )
            .await
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        held: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        bounds::check_batch("held", held.len(), bounds::HELD)?;
        bounds::check_duration_ms("olderThan", older_than_ms)?;
        self.database
            .run(
                Mode::Transaction,
                HandBackStrays {
                    node,
                    held: held.to_vec(),
                    older_than_ms,
                },
            )
            .await
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.database
            .run(Mode::OneStatement, RetireNode { id })
            .await
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        check_claim(request)?;
        self.database
            .run(
                self.claim_mode(&request.task_types),
                ClaimTasks {
                    request: request.clone(),
                },
            )
            .await
    }

    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("progress", reports.len(), bounds::CLAIM_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                SaveState {
                    saved: Saved::Progress,
                    reports: reports.to_vec(),
                },
            )
            .await
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        let operation = SaveState {
            saved: Saved::Checkpoint,
            reports: vec![(*lease, checkpoint.clone())],
        };
        Ok(self.database.run(Mode::Transaction, operation).await?[0])
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("lines", lines.len(), bounds::LOG_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                AppendLogs {
                    lines: lines.to_vec(),
                },
            )
            .await
    }

    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        note.check()?;
        self.database
            .run(Mode::Transaction, NoteArtifact { note: note.clone() })
            .await
    }

    async fn finish_tasks(&self, reports: &[Report]) -> Result<Vec<Verdict>, StoreError> {
        finish::check(reports)?;
        if reports.is_empty() {
            return Ok(Vec::new());
        }
        // With a listener to completed tasks every end takes the longer way, which writes its message.
        let ended = match !self
            .database
            .shared()
            .outbox()
            .events
            .selects_some(EventKind::Completed)
        {
            true => {
                self.database
                    .run(
                        Mode::OneStatement,
                        CompleteTasks {
                            reports: reports.to_vec(),
                        },
                    )
                    .await?
            }
            false => HashSet::new(),
        };
        let (mut verdicts, rest) = finish::settle(reports, ended);
        if !rest.is_empty() {
            let left: Vec<Report> = rest.iter().map(|index| reports[*index].clone()).collect();
            let told = self
                .database
                .run(Mode::Transaction, FinishTasks { reports: left })
                .await?;
            rest.iter()
                .zip(told)
                .for_each(|(index, verdict)| verdicts[*index] = verdict);
        }
        Ok(verdicts)
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        self.database
            .run(
                Mode::Transaction,
                CancelTask {
                    access: access.clone(),
                    id,
                },
            )
            .await
    }

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        self.database
            .run(
                Mode::Transaction,
                RetryTask {
                    access: access.clone(),
                    id,
                    scope,
                },
            )
            .await
    }

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<Task, StoreError> {
        change.check()?;
        self.database
            .run(
                Mode::Transaction,
                RescheduleTask {
                    access: access.clone(),
                    id,
                    change: change.clone(),
                },
            )
            .await
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        request.filter.check()?;
        check_access(&request.access)?;
        check_limit(request.limit, bounds::MAINTENANCE_BATCH)?;
        if let BulkChange::Reschedule(change) = &request.change {
            change.check()?;
        }
        self.database
            .run(
                Mode::Transaction,
                ChangeTasks {
                    request: request.clone(),
                },
            )
            .await
    }

    async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        bounds::check_label("queue", name)?;
        self.database
            .run(
                Mode::Transaction,
                PauseQueue {
                    name: name.to_owned(),
                    paused: true,
                },
            )
            .await
    }

    async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        bounds::check_label("queue", name)?;
        self.database
            .run(
                Mode::Transaction,
                PauseQueue {
                    name: name.to_owned(),
                    paused: false,
                },
            )
            .await
    }

    async fn take_duty(
        &self,
        duty: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<DutyLease>, StoreError> {
        bounds::check_label("duty", duty)?;
        bounds::check_duration_ms("ttl", ttl_ms)?;
        self.database
            .run(
                Mode::Transaction,
                TakeDuty {
                    duty: duty.to_owned(),
                    node,
                    ttl_ms,
                },
            )
            .await
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        self.database
            .run(Mode::Transaction, DeclareOthersDead { survivor })
            .await
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        bounds::check_duration_ms("lease", request.lease_ms)?;
        bounds::check_duration_ms("keepForHost", request.keep_for_host_ms)?;
        check_limit(request.limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(Mode::Transaction, RescueTasks { request: *request })
            .await
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                ExpireTasks {
                    overdue: *overdue,
                    limit,
                },
            )
            .await
    }

    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<Task>, StoreError> {
        bounds::check_batch("ids", request.ids.len(), bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        check_names(&[], &request.task_types)?;
        self.database
            .run(
                self.claim_mode(&request.task_types),
                ClaimTheNamed {
                    request: request.clone(),
                },
            )
            .await
    }

    async fn claim_kept(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        check_claim(request)?;
        self.database
            .run(
                Mode::Transaction,
                ClaimKept {
                    request: request.clone(),
                },
            )
            .await
    }

    async fn list_due(&self, queue: &str, limit: usize) -> Result<Vec<Bell>, StoreError> {
        bounds::check_label("queue", queue)?;
        check_limit(limit, bounds::DUE_BATCH)?;
        self.database
            .run(
                Mode::ReadOnly,
                ListDue {
                    queue: queue.to_owned(),
                    limit,
                },
            )
            .await
    }

    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError> {
        self.database.run(Mode::ReadOnly, ListHeads).await
    }

    async fn bring_forward(
        &self,
        queue: &str,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        bounds::check_label("queue", queue)?;
        bounds::check_duration_ms("waited", waited_ms)?;
        check_limit(most, bounds::CLAIM_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                BringForward {
                    queue: queue.to_owned(),
                    waited_ms,
                    most,
                },
            )
            .await
    }

    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError> {
        bounds::check_batch("ids", ids.len(), bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                FailWaiting {
                    ids: ids.to_vec(),
                    failure: failure.clone(),
                },
            )
            .await
    }

    async fn next_due_at(
        &self,
        queues: &[String],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        check_names(queues, task_types)?;
        self.database
            .run(
                Mode::ReadOnly,
                NextDueAt {
                    queues: queues.to_vec(),
                    task_types: task_types.to_vec(),
                },
            )
            .await
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<Task>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(
                Mode::ReadOnly,
                ListPrunable {
                    keep: *keep,
                    after,
                    limit,
                },
            )
            .await
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        bounds::check_batch("ids", ids.len(), bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(
                Mode::Transaction,
                PruneTasks {
                    keep: *keep,
                    ids: ids.to_vec(),
                },
            )
            .await
    }

    async fn list_expired_artifacts(
        &self,
        limit: usize,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(Mode::ReadOnly, ListExpiredArtifacts { limit })
            .await
    }

    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError> {
        bounds::check_batch("swept", swept.len(), bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("retry", retry_ms)?;
        self.database
            .run(
                Mode::Transaction,
                NoteSweep {
                    swept: swept.to_vec(),
                    retry_ms,
                },
            )
            .await
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(Mode::OneStatement, PruneIdempotencyKeys { limit })
            .await
    }

    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("ttl", ttl_ms)?;
        self.database
            .run(Mode::Transaction, LeaseOutbox { limit, ttl_ms })
            .await
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        bounds::check_batch("ids", ids.len(), bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(Mode::OneStatement, ConfirmOutbox { ids: ids.to_vec() })
            .await
    }

    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::COUNT)?;
        self.database
            .run(Mode::ReadOnly, CountOutbox { limit })
            .await
    }

    async fn fold_tallies(&self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(Mode::Transaction, FoldTallies { limit })
            .await
    }

    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError> {
        token.check()?;
        self.database
            .run(
                Mode::Transaction,
                CreateToken {
                    token: token.clone(),
                },
            )
            .await
    }

    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError> {
        self.database
            .run(Mode::ReadOnly, FindToken { id: id.to_owned() })
            .await
    }

    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        check_limit(limit, bounds::PAGE_SIZE)?;
        self.database
            .run(
                Mode::ReadOnly,
                ListTokens {
                    after: after.unwrap_or("").to_owned(),
                    limit,
                },
            )
            .await
    }

    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        self.database
            .run(Mode::OneStatement, PruneTokens { limit })
            .await
    }

    async fn touch_token(&self, id: &str) -> Result<(), StoreError> {
        self.database
            .run(Mode::OneStatement, TouchToken { id: id.to_owned() })
            .await
    }

    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError> {
        self.database
            .run(Mode::Transaction, RevokeToken { id: id.to_owned() })
            .await
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<Task, StoreError> {
        self.database
            .run(
                Mode::ReadOnly,
                GetTask {
                    access: access.clone(),
                    id,
                },
            )
            .await
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Task>, StoreError> {
        filter.check()?;
        page.check()?;
        check_access(access)?;
        self.database
            .run(
                Mode::ReadOnly,
                ListTasks {
                    access: access.clone(),
                    filter: filter.clone(),
                    page: *page,
                },
            )
            .await
    }

    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        check_limit(limit, bounds::PAGE_SIZE + 1)?;
        self.database
            .run(
                Mode::ReadOnly,
                ListAttempts {
                    access: access.clone(),
                    id,
                    after,
                    limit,
                },
            )
            .await
    }

    async fn count_ahead(
        &self,
        task: &Task,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        check_limit(limit, bounds::COUNT)?;
        let (queue, priority, due_at, id) =
            (task.queue.clone(), task.priority, task.due_at, task.id);
        self.database
            .run(
                Mode::ReadOnly,
                CountAhead {
                    queue,
                    priority,
                    due_at,
                    id,
                    now,
                    limit,
                },
            )
            .await
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        check_limit(limit, bounds::PAGE_SIZE)?;
        self.database
            .run(
                Mode::ReadOnly,
                ListLogs {
                    access: access.clone(),
                    id,
                    after,
                    limit,
                },
            )
            .await
    }

    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.database
            .run(
                Mode::ReadOnly,
                ListArtifacts {
                    access: access.clone(),
                    id,
                },
            )
            .await
    }

    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        self.database.run(Mode::ReadOnly, GetArtifact { id }).await
    }

    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.database.run(Mode::ReadOnly, ListQueues).await
    }

    async fn list_nodes(&self) -> Result<Vec<Node>, StoreError> {
        self.database.run(Mode::ReadOnly, ListNodes).await
    }

    async fn read_tallies(&self, filter: &TallyFilter) -> Result<Vec<Tally>, StoreError> {
        self.database
            .run(
                Mode::ReadOnly,
                ReadTallies {
                    filter: filter.clone(),
                },
            )
            .await
    }
}
