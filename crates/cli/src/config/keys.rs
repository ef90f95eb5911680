//! Every key: what it takes, what it is for, and when to change it. `docs/configuration.md` is made from this.

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Url,
    Address,
    Number,
    Flag,
    Duration,
    /// Texts; in a variable separated by commas.
    Texts,
    /// Only in the file.
    Rules,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Url => "URL",
            Self::Address => "address and port",
            Self::Number => "whole number",
            Self::Flag => "true or false",
            Self::Duration => "duration",
            Self::Texts => "list of texts",
            Self::Rules => "list of tables",
        }
    }
}

/// A key. `*` in its name stands for a name of the operator's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) what: &'static str,
    /// A short variable besides the long one.
    pub(super) variable: Option<&'static str>,
}

impl Key {
    pub(super) fn segments(&self) -> Vec<&'static str> {
        self.name.split('.').collect()
    }

    /// Whether a path that somebody wrote is this key.
    pub(super) fn is_at(&self, path: &[String]) -> bool {
        let segments = self.segments();
        segments.len() == path.len()
            && segments
                .iter()
                .zip(path)
                .all(|(own, other)| *own == "*" || own == other)
    }
}

const fn key(name: &'static str, kind: Kind, what: &'static str) -> Key {
    Key {
        name,
        kind,
        what,
        variable: None,
    }
}

const fn shape(name: &'static str, kind: Kind, variable: &'static str, what: &'static str) -> Key {
    Key {
        name,
        kind,
        what,
        variable: Some(variable),
    }
}

pub(super) const KEYS: &[Key] = &[
    shape(
        "store.url",
        Kind::Url,
        "LONGHAUL_STORE",
        "Where tasks are kept: `sqlite://path/to/file.db`, `postgres://…` or `mysql://…`. A SQLite file has one process; several nodes need a server.",
    ),
    key(
        "store.max_connections",
        Kind::Number,
        "Connections of this process to a database server; on PostgreSQL up to two more wake other nodes and hear them. Rarely worth raising: many operations share one commit. The sum over all nodes must stay below the server's own limit.",
    ),
    key(
        "store.migrate",
        Kind::Flag,
        "Whether a node brings the schema up to date when it starts. Turn it off where that is a step of its own (`longhaul migrate`); a node then refuses to start on an old schema.",
    ),
    shape(
        "broker.url",
        Kind::Url,
        "LONGHAUL_BROKER",
        "Who tells nodes of new work: `local` (nodes claim from the store, and PostgreSQL wakes them) or RabbitMQ, `amqp://user:password@host/vhost`, with TLS `amqps://…`. With RabbitMQ, changes, signals and progress of all nodes reach all others at once. The same on all nodes. While it is away, nodes work without it.",
    ),
    key(
        "broker.namespace",
        Kind::Text,
        "Stands before the names of all exchanges and queues, for several systems on one virtual host. The same on all nodes.",
    ),
    key(
        "broker.lanes",
        Kind::Text,
        "What the queues are on RabbitMQ: `classic`, with nine priorities, or `quorum`, which a cluster keeps on several machines and which knows two. Queues that are there keep their kind: delete all of them before you change this.",
    ),
    shape(
        "redis.url",
        Kind::Url,
        "LONGHAUL_REDIS",
        "Where rate limits are counted for all nodes together and the newest progress is found: `redis://[user:password@]host[:port][/database]`, with TLS `rediss://…`. Without it, each process counts for itself. The same on all nodes.",
    ),
    key(
        "redis.namespace",
        Kind::Text,
        "Stands before all keys, for several systems on one server. The same on all nodes.",
    ),
    key(
        "redis.nodes",
        Kind::Number,
        "While Redis is away, each node keeps to every limit divided by this: the number of nodes that call providers.",
    ),
    key(
        "events.external",
        Kind::Rules,
        "What the world is told over the broker's exchange `tasks.events.exchange`, as CloudEvents. A rule selects events of types; without rules nothing is told.",
    ),
    key(
        "events.external.*.types",
        Kind::Texts,
        "The types whose events are told; all when none is named.",
    ),
    key(
        "events.external.*.events",
        Kind::Texts,
        "The events that are told, such as `completed` and `failed`; all when none is named.",
    ),
    shape(
        "artifacts.url",
        Kind::Url,
        "LONGHAUL_ARTIFACTS",
        "Where files that tasks make are kept: `file://folder`. Without it, a folder beside the SQLite file, or `longhaul-artifacts` in the working directory.",
    ),
    key(
        "artifacts.key",
        Kind::Text,
        "What the URLs of files are signed with, 64 hexadecimal digits, for nodes that share their files: `openssl rand -hex 32`. Without it each folder of files has a key beside it.",
    ),
    key(
        "artifacts.keep_free",
        Kind::Duration,
        "How long files of tasks without a tier, or of the tier `free`, are kept.",
    ),
    key(
        "artifacts.keep_vip",
        Kind::Duration,
        "The same for the tier `vip`.",
    ),
    key(
        "artifacts.keep_enterprise",
        Kind::Duration,
        "The same for the tier `enterprise`.",
    ),
    shape(
        "http.listen",
        Kind::Address,
        "LONGHAUL_LISTEN",
        "Where the HTTP API listens. Port 0 takes a free one. Beyond this machine it needs `http.allow_plain` and an identity other than `dev`.",
    ),
    key(
        "http.allow_plain",
        Kind::Flag,
        "Whether plain HTTP may leave this machine. Turn it on only behind something that speaks TLS for it: tokens travel in the open otherwise.",
    ),
    key(
        "http.header_timeout",
        Kind::Duration,
        "How long the head of a request may take, and how long a connection may be idle between two.",
    ),
    key(
        "http.write_timeout",
        Kind::Duration,
        "How long a client may leave an answer unread.",
    ),
    key(
        "http.connections",
        Kind::Number,
        "Connections at once. The process needs a file handle for each.",
    ),
    key(
        "http.connections_per_address",
        Kind::Number,
        "Connections at once from one address. Behind a gateway all come from one.",
    ),
    key(
        "http.drain",
        Kind::Duration,
        "How long requests that are under way may take after a stop.",
    ),
    key(
        "identity.mode",
        Kind::Text,
        "How callers are known: `tokens` (made by `longhaul token create`), `trusted-header` (a gateway says who calls in X-User-Id, X-User-Scopes and X-User-Tier, and takes these headers from callers), or `dev` (anybody on this machine, loopback only).",
    ),
    key(
        "identity.trusted_from",
        Kind::Texts,
        "Networks that the gateway of `trusted-header` calls from. Whoever calls from elsewhere is turned away, whatever the headers say.",
    ),
    key(
        "identity.environment",
        Kind::Text,
        "A word in new tokens, `lh_live_…`, so that people see which deployment one is for: 1 to 12 of a-z and 0-9.",
    ),
    key(
        "worker.name",
        Kind::Text,
        "What this node is called, for people. The name of the machine when nothing is said.",
    ),
    key(
        "worker.slots",
        Kind::Number,
        "Tasks that run at once in this process. Handlers that mostly wait for others can have hundreds; those that compute, about one a core.",
    ),
    key(
        "worker.queues.*.reserved",
        Kind::Number,
        "Slots that only this queue gets. Naming queues binds the worker to them; without any it serves all that the routing and the types name.",
    ),
    key(
        "worker.queues.*.at_most",
        Kind::Number,
        "The most that this queue gets at once, its own and shared slots together.",
    ),
    key(
        "worker.queues.*.share",
        Kind::Number,
        "How large its portion of the slots that no queue has for itself is, beside those of the other queues, while all have tasks that wait: 1 when nothing is said, and with 3 three times as much as one with 1. What a queue does not use, others do.",
    ),
    key(
        "worker.types.*",
        Kind::Number,
        "How many tasks of a type run at once in this process, whatever the type itself says. The name is quoted: `\"sample.sleep\" = 4`.",
    ),
    key(
        "worker.resources.*",
        Kind::Number,
        "How many tasks of this process may use a named resource at once.",
    ),
    key(
        "worker.poll_least",
        Kind::Duration,
        "The shortest wait between two looks for work when no bell rings.",
    ),
    key(
        "worker.poll_most",
        Kind::Duration,
        "The longest wait between two looks. On PostgreSQL a bell shortens it; elsewhere it is how late a task of another process may start.",
    ),
    key(
        "worker.heartbeat",
        Kind::Duration,
        "How often leases are renewed while something runs; a cancel elsewhere is heard within this.",
    ),
    key(
        "worker.idle_heartbeat",
        Kind::Duration,
        "The same while nothing runs.",
    ),
    key(
        "worker.heartbeat_timeout",
        Kind::Duration,
        "How long the answer to a heartbeat is waited for.",
    ),
    key(
        "worker.stray_age",
        Kind::Duration,
        "How old a claim that this worker does not know of must be to be handed back.",
    ),
    key(
        "worker.drain",
        Kind::Duration,
        "How long a stop waits for what runs. Supervisors must wait longer before they kill.",
    ),
    key(
        "duties.lease",
        Kind::Duration,
        "A node that has not been heard of for this long is dead, and its tasks go to others. Shorter finds deaths sooner and takes long pauses for them. The same on all nodes.",
    ),
    key(
        "duties.rescue_every",
        Kind::Duration,
        "How often dead nodes are looked for.",
    ),
    key(
        "duties.max_crashes",
        Kind::Number,
        "Deaths of its node after which a task is quarantined as a dead letter.",
    ),
    key(
        "duties.silent",
        Kind::Duration,
        "An attempt that shows no sign for this long is failed although its node lives.",
    ),
    key(
        "duties.timeout_grace",
        Kind::Duration,
        "How long past its timeout an attempt's own node has to end it.",
    ),
    key(
        "duties.keep_ended",
        Kind::Duration,
        "How long ended tasks are kept.",
    ),
    key(
        "duties.keep_dead_letters",
        Kind::Duration,
        "How long `FAILED` and `DEAD_LETTER` tasks are kept.",
    ),
    key(
        "duties.sweep_every",
        Kind::Duration,
        "How often files whose time is over are looked for.",
    ),
    key(
        "duties.starve_after",
        Kind::Duration,
        "Tasks that have waited for longer get a part of the starts of their queue, whatever their priority: every tenth, the longest waiting first. `0s` never does so.",
    ),
    key(
        "duties.keep_for_host",
        Kind::Duration,
        "How long tasks of a node that died are kept for nodes of the same host, which may have files of theirs; then they are anybody's. `0s` keeps none. The same on all nodes.",
    ),
    key(
        "routing.rules",
        Kind::Rules,
        "Which queue a task goes to when its submitter names none. The first rule that fits decides; naming any replaces them all.",
    ),
    key(
        "routing.rules.*.tier",
        Kind::Text,
        "The rule is for tasks of this tier; without it, of any.",
    ),
    key(
        "routing.rules.*.at_most",
        Kind::Duration,
        "The rule is for tasks that are expected to take at most this long.",
    ),
    key("routing.rules.*.queue", Kind::Text, "Where they go."),
    key(
        "routing.otherwise",
        Kind::Text,
        "Where everything else goes.",
    ),
    key(
        "limits.*.rate",
        Kind::Number,
        "Calls that a provider (`openai`) or one of its models (`\"openai/gpt-4\"`) takes in each stretch of time. `limits.default` is for keys without a limit of their own.",
    ),
    key(
        "limits.*.per",
        Kind::Duration,
        "How long a stretch is; a second when nothing is said.",
    ),
    key(
        "limits.*.burst",
        Kind::Number,
        "Calls that an idle key has saved up and that may come at once; 1 when nothing is said.",
    ),
    key(
        "log.format",
        Kind::Text,
        "How log lines are written: `pretty` for people, `json` for collectors.",
    ),
    key(
        "log.level",
        Kind::Text,
        "What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,longhaul_store=debug`.",
    ),
    key(
        "telemetry.otlp_endpoint",
        Kind::Url,
        "Where traces go, an OpenTelemetry collector: `http://127.0.0.1:4318`. Without it none are made.",
    ),
];
